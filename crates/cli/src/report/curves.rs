//! Errors over a length as SVG: panels of lines on logarithmic axes, with their tolerances dashed.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::gauge::{Area, FAILED, GREY, line, write};
use super::plot::{COLOURS, plot_error};

/// A line: its colour says whose it is, its marks say of what.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    /// Index of its series, a colour.
    pub(crate) series: usize,
    /// Index of its style, a mark; not looked at in a limit.
    pub(crate) style: usize,
    /// (x, y), x rising; a y of 0 has no logarithm and is drawn at the bottom, hollow where the mark can be.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One panel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurvePanel {
    /// Its title.
    pub(crate) title: String,
    /// A line below the title.
    pub(crate) note: String,
    /// The lines.
    pub(crate) curves: Vec<Curve>,
    /// What the lines of each series are held against, dashed in its colour. Points above are drawn as failures.
    pub(crate) limits: Vec<Curve>,
}

/// What all panels share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Legend {
    /// The title of the picture.
    pub(crate) title: String,
    /// Names of the series.
    pub(crate) series: Vec<String>,
    /// Names of the styles; those that no line has are left out.
    pub(crate) styles: Vec<String>,
    /// The values of x, above 0 and rising.
    pub(crate) ticks: Vec<f64>,
    /// What x is.
    pub(crate) x: String,
}

const WIDTH: i32 = 440;
const HEIGHT: i32 = 320;
const LEFT: i32 = 56;
const RIGHT: i32 = 24;
const HEAD: i32 = 56;
const FOOT: i32 = 44;
const LEGEND: i32 = 64;
const COLUMNS: usize = 4;
const LIGHT: RGBColor = RGBColor(225, 225, 225);

/// Decades that are shown at most above the largest limit.
const ABOVE: f64 = 3.0;

/// Whole decades around all points and limits; points far outside are drawn at the border.
fn decades(panels: &[CurvePanel]) -> (f64, f64) {
    let logs = |of: fn(&CurvePanel) -> &Vec<Curve>| {
        let ys = panels.iter().flat_map(of).flat_map(|curve| &curve.points).map(|p| p.1);
        ys.filter(|&y| y > 0.0 && y.is_finite()).map(f64::log10).collect::<Vec<_>>()
    };
    let (points, limits) = (logs(|p| &p.curves), logs(|p| &p.limits));
    let limit = limits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let top = if limit.is_finite() { limit + ABOVE } else { f64::INFINITY };
    let all = points.iter().chain(&limits).copied().filter(|&log| log <= top);
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low <= high { (low.floor(), high.floor() + 1.0) } else { (-1.0, 0.0) }
}

/// The panels in a grid as one SVG document, with a legend.
///
/// # Errors
/// What the plotting library says.
pub(crate) fn curves(legend: &Legend, panels: &[CurvePanel]) -> Result<String> {
    let ys = decades(panels);
    let columns = panels.len().clamp(1, COLUMNS);
    let lines = panels.len().div_ceil(columns) as i32;
    let mut out = String::new();
    {
        // The legend is as wide as three panels.
        let size = (((columns as i32).max(3) * WIDTH) as u32, (LEGEND + lines * HEIGHT) as u32);
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        root.fill(&WHITE).map_err(plot_error)?;
        draw_legend(&root, legend, panels)?;
        for (i, panel) in panels.iter().enumerate() {
            let corner = ((i % columns) as i32 * WIDTH, LEGEND + (i / columns) as i32 * HEIGHT);
            draw(&root, legend, panel, corner, ys)?;
        }
        root.present().map_err(plot_error)?;
    }
    Ok(out)
}

/// A mark of a style.
fn mark(root: &Area<'_>, style: usize, (x, y): (i32, i32), colour: RGBColor, hollow: bool) -> Result<()> {
    let look = if hollow { colour.stroke_width(2) } else { colour.filled() };
    match style % 5 {
        0 => root.draw(&Circle::new((x, y), 4, look)),
        1 => root.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], look)),
        2 => root.draw(&TriangleMarker::new((x, y), 6, look)),
        3 => root.draw(&Polygon::new([(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)], look)),
        _ => root.draw(&Cross::new((x, y), 4, colour.stroke_width(2))),
    }
    .map_err(plot_error)
}

/// Lines of 6 pixels with gaps of 4 from point to point.
fn dashed(root: &Area<'_>, points: &[(i32, i32)], colour: RGBColor) -> Result<()> {
    const DASH: f64 = 6.0;
    const STEP: f64 = 10.0;
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
        let length = dx.hypot(dy);
        let at = |along: f64| {
            let share = (along / length).min(1.0);
            (x0 + (share * dx) as i32, y0 + (share * dy) as i32)
        };
        let mut along = 0.0;
        while along < length {
            line(root, at(along), at(along + DASH), colour, 2)?;
            along += STEP;
        }
    }
    Ok(())
}

fn draw_legend(root: &Area<'_>, legend: &Legend, panels: &[CurvePanel]) -> Result<()> {
    let used = |style: usize| panels.iter().flat_map(|p| &p.curves).any(|curve| curve.style == style);
    write(root, &legend.title, (16, 18), 18, BLACK, HPos::Left)?;
    let (mut x, y) = (16, LEGEND - 20);
    let mut next = |name: &str| {
        let here = x;
        x += 44 + 7 * name.chars().count() as i32;
        here
    };
    for (i, name) in legend.series.iter().enumerate() {
        let x = next(name);
        line(root, (x, y), (x + 18, y), COLOURS[i % COLOURS.len()], 3)?;
        write(root, name, (x + 24, y), 13, BLACK, HPos::Left)?;
    }
    for (style, name) in legend.styles.iter().enumerate().filter(|(style, _)| used(*style)) {
        let x = next(name);
        mark(root, style, (x + 8, y), GREY, false)?;
        write(root, name, (x + 20, y), 13, BLACK, HPos::Left)?;
    }
    let x = next("tolerance");
    dashed(root, &[(x, y), (x + 18, y)], BLACK)?;
    write(root, "tolerance (at the bottom: no error at all)", (x + 24, y), 13, BLACK, HPos::Left)
}

fn draw(
    root: &Area<'_>,
    legend: &Legend,
    panel: &CurvePanel,
    corner: (i32, i32),
    (low, high): (f64, f64),
) -> Result<()> {
    let (left, right) = (corner.0 + LEFT, corner.0 + WIDTH - RIGHT);
    let (top, bottom) = (corner.1 + HEAD, corner.1 + HEIGHT - FOOT);
    write(root, &panel.title, (corner.0 + 16, corner.1 + 14), 16, BLACK, HPos::Left)?;
    write(root, &super::short(&panel.note, 74), (corner.0 + 16, corner.1 + 36), 12, GREY, HPos::Left)?;
    let ends = legend.ticks.first().zip(legend.ticks.last()).map_or((0.0, 1.0), |(a, b)| (a.ln(), b.ln()));
    let place = |(x, y): (f64, f64)| {
        let across = ((x.ln() - ends.0) / (ends.1 - ends.0).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let up = if y > 0.0 { ((y.log10() - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
        // A margin on both sides, so that marks do not lie on the border.
        let inner = f64::from(right - left - 24);
        (left + 12 + (across * inner) as i32, bottom - (up * f64::from(bottom - top)) as i32)
    };
    // At most seven labels.
    let step = (((high - low) / 6.0).ceil() as usize).max(1);
    for decade in (low as i32..=high as i32).step_by(step) {
        let (_, y) = place((1.0, 10f64.powi(decade)));
        line(root, (left, y), (right, y), LIGHT, 1)?;
        write(root, &format!("1e{decade}"), (left - 6, y), 11, GREY, HPos::Right)?;
    }
    for &tick in &legend.ticks {
        let (x, _) = place((tick, 1.0));
        line(root, (x, top), (x, bottom), LIGHT, 1)?;
        write(root, &format!("{tick}"), (x, bottom + 12), 11, GREY, HPos::Center)?;
    }
    write(root, &legend.x, ((left + right) / 2, bottom + 28), 12, GREY, HPos::Center)?;
    if panel.curves.is_empty() {
        write(root, "nothing measured", ((left + right) / 2, (top + bottom) / 2), 12, GREY, HPos::Center)?;
    }
    for limit in &panel.limits {
        let points: Vec<_> = limit.points.iter().copied().map(place).collect();
        dashed(root, &points, COLOURS[limit.series % COLOURS.len()])?;
    }
    for curve in &panel.curves {
        let colour = COLOURS[curve.series % COLOURS.len()];
        let points: Vec<_> = curve.points.iter().copied().map(place).collect();
        root.draw(&PathElement::new(points, colour.stroke_width(2))).map_err(plot_error)?;
        let limit = panel.limits.iter().find(|limit| limit.series == curve.series);
        for &(x, y) in &curve.points {
            let bound = limit.and_then(|limit| limit.points.iter().find(|p| p.0 == x)).map_or(f64::INFINITY, |p| p.1);
            // NaN is above every limit.
            let above = y > bound || y.is_nan();
            mark(root, curve.style, place((x, y)), if above { FAILED } else { colour }, y == 0.0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legend() -> Legend {
        Legend {
            title: "errors".into(),
            series: vec!["oracle".into(), "device".into()],
            styles: vec!["slow".into(), "square".into(), "unused".into()],
            ticks: vec![1.0, 8.0, 64.0],
            x: "segments".into(),
        }
    }

    fn panel(title: &str, curves: &[(usize, usize, [f64; 3])]) -> CurvePanel {
        let points = |ys: [f64; 3]| [1.0, 8.0, 64.0].into_iter().zip(ys).collect();
        CurvePanel {
            title: title.into(),
            note: "exact <&>".into(),
            curves: curves.iter().map(|&(series, style, ys)| Curve { series, style, points: points(ys) }).collect(),
            limits: vec![Curve { series: 0, style: 0, points: points([2e-14; 3]) }],
        }
    }

    fn hex(colour: RGBColor) -> String {
        format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
    }

    #[test]
    fn each_panel_has_its_lines_its_points_and_a_dashed_tolerance() {
        let fine = [(0, 0, [1e-16, 1e-15, 1e-15]), (1, 1, [1e-7, 0.0, 1e-6])];
        let panels: Vec<CurvePanel> = (0..5).map(|i| panel(&format!("family{i}"), &fine)).collect();
        let text = curves(&legend(), &panels).unwrap();
        assert!((0..5).all(|i| text.contains(&format!("\nfamily{i}\n"))) && !text.contains("<&>"));
        // Three marks a line and panel, one in the legend; a style without a line is not in it.
        assert_eq!(text.matches("<circle").count(), 5 * 3 + 1);
        assert!(text.contains("\nslow\n") && !text.contains("\nunused\n"));
        let strokes = |colour| text.matches(&format!("stroke=\"{}\"", hex(colour))).count();
        // A line a panel, many dashes, the sample in the legend; the other one has no limit but a hollow mark a panel.
        assert!(strokes(COLOURS[0]) > 5 * 20, "{}", strokes(COLOURS[0]));
        assert!(!text.contains(&hex(FAILED)));
        assert!(text.starts_with(&format!("<svg width=\"{}\"", 4 * WIDTH)), "a grid of two lines");
    }

    #[test]
    fn what_is_above_its_tolerance_stands_out() {
        let text = curves(&legend(), &[panel("p", &[(0, 0, [1e-15, 3e-14, f64::MAX])])]).unwrap();
        assert_eq!(text.matches(&format!("fill=\"{}\"", hex(FAILED))).count(), 2);
        assert_eq!(decades(&[panel("p", &[(0, 0, [1e-15, 3e-14, f64::MAX])])]).1, -13.0);
    }

    #[test]
    fn degenerate_data_still_gives_a_plot() {
        let nan = panel("nan", &[(0, 0, [f64::NAN; 3])]);
        for panels in [vec![], vec![panel("none", &[])], vec![nan]] {
            assert!(curves(&legend(), &panels).unwrap().ends_with("</svg>\n"));
        }
        assert_eq!(decades(&[]), (-1.0, 0.0));
    }
}
