//! The roofline as a picture: operations a second over operations a byte, both logarithmic.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use seam_benches::kernels::{Achieved, KernelReport};

use crate::report::{COLOURS, FONT, plot_error};

/// The plot, and the list of names beside it.
const PLOT: u32 = 900;
const COLUMN: u32 = 420;
const LINE: u32 = 14;
const LEAST_HEIGHT: u32 = 640;
const TOP: i32 = 40;

/// The picture. Each kernel is a point with its number in the list; those without operations have no place in it.
pub(super) fn roofline(report: &KernelReport) -> Result<String> {
    let points: Vec<(&str, &Achieved)> =
        report.kernels.iter().filter_map(|row| Some((row.name.as_str(), row.achieved.as_ref()?))).collect();
    let (drawn, plain): (Vec<_>, Vec<_>) = points.into_iter().partition(|(_, a)| a.tflop_per_s > 0.0);
    let lines = drawn.len() as u32 + 2;
    let columns = (lines * LINE).div_ceil(2 * LEAST_HEIGHT).max(1);
    let height = (lines.div_ceil(columns) * LINE + 2 * TOP as u32).max(LEAST_HEIGHT);
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, (PLOT + columns * COLUMN, height)).into_drawing_area();
        root.fill(&WHITE).map_err(plot_error)?;
        let (left, right) = root.split_horizontally(PLOT);
        chart(report, &drawn, &left)?;
        names(&drawn, plain.len(), columns, &right)?;
        root.present().map_err(plot_error)?;
    }
    Ok(out)
}

/// Whole decades around some positive values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs = values.filter(|v| *v > 0.0 && v.is_finite()).map(f64::log10);
    let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high { (0.1, 10.0) } else { (10f64.powf((low - 0.05).floor()), 10f64.powf((high + 0.05).ceil())) }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn chart(report: &KernelReport, points: &[(&str, &Achieved)], area: &Area<'_>) -> Result<()> {
    let (bandwidth, peak) = (report.roofline.bytes_per_s / 1e12, report.roofline.flops_per_s / 1e12);
    let ridge = report.roofline.ridge();
    let (x0, x1) = decades(points.iter().map(|(_, a)| a.intensity).chain([ridge]));
    let (y0, y1) = decades(points.iter().map(|(_, a)| a.tflop_per_s).chain([peak]));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("Roofline of {}, products in {}", report.device, report.precision), (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((x0..x1).log_scale(), (y0..y1).log_scale())
        .map_err(plot_error)?;
    chart
        .configure_mesh()
        .x_desc("operations a byte")
        .y_desc("TFLOP/s")
        .x_label_formatter(&|x| format!("{x:.0e}"))
        .y_label_formatter(&|y| format!("{y:.0e}"))
        .light_line_style(WHITE)
        .label_style((FONT, 12))
        .draw()
        .map_err(plot_error)?;
    let lines = [
        (COLOURS[0], format!("copy: {:.0} GB/s", bandwidth * 1e3), [(x0, x0 * bandwidth), (x1, x1 * bandwidth)]),
        (COLOURS[1], format!("product: {peak:.3} TFLOP/s"), [(x0, peak), (x1, peak)]),
    ];
    for (colour, name, ends) in lines {
        // Clipped by hand: a line may leave through the lower border.
        let inside = clipped(ends, (y0, y1), bandwidth);
        chart
            .draw_series(LineSeries::new(inside, colour.stroke_width(2)))
            .map_err(plot_error)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let label = (FONT, 11).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    chart
        .draw_series(points.iter().enumerate().map(|(i, (_, a))| {
            EmptyElement::at((a.intensity, a.tflop_per_s))
                + Circle::new((0, 0), 3, COLOURS[2].filled())
                + Text::new((i + 1).to_string(), (5, 0), label.clone())
        }))
        .map_err(plot_error)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 12))
        .draw()
        .map_err(plot_error)
}

/// The part of a line of slope `slope` through the origin, or of a level one, between two levels.
fn clipped([a, b]: [(f64, f64); 2], (low, high): (f64, f64), slope: f64) -> [(f64, f64); 2] {
    if a.1 == b.1 || slope <= 0.0 {
        return [a, b];
    }
    let at = |p: (f64, f64)| {
        let y = p.1.clamp(low, high);
        (y / slope, y)
    };
    [at(a), at(b)]
}

fn names(points: &[(&str, &Achieved)], plain: usize, columns: u32, area: &Area<'_>) -> Result<()> {
    let style = (FONT, 11).into_font().color(&BLACK);
    let title = "number, kernel, time over the roofline's";
    area.draw(&Text::new(title, (8, TOP - 20), style.clone())).map_err(plot_error)?;
    let each = points.len().div_ceil(columns as usize).max(1);
    for (i, (name, achieved)) in points.iter().enumerate() {
        let (column, line) = ((i / each) as i32, (i % each) as i32);
        let at = (8 + column * COLUMN as i32, TOP + line * LINE as i32);
        let text = format!("{} {name}  {:.1}x", i + 1, achieved.ratio);
        area.draw(&Text::new(text, at, style.clone())).map_err(plot_error)?;
    }
    if plain > 0 {
        let text = format!("{plain} cases only move bytes and have no place here");
        let at = (8, TOP + each as i32 * LINE as i32);
        area.draw(&Text::new(text, at, style)).map_err(plot_error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_hold_their_values() {
        assert_eq!(decades([0.5, 200.0].into_iter()), (0.1, 1000.0));
        assert_eq!(decades([f64::NAN, 0.0].into_iter()), (0.1, 10.0));
    }

    #[test]
    fn a_roof_stays_inside() {
        let slope = 2.0;
        let [a, b] = clipped([(0.01, 0.02), (100.0, 200.0)], (0.1, 10.0), slope);
        assert_eq!((a, b), ((0.05, 0.1), (5.0, 10.0)));
        assert_eq!(clipped([(1.0, 3.0), (9.0, 3.0)], (0.1, 10.0), slope), [(1.0, 3.0), (9.0, 3.0)]);
    }
}
