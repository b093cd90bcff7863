//! Line plots as SVG.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// How values are laid out on the y axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic; values that are not above 0 are left out.
    Log,
}

/// A named line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) name: String,
    /// (x, y), x rising.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One of several plots beside each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    /// Its title.
    pub(crate) title: String,
    /// What x is.
    pub(crate) x: String,
    /// The y axis.
    pub(crate) scale: Scale,
    /// The lines.
    pub(crate) series: Vec<Series>,
}

/// Colours that remain distinct without red and green vision (Okabe and Ito, 2008).
pub(crate) const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// The font of all text.
pub(crate) const FONT: &str = "sans-serif";
const PANEL: (u32, u32) = (520, 380);

/// The panels beside each other as one SVG document.
///
/// # Errors
/// What the plotting library says.
pub(crate) fn svg(panels: &[Panel]) -> Result<String> {
    let mut out = String::new();
    {
        let size = (PANEL.0 * panels.len().max(1) as u32, PANEL.1);
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        root.fill(&WHITE).map_err(plot_error)?;
        for (panel, area) in panels.iter().zip(root.split_evenly((1, panels.len().max(1)))) {
            let points = || panel.series.iter().flat_map(|s| s.points.iter().copied());
            let shown = |y: f64| y.is_finite() && (panel.scale == Scale::Linear || y > 0.0);
            let xs = range(points().map(|p| p.0).filter(|x| x.is_finite()), 0.04);
            // On the right the legend stands.
            let xs = xs.map_or((0.0, 1.0), |(low, high)| (low, high + 0.4 * (high - low)));
            match panel.scale {
                Scale::Linear => {
                    let (low, high) = range(points().map(|p| p.1).filter(|&y| shown(y)), 0.1).unwrap_or((0.0, 1.0));
                    draw(&area, panel, xs, low..high, &shown)?;
                }
                Scale::Log => {
                    let logs = points().map(|p| p.1).filter(|&y| shown(y)).map(f64::log10);
                    let (low, high) = range(logs, 0.1).unwrap_or((-1.0, 0.0));
                    // Whole decades and a little more: their borders are what is labelled.
                    let (low, high) = (low.floor() - 0.02, high.ceil() + 0.02);
                    draw(&area, panel, xs, (10f64.powf(low)..10f64.powf(high)).log_scale(), &shown)?;
                }
            }
        }
        root.present().map_err(plot_error)?;
    }
    Ok(out)
}

/// An error of the plotting library.
pub(crate) fn plot_error<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("cannot draw the plot: {error}")
}

/// Smallest and largest value with a margin, never empty; `None` without values.
fn range(values: impl Iterator<Item = f64>, margin: f64) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return None;
    }
    let pad = if high > low { (high - low) * margin } else { 0.5 };
    Some((low - pad, high + pad))
}

fn draw<Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    panel: &Panel,
    xs: (f64, f64),
    ys: Y,
    shown: &dyn Fn(f64) -> bool,
) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(xs.0..xs.1, ys)
        .map_err(plot_error)?;
    let label = |y: &f64| if panel.scale == Scale::Log { format!("{y:.0e}") } else { format!("{y}") };
    chart
        .configure_mesh()
        .x_desc(&panel.x)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&label)
        .light_line_style(WHITE)
        .label_style((FONT, 12))
        .draw()
        .map_err(plot_error)?;
    for (i, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        // Earlier lines are thicker, so that they show below later ones that run over them.
        let later = panel.series.len().saturating_sub(i + 1).min(3) as u32;
        let (width, radius) = (2 + 2 * later, 4 + later);
        let points: Vec<(f64, f64)> = series.points.iter().copied().filter(|p| shown(p.1)).collect();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(width)))
            .map_err(plot_error)?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width)));
        chart.draw_series(points.iter().map(|&p| Circle::new(p, radius, colour.filled()))).map_err(plot_error)?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 12))
        .draw()
        .map_err(plot_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(scale: Scale, series: &[(&str, &[(f64, f64)])]) -> Panel {
        let series = series.iter().map(|(n, p)| Series { name: (*n).into(), points: p.to_vec() }).collect();
        Panel { title: "KL <&>".into(), x: "seam width".into(), scale, series }
    }

    /// Whether every element is closed, in order.
    fn balanced(svg: &str) -> bool {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let Some((tag, _)) = tag.split_once('>') else { return false };
            let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default().to_owned();
            if tag.starts_with('/') {
                if open.pop() != Some(name) {
                    return false;
                }
            } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
                open.push(name);
            }
        }
        open.is_empty()
    }

    #[test]
    fn each_series_is_a_line_with_its_points_and_its_name() {
        let data: &[(&str, &[(f64, f64)])] = &[
            ("transition", &[(0.0, 1e-3), (8.0, 5e-4), (32.0, 2e-4)]),
            ("addition", &[(0.0, 1e-1), (8.0, 5e-2), (32.0, 0.0)]),
        ];
        let text = svg(&[panel(Scale::Log, data), panel(Scale::Linear, data)]).unwrap();
        assert!(text.starts_with("<svg") && balanced(&text), "{text}");
        assert!(!text.contains("KL <&>"), "titles are escaped");
        // 3 + 2 points (0 has no logarithm) and 3 + 3.
        assert_eq!(text.matches("<circle").count(), 11);
        for name in ["transition", "addition"] {
            assert_eq!(text.matches(name).count(), 2, "a legend in each panel");
        }
        let lines = |colour: RGBColor| {
            let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
            text.split("<polyline").skip(1).filter(|t| t.split('>').next().is_some_and(|t| t.contains(&hex))).count()
        };
        // The line and its sample in the legend, in two panels.
        assert_eq!(COLOURS.map(lines), [4, 4, 0, 0]);
    }

    #[test]
    fn degenerate_data_still_gives_a_plot() {
        for data in [&[][..], &[("one", &[(8.0, 0.5)][..])], &[("none", &[][..])], &[("bad", &[(0.0, f64::NAN)][..])]] {
            for scale in [Scale::Log, Scale::Linear] {
                assert!(balanced(&svg(&[panel(scale, data)]).unwrap()));
            }
        }
        assert!(balanced(&svg(&[]).unwrap()));
    }
}
