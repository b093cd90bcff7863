//! Errors against their tolerances as SVG: panels of named rows on one logarithmic axis.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::plot::{COLOURS, FONT, plot_error};

/// A value and the limit it is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gauge {
    /// Index of its series.
    pub(crate) series: usize,
    /// The value; 0 has no logarithm and is drawn hollow, at the left.
    pub(crate) value: f64,
    /// Its limit; none is drawn for 0.
    pub(crate) limit: f64,
    /// Whether it is to be seen.
    pub(crate) failed: bool,
}

/// A named row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GaugeRow {
    /// Its name.
    pub(crate) name: String,
    /// Its gauges, at most one a series.
    pub(crate) gauges: Vec<Gauge>,
    /// What to say where there are none.
    pub(crate) empty: String,
}

/// One panel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GaugePanel {
    /// Its title.
    pub(crate) title: String,
    /// A line below the title.
    pub(crate) note: String,
    /// The rows, from above.
    pub(crate) rows: Vec<GaugeRow>,
}

pub(super) const FAILED: RGBColor = RGBColor(200, 0, 0);
pub(super) const GREY: RGBColor = RGBColor(110, 110, 110);
const WIDTH: i32 = 440;
const NAMES: i32 = 130;
const RIGHT: i32 = 24;
const HEAD: i32 = 56;
const ROW: i32 = 22;
const FOOT: i32 = 34;
const LEGEND: i32 = 34;
const COLUMNS: usize = 4;

/// Decades that are shown at most above the largest limit: an error of `f64::MAX` would leave nothing else to see.
const ABOVE: f64 = 3.0;

/// Whole decades around all values and limits; values far outside are drawn at the border.
fn decades(panels: &[GaugePanel]) -> (f64, f64) {
    let gauges = || panels.iter().flat_map(|p| &p.rows).flat_map(|row| &row.gauges);
    let logs = |of: fn(&Gauge) -> f64| gauges().map(of).filter(|&v| v > 0.0 && v.is_finite()).map(f64::log10);
    let limit = logs(|g| g.limit).fold(f64::NEG_INFINITY, f64::max);
    let top = if limit.is_finite() { limit + ABOVE } else { f64::INFINITY };
    let all = || logs(|g| g.value).chain(logs(|g| g.limit)).filter(|&log| log <= top);
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    // One decade more on the left, for what is 0.
    if low <= high { (low.floor() - 1.0, high.floor() + 1.0) } else { (-1.0, 0.0) }
}

/// SVG documents below each other as one. Sizes are read from the documents' own first line.
pub(crate) fn stacked(documents: &[String]) -> String {
    let size = |document: &str, name: &str| -> i32 {
        let value = document.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    let (mut width, mut height, mut inner) = (0, 0, String::new());
    for document in documents {
        inner += &document.replacen("<svg ", &format!("<svg y=\"{height}\" "), 1);
        width = width.max(size(document, "width"));
        height += size(document, "height");
    }
    format!("<svg width=\"{width}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\">\n{inner}</svg>\n")
}

/// The panels in a grid as one SVG document, with a legend of the series.
///
/// # Errors
/// What the plotting library says.
pub(crate) fn gauges(series: &[String], panels: &[GaugePanel]) -> Result<String> {
    let (low, high) = decades(panels);
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.iter().map(|p| p.rows.len()).max().unwrap_or(0) as i32;
    let height = HEAD + rows * ROW + FOOT;
    let lines = panels.len().div_ceil(columns) as i32;
    let mut out = String::new();
    {
        let size = ((columns as i32 * WIDTH) as u32, (LEGEND + lines * height) as u32);
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        root.fill(&WHITE).map_err(plot_error)?;
        legend(&root, series)?;
        for (i, panel) in panels.iter().enumerate() {
            let corner = ((i % columns) as i32 * WIDTH, LEGEND + (i / columns) as i32 * height);
            draw(&root, panel, corner, (low, high), series.len())?;
        }
        root.present().map_err(plot_error)?;
    }
    Ok(out)
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Text at a place, centred in height.
pub(super) fn write(
    root: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: i32,
    colour: RGBColor,
    side: HPos,
) -> Result<()> {
    let style = (FONT, size).into_font().color(&colour).pos(Pos::new(side, VPos::Center));
    root.draw(&Text::new(text.to_owned(), at, style)).map_err(plot_error)
}

/// A straight line.
pub(super) fn line(root: &Area<'_>, from: (i32, i32), to: (i32, i32), colour: RGBColor, width: u32) -> Result<()> {
    root.draw(&PathElement::new([from, to], colour.stroke_width(width))).map_err(plot_error)
}

fn legend(root: &Area<'_>, series: &[String]) -> Result<()> {
    let (mut x, y) = (16, LEGEND / 2);
    for (i, name) in series.iter().enumerate() {
        root.draw(&Circle::new((x, y), 4, COLOURS[i % COLOURS.len()].filled())).map_err(plot_error)?;
        write(root, name, (x + 10, y), 13, BLACK, HPos::Left)?;
        x += 40 + 8 * name.chars().count() as i32;
    }
    line(root, (x, y - 7), (x, y + 7), BLACK, 2)?;
    write(root, "tolerance (hollow: no error at all)", (x + 10, y), 13, BLACK, HPos::Left)
}

fn draw(root: &Area<'_>, panel: &GaugePanel, corner: (i32, i32), (low, high): (f64, f64), series: usize) -> Result<()> {
    let (left, right) = (corner.0 + NAMES, corner.0 + WIDTH - RIGHT);
    let (top, bottom) = (corner.1 + HEAD, corner.1 + HEAD + panel.rows.len() as i32 * ROW);
    write(root, &panel.title, (corner.0 + 16, corner.1 + 14), 16, BLACK, HPos::Left)?;
    write(root, &super::short(&panel.note, 74), (corner.0 + 16, corner.1 + 36), 12, GREY, HPos::Left)?;
    let place = |value: f64| {
        let share = if value > 0.0 { ((value.log10() - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
        left + (share * f64::from(right - left)) as i32
    };
    // At most seven labels.
    let step = (((high - low) / 6.0).ceil() as usize).max(1);
    for decade in (low as i32..=high as i32).step_by(step) {
        let x = place(10f64.powi(decade));
        line(root, (x, top), (x, bottom), RGBColor(225, 225, 225), 1)?;
        write(root, &format!("1e{decade}"), (x, bottom + 12), 11, GREY, HPos::Center)?;
    }
    for (i, GaugeRow { name, gauges, empty }) in panel.rows.iter().enumerate() {
        let y = top + i as i32 * ROW + ROW / 2;
        let failed = gauges.iter().any(|g| g.failed);
        write(root, name, (left - 8, y), 12, if failed { FAILED } else { BLACK }, HPos::Right)?;
        if gauges.is_empty() {
            write(root, empty, (left + 4, y), 11, GREY, HPos::Left)?;
        }
        for gauge in gauges {
            let x = place(gauge.value);
            // Several series lie below each other, and so do their tolerances.
            let apart = 6 * gauge.series as i32 - 3 * (series as i32 - 1);
            let (y, half, radius) = if series > 1 { (y + apart, 2, 3) } else { (y, 7, 4) };
            let colour = if gauge.failed { FAILED } else { COLOURS[gauge.series % COLOURS.len()] };
            if gauge.limit > 0.0 {
                let at = place(gauge.limit);
                line(root, (at, y - half), (at, y + half), BLACK, 2)?;
            }
            if gauge.value == 0.0 {
                root.draw(&Circle::new((x, y), radius, colour.stroke_width(2))).map_err(plot_error)?;
            } else {
                line(root, (left, y), (x, y), colour, 2)?;
                root.draw(&Circle::new((x, y), radius, colour.filled())).map_err(plot_error)?;
            }
            if gauge.failed {
                write(root, "fails", (x - 8, y - 6), 11, FAILED, HPos::Right)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(title: &str, gauges: &[(f64, f64, bool)]) -> GaugePanel {
        let gauge = |&(value, limit, failed)| vec![Gauge { series: 0, value, limit, failed }];
        let row = |gauges| GaugeRow { name: "law".into(), gauges, empty: "says nothing".into() };
        let rows = gauges.iter().map(gauge).chain([vec![]]).map(row).collect();
        GaugePanel { title: title.into(), note: "exact <&>".into(), rows }
    }

    #[test]
    fn each_gauge_is_a_point_and_failures_stand_out() {
        let panels: Vec<GaugePanel> = (0..5)
            .map(|i| panel(&format!("family{i}"), &[(1e-15, 2e-14, false), (0.0, 0.0, false), (f64::MAX, 2e-14, true)]))
            .collect();
        let text = gauges(&["oracle".to_owned()], &panels).unwrap();
        assert_eq!(text.matches("<circle").count(), 5 * 3 + 1);
        assert_eq!(text.matches("says nothing").count(), 5);
        assert_eq!(text.matches("\nfails\n").count(), 5);
        assert!((0..5).all(|i| text.contains(&format!("\nfamily{i}\n"))) && !text.contains("<&>"));
        assert_eq!(decades(&panels), (-16.0, -13.0), "f64::MAX does not stretch the axis");
        assert!(text.starts_with(&format!("<svg width=\"{}\"", 4 * WIDTH)), "a grid of two lines");
    }

    #[test]
    fn degenerate_data_still_gives_a_plot() {
        for panels in [vec![], vec![panel("none", &[])], vec![panel("nan", &[(f64::NAN, f64::NAN, true)])]] {
            assert!(gauges(&[], &panels).unwrap().ends_with("</svg>\n"));
        }
        assert_eq!(decades(&[]), (-1.0, 0.0));
    }

    #[test]
    fn documents_are_put_below_each_other() {
        let one = |n: usize| gauges(&["oracle".to_owned()], &vec![panel("p", &[(1e-15, 2e-14, false)]); n]).unwrap();
        let (a, b) = (one(1), one(3));
        let height = LEGEND + HEAD + 2 * ROW + FOOT;
        let both = stacked(&[a, b]);
        assert!(both.starts_with(&format!("<svg width=\"{}\" height=\"{}\" ", 3 * WIDTH, 2 * height)), "{both}");
        assert!(both.contains(&format!("<svg y=\"{height}\" ")) && both.matches("</svg>").count() == 3);
        assert_eq!(stacked(&[]).matches("svg").count(), 3);
    }
}
