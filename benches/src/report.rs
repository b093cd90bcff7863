//! What a run of the registry says: a table for people, JSON for programs.

use std::sync::Arc;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use seam_device::{Device, DeviceKind};
use serde::Serialize;

use crate::error::BenchError;
use crate::measure::{Plan, Timing, measure};
use crate::registry::{BANDWIDTH, BENCHES, Bench, COMPUTE, Scale};

/// What the device did at most in this run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceilings {
    /// GB/s of the copy.
    pub gb_per_s: f64,
    /// GFLOP/s of the product.
    pub gflop_per_s: f64,
}

/// What a ceiling is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory bandwidth.
    Copy,
    /// Arithmetic.
    Gemm,
}

/// How near a bench came to the ceiling that bounds it. More than 100 % means that its data stayed in a cache, which the
/// copy's does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The ceiling that is reached first.
    pub bound: Bound,
    /// The time at the ceilings over the time measured, in percent.
    pub percent: f64,
}

/// One bench.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its sizes.
    pub shape: String,
    /// Its times; `None` where the result was wrong.
    pub timing: Option<Timing>,
    /// Least bytes moved, over the kernel time.
    pub gb_per_s: Option<f64>,
    /// Operations, over the kernel time.
    pub gflop_per_s: Option<f64>,
    /// Tokens, over the host time.
    pub tokens_per_s: Option<f64>,
    /// How near it came to the ceilings.
    pub share: Option<Share>,
    /// Whether the result was right.
    pub verified: bool,
    /// The check that came nearest to its bound: its name, the error, and the bound.
    pub worst: Option<(String, f64, f64)>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Its name.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// The scale of all cases.
    pub scale: Scale,
    /// The ceilings of this run.
    pub ceilings: Ceilings,
    /// Each bench.
    pub rows: Vec<Row>,
}

/// Verifies and times benches; those that give the ceilings are run first in any case. `progress` hears the name of each
/// before it runs.
///
/// # Errors
/// What preparing, running or a reference says. A wrong result is in the report, and is not timed.
pub fn run(
    device: &Arc<dyn Device>,
    benches: &[&Bench],
    scale: Scale,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let mut one = |bench: &Bench| {
        progress(bench.name);
        timed(bench, device, scale, plan)
    };
    let named = |name: &'static str| BENCHES.iter().find(|b| b.name == name).ok_or(BenchError::Unknown(name));
    let first = [one(named(BANDWIDTH)?)?, one(named(COMPUTE)?)?];
    let ceilings = Ceilings {
        gb_per_s: first[0].gb_per_s.unwrap_or_default(),
        gflop_per_s: first[1].gflop_per_s.unwrap_or_default(),
    };
    let mut rows = Vec::new();
    for bench in benches {
        let mut row = match first.iter().find(|row| row.name == bench.name) {
            Some(row) => row.clone(),
            None => one(bench)?,
        };
        row.share = share(row.gb_per_s, row.gflop_per_s, &ceilings);
        rows.push(row);
    }
    let caps = device.caps();
    let (name, driver) = (caps.name.clone(), caps.driver.clone());
    Ok(Report { kind: caps.kind, device: name, driver, scale, ceilings, rows })
}

fn timed(bench: &Bench, device: &Arc<dyn Device>, scale: Scale, plan: &Plan) -> Result<Row, BenchError> {
    let mut case = bench.prepare(device, scale)?;
    let verdict = case.verify()?;
    let verified = verdict.passed();
    let timing = if verified { Some(measure(&mut case, plan)?) } else { None };
    let cost = case.cost();
    let per = |amount: Option<u64>, seconds: Option<f64>| Some(amount? as f64 / seconds.filter(|s| *s > 0.0)?);
    let (kernel, host) = (timing.map(|t| t.kernel_time()), timing.map(|t| t.host.median));
    Ok(Row {
        name: bench.name,
        shape: bench.shape(scale),
        timing,
        gb_per_s: per(cost.bytes, kernel).map(|rate| rate / 1e9),
        gflop_per_s: per(cost.flops, kernel).map(|rate| rate / 1e9),
        tokens_per_s: per(cost.tokens, host),
        share: None,
        verified,
        worst: verdict.worst().map(|check| (check.name.clone(), check.error, check.bound)),
    })
}

/// The roofline: at the ceilings a run would take the longer of its two times.
fn share(gb_per_s: Option<f64>, gflop_per_s: Option<f64>, ceilings: &Ceilings) -> Option<Share> {
    let of = |rate: Option<f64>, ceiling: f64| rate.filter(|_| ceiling > 0.0).map_or(0.0, |r| 100.0 * r / ceiling);
    let (copy, gemm) = (of(gb_per_s, ceilings.gb_per_s), of(gflop_per_s, ceilings.gflop_per_s));
    let (bound, percent) = if copy >= gemm { (Bound::Copy, copy) } else { (Bound::Gemm, gemm) };
    (percent > 0.0).then_some(Share { bound, percent })
}

impl Report {
    /// Whether every result was right.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.verified)
    }

    /// A table with the device, its driver and the ceilings above it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let titles = [
            "bench",
            "shape",
            "host",
            "device",
            "quartiles",
            "GB/s",
            "GFLOP/s",
            "tokens/s",
            "of ceiling",
            "worst error",
        ];
        table.set_header(titles);
        for row in &self.rows {
            table.add_row(cells(row));
        }
        for (i, column) in table.column_iter_mut().enumerate() {
            let side = if i < 2 { CellAlignment::Left } else { CellAlignment::Right };
            column.set_cell_alignment(side);
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        format!(
            "{}: {} ({})\nceilings: copy {} GB/s, gemm {} GFLOP/s\n{}",
            self.kind,
            self.device,
            self.driver,
            number(self.ceilings.gb_per_s),
            number(self.ceilings.gflop_per_s),
            lines.join("\n")
        )
    }

    /// The report as JSON, times in seconds.
    ///
    /// # Errors
    /// None in practice: every key is a string.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

fn cells(row: &Row) -> [String; 10] {
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, number);
    let (host, device, quartiles) = match row.timing {
        None => ("WRONG".to_owned(), String::new(), String::new()),
        Some(t) => {
            let spread = t.device.unwrap_or(t.host);
            let device = t.device.map_or_else(String::new, |d| time(d.median));
            (time(t.host.median), device, format!("{}..{}", time(spread.lower), time(spread.upper)))
        }
    };
    let share = row.share.map_or_else(String::new, |s| match s.bound {
        Bound::Copy => format!("{:.0} % copy", s.percent),
        Bound::Gemm => format!("{:.0} % gemm", s.percent),
    });
    let worst = row.worst.as_ref().map_or_else(String::new, |(_, error, bound)| format!("{error:.1e} <= {bound:.1e}"));
    [
        row.name.to_owned(),
        row.shape.clone(),
        host,
        device,
        quartiles,
        rate(row.gb_per_s),
        rate(row.gflop_per_s),
        rate(row.tokens_per_s),
        share,
        if row.verified { worst } else { worst.replace("<=", ">") },
    ]
}

/// Three significant digits.
fn number(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{} s", number(s)),
        s if s >= 1e-3 => format!("{} ms", number(s * 1e3)),
        s => format!("{} us", number(s * 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILINGS: Ceilings = Ceilings { gb_per_s: 100.0, gflop_per_s: 1000.0 };

    #[test]
    fn the_nearer_ceiling_bounds() {
        let of = |gb, gflop| share(gb, gflop, &CEILINGS);
        assert_eq!(of(Some(50.0), Some(100.0)), Some(Share { bound: Bound::Copy, percent: 50.0 }));
        assert_eq!(of(Some(5.0), Some(100.0)), Some(Share { bound: Bound::Gemm, percent: 10.0 }));
        assert_eq!(of(None, None), None);
        assert_eq!(share(Some(5.0), None, &Ceilings { gb_per_s: 0.0, gflop_per_s: 0.0 }), None);
    }

    #[test]
    fn a_wrong_result_shows_and_has_no_time() {
        let row = Row {
            name: "norm",
            shape: "1 row".into(),
            timing: None,
            gb_per_s: None,
            gflop_per_s: None,
            tokens_per_s: None,
            share: None,
            verified: false,
            worst: Some(("x".into(), 1.0, 1e-6)),
        };
        let report = Report {
            kind: DeviceKind::Cpu,
            device: "cpu".into(),
            driver: "none".into(),
            scale: Scale::Small,
            ceilings: CEILINGS,
            rows: vec![row],
        };
        assert!(!report.passed());
        let table = report.table();
        assert!(table.contains("WRONG") && table.contains("1.0e0 > 1.0e-6"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&report.json().expect("json")).expect("it is JSON");
        assert_eq!(json["rows"][0]["verified"], false);
        assert_eq!((json["kind"].as_str(), json["scale"].as_str()), (Some("cpu"), Some("small")));
    }

    #[test]
    fn times_have_units() {
        assert_eq!([2.0, 0.25, 1.5e-3, 42e-6].map(time), ["2.00 s", "250 ms", "1.50 ms", "42.0 us"]);
    }
}
