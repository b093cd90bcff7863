//! `seam check`: results against goldens of reference implementations.

use std::path::PathBuf;

use anyhow::{Context, Result};
use seam_conformance::{Report, check_path};
use seam_engine::EngineOptions;
use serde::Serialize;

use super::{DeviceInfo, Verdict};
use crate::device::DeviceArgs;
use crate::report::{Column, OutputArgs, Progress, Table, count, heading, ratio, verdict};

/// Compare a device's results with the goldens of reference implementations
///
/// PATH is a model folder with golden.safetensors, a file of kernel goldens, or a folder of such files. Exits with 1 if
/// a tensor is out of its bound.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Model folders, golden files, or folders of golden files.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Document {
    device: DeviceInfo,
    passed: bool,
    fixtures: Vec<Fixture>,
}

/// One fixture: its report, and whether it passed or had nothing to compare.
#[derive(Debug, Serialize)]
struct Fixture {
    status: Status,
    #[serde(flatten)]
    report: Report,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Passed,
    Failed,
    Skipped,
}

impl Status {
    /// A fixture of which everything was skipped, with reasons, has neither passed nor failed.
    fn of(report: &Report) -> Self {
        match report {
            r if r.passed() => Self::Passed,
            r if r.checks.is_empty() && !r.skipped.is_empty() => Self::Skipped,
            _ => Self::Failed,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let device = args.device.open_exact()?;
    let progress = Progress::bar(args.paths.len(), "checking");
    let mut fixtures = Vec::new();
    for path in &args.paths {
        progress.say(&path.display().to_string());
        let reports = check_path(&device, path, &EngineOptions::default())
            .with_context(|| format!("cannot check {}", path.display()))?;
        fixtures.extend(reports.into_iter().map(|report| Fixture { status: Status::of(&report), report }));
        progress.step();
    }
    drop(progress);
    // Something must have been compared.
    let passed =
        fixtures.iter().all(|f| f.status != Status::Failed) && fixtures.iter().any(|f| f.status == Status::Passed);
    let document = Document { device: DeviceInfo::of(&*device), passed, fixtures };
    args.output.emit(&document, || text(&document))?;
    Ok(passed.into())
}

fn text(document: &Document) -> String {
    let mut out = String::new();
    for Fixture { report, .. } in &document.fixtures {
        out += &format!("{}\n", heading(&format!("{} on {}", report.fixture, report.device)));
        if !report.checks.is_empty() {
            let mut table = Table::new(&[
                Column::Left("tensor"),
                Column::Right("values"),
                Column::Right("error"),
                Column::Right("bound"),
                Column::Left(""),
            ]);
            for c in &report.checks {
                let passed = if c.passed() { "ok" } else { "FAILED" };
                let cells = [c.name.clone(), count(c.elements as u64), ratio(Some(c.error)), ratio(Some(c.bound))];
                table.row(cells.into_iter().chain([passed.to_owned()]));
            }
            out += &table.render();
        }
        if !report.skipped.is_empty() {
            let mut table = Table::new(&[Column::Left("skipped"), Column::Left("why")]);
            for (what, why) in &report.skipped {
                table.row([what, why]);
            }
            out += &table.render();
        }
        out.push('\n');
    }
    for fixture in &document.fixtures {
        out += &summary(fixture);
        out.push('\n');
    }
    if !document.passed && document.fixtures.iter().all(|f| f.status == Status::Skipped) {
        out += &verdict(false, "nothing was compared");
        out.push('\n');
    }
    out
}

fn summary(Fixture { status, report }: &Fixture) -> String {
    let within = report.checks.iter().filter(|c| c.passed()).count();
    let mut line = match status {
        Status::Passed => format!("{}: passed, {within} tensors within bounds", report.fixture),
        Status::Failed => {
            format!("{}: FAILED, {within} of {} tensors within bounds", report.fixture, report.checks.len())
        }
        Status::Skipped => format!("{}: skipped, nothing to compare on this device", report.fixture),
    };
    if !report.skipped.is_empty() && *status != Status::Skipped {
        line += &format!(", {} skipped", report.skipped.len());
    }
    match status {
        Status::Skipped => line,
        _ => verdict(*status == Status::Passed, &line),
    }
}

#[cfg(test)]
mod tests {
    use seam_conformance::Check;

    use super::*;

    fn report(checks: Vec<Check>, skipped: &[&str]) -> Report {
        let skipped = skipped.iter().map(|s| ((*s).to_owned(), "no kernel".to_owned())).collect();
        Report { fixture: "f".into(), device: "cpu".into(), checks, skipped }
    }

    fn check(error: f64) -> Check {
        Check { name: "t".into(), elements: 1000, error, bound: 1e-4, at: 7 }
    }

    #[test]
    fn a_miss_fails_and_skipping_everything_does_not_pass() {
        assert_eq!(Status::of(&report(vec![check(1e-5)], &["x"])), Status::Passed);
        assert_eq!(Status::of(&report(vec![check(1e-5), check(f64::INFINITY)], &[])), Status::Failed);
        assert_eq!(Status::of(&report(vec![], &["x"])), Status::Skipped);
        assert_eq!(Status::of(&report(vec![], &[])), Status::Failed);
    }

    #[test]
    fn the_report_shows_error_bound_and_reason() {
        let fixture = |report: Report| Fixture { status: Status::of(&report), report };
        let device = DeviceInfo { kind: "cpu".into(), name: "n".into(), driver: "d".into() };
        let fixtures = vec![fixture(report(vec![check(1e-5), check(2e-3)], &["kda.state"]))];
        let document = Document { device, passed: false, fixtures };
        let text = text(&document);
        let row = text.lines().find(|l| l.ends_with("FAILED")).expect("the failing row");
        assert!(row.contains("1,000") && row.contains("2.0e-3") && row.contains("1.0e-4"), "{text}");
        assert!(text.contains("kda.state") && text.contains("no kernel"));
        assert!(text.contains("f: FAILED, 1 of 2 tensors within bounds, 1 skipped"), "{text}");
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["fixtures"][0]["status"], "failed");
        assert_eq!(json["fixtures"][0]["checks"][1]["error"], 2e-3);
    }
}
