//! The report as a table.

use seam_benches::kernels::{KernelReport, KernelRow, Status};

use crate::report::{Column, Table, heading};

/// Names and sizes.
pub(super) fn list(names: &[(String, String)]) -> String {
    let mut table = Table::new(&[Column::Left("kernel"), Column::Left("shape")]);
    names.iter().for_each(|(name, shape)| table.row([name, shape]));
    table.render()
}

/// The whole report.
pub(super) fn text(report: &KernelReport) -> String {
    let mut table = Table::new(&[
        Column::Left("kernel"),
        Column::Left("shape"),
        Column::Right("time"),
        Column::Right("quartiles"),
        Column::Right("GB/s"),
        Column::Right("TFLOP/s"),
        Column::Right("flop/byte"),
        Column::Right("roofline"),
        Column::Right("ratio"),
        Column::Left("notes"),
    ]);
    report.kernels.iter().for_each(|row| table.row(cells(row)));
    let ceilings = format!(
        "{}: {} ({}), products in {}\ncopy     {:>9} GB/s     {} in {}\nproduct  {:>9} TFLOP/s  {} in {}\n",
        report.kind,
        report.device,
        report.driver,
        report.precision,
        number(report.roofline.bytes_per_s / 1e9),
        report.copy.shape,
        time(report.copy.seconds.median),
        number(report.roofline.flops_per_s / 1e12),
        report.product.shape,
        time(report.product.seconds.median),
    );
    let missing = if report.missing_kernels.is_empty() {
        String::new()
    } else {
        format!("kernels that the device has not: {}\n", report.missing_kernels.join(", "))
    };
    let count = |status: Status| report.kernels.iter().filter(|row| row.status == status).count();
    let [timed, missed, large, wrong, failed] =
        [Status::Timed, Status::Missing, Status::TooLarge, Status::Wrong, Status::Failed].map(count);
    format!(
        "{}\n{ceilings}{missing}\n{}\n{}\n{timed} timed, {missed} without a kernel, {large} too large, {wrong} wrong, {failed} failed\n{}",
        heading("Ceilings"),
        heading("Kernels"),
        table.render(),
        LEGEND
    )
}

const LEGEND: &str = "time: median of one run. roofline: the time of its bytes or its operations at the ceilings, \
whichever is longer. ratio: time over that.\nhost: timed by the host. cached: inputs fit a cache of 60 MB, so that the \
copy is no ceiling.\n";

fn cells(row: &KernelRow) -> [String; 10] {
    let mut cells: [String; 10] = Default::default();
    (cells[0], cells[1]) = (row.name.clone(), row.shape.clone());
    if let (Some(seconds), Some(achieved)) = (&row.seconds, &row.achieved) {
        cells[2] = time(seconds.median);
        cells[3] = format!("{}..{}", time(seconds.lower), time(seconds.upper));
        cells[4] = number(achieved.gb_per_s);
        cells[5] = number(achieved.tflop_per_s);
        cells[6] = number(achieved.intensity);
        cells[7] = time(achieved.roofline_seconds);
        cells[8] = number(achieved.ratio);
        let notes = [(!row.device_time, "host"), (row.cached, "cached")];
        cells[9] = notes.iter().filter(|(holds, _)| *holds).map(|(_, note)| *note).collect::<Vec<_>>().join(", ");
    } else {
        cells[2] = match row.status {
            Status::Missing => "no kernel",
            Status::TooLarge => "too large",
            Status::Wrong | Status::Failed | Status::Timed => "FAILED",
        }
        .to_owned();
        cells[9] = row.reason.clone();
    }
    cells
}

/// Three significant digits.
fn number(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x if x >= 0.1 || x == 0.0 => format!("{x:.2}"),
        x => format!("{x:.1e}"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{} ms", number(s * 1e3)),
        s => format!("{} us", number(s * 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_times_units() {
        assert_eq!([512.4, 51.24, 5.124, 0.0512, 0.0].map(number), ["512", "51.2", "5.12", "5.1e-2", "0.00"]);
        assert_eq!([2.0, 0.25, 1.5e-3, 42e-6].map(time), ["2.00 s", "250 ms", "1.50 ms", "42.0 us"]);
    }
}
