//! The oracles of families, and a device beside them, through every law.

use std::sync::Arc;

use anyhow::Result;
use seam_algebra::families::by_name;
use seam_algebra::laws::{Law, OracleSubject, Row, Subject, table};
use seam_conformance::laws::subjects;
use seam_device::Device;
use serde::Serialize;

use super::summary::{Summary, text};
use super::{Args, plot, write_svg};
use crate::commands::{DeviceInfo, Verdict};
use crate::report::Progress;

/// All that is reported.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The device beside the oracles.
    pub(super) device: Option<DeviceInfo>,
    pub(super) seed: u64,
    pub(super) cases: u32,
    pub(super) max_len: u32,
    pub(super) passed: bool,
    /// A summary a family and subject.
    pub(super) families: Vec<Summary>,
    /// A row a family, subject and law.
    pub(super) rows: Vec<Tested>,
}

/// A row, and its failure as a test to paste.
#[derive(Debug, Serialize)]
pub(super) struct Tested {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) test: Option<String>,
}

/// Runs the families of these names.
pub(super) fn run(args: &Args, names: &[&'static str]) -> Result<Verdict> {
    let device = args.device.given.then(|| args.device.args.open()).transpose()?;
    let document = measure(args, names, device.as_ref());
    if let Some(path) = &args.svg {
        write_svg(path, &plot::of_families(&document)?)?;
    }
    args.output.emit(&document, || text(&document, args.verbose))?;
    Ok(document.passed.into())
}

fn measure(args: &Args, names: &[&'static str], device: Option<&Arc<dyn Device>>) -> Document {
    let families: Vec<_> = names.iter().filter_map(|name| by_name(name)).collect();
    let kind = device.map(|device| device.caps().kind.to_string()).unwrap_or_default();
    let progress = Progress::bar(families.iter().map(|f| laws_of(*f) * args.cases as usize).sum(), "laws");
    let (mut rows, mut summaries) = (Vec::new(), Vec::new());
    for family in families {
        let mut on_device = device.map(|device| subjects(device, family)).unwrap_or_default();
        let mut hold = |subject: &mut dyn Subject, steps: bool| {
            let name = subject.name();
            let own = table(&mut [subject], &args.options(), &mut |law, _| {
                if steps {
                    progress.step();
                }
                progress.say(&format!("{name}, {law}"));
            });
            summaries.push(Summary::of(family, name, &own));
            rows.extend(own);
        };
        hold(&mut OracleSubject::new(family), true);
        for subject in &mut on_device {
            // A device may do fewer cases than were asked for: the bar counts the oracles' only.
            hold(&mut **subject, false);
        }
        if device.is_some() && on_device.is_empty() {
            summaries.push(Summary::without_kernel(family.name(), kind.clone(), &kind));
        }
    }
    drop(progress);
    let passed = !rows.is_empty() && rows.iter().all(|row| row.report.passed);
    let rows = rows.into_iter().map(|row| Tested { test: row.report.test(), row }).collect();
    Document {
        device: device.map(|device| DeviceInfo::of(&**device)),
        seed: args.seed,
        cases: args.cases,
        max_len: args.max_len,
        passed,
        families: summaries,
        rows,
    }
}

/// Laws that say something about a family.
fn laws_of(family: &dyn seam_algebra::Family) -> usize {
    Law::ALL.into_iter().filter(|law| law.silent_on(family).is_none()).count()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::device::cpu;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(more: &[&str]) -> Args {
        let line = ["laws", "--cases", "2", "--max-len", "7"].iter().chain(more);
        Line::try_parse_from(line).expect("a good line").args
    }

    #[test]
    fn a_device_is_used_beside_families_only_when_named() {
        assert!(!args(&["--family", "kda"]).device.given);
        assert!(args(&["--family", "kda", "--device", "cpu"]).device.given);
        assert!(args(&["--device", "auto"]).device.given);
        let error = Line::try_parse_from(["laws", "--family", "kda,lstm"]).expect_err("no such family");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("unknown family \"lstm\": expected all, list, or some of linear_attention"));
    }

    #[test]
    fn the_document_has_a_row_a_law_and_a_summary_a_family() {
        let names = ["gla", "gated_delta_rule"];
        let document = measure(&args(&[]), &names, None);
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!((&json["passed"], &json["device"], &json["max_len"]), (&true.into(), &().into(), &7.into()));
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * Law::ALL.len());
        assert_eq!((&rows[0]["family"], &rows[0]["report"]["law"]), (&"gla".into(), &"oracle".into()));
        assert!(rows[0]["test"].is_null() && rows[0]["verdict"]["exact"].is_object());
        let families = json["families"].as_array().unwrap();
        assert_eq!(families.len(), 2);
        assert_eq!(families[0]["says"], "exact");
        assert_eq!(families[1]["says"], "exact with conv warm-up of 3 tokens");
        assert_eq!(families[1]["verdict"]["exact"]["warm_up"], 3);
        assert!(families[0]["worst"]["case"].as_str().is_some_and(|case| case.starts_with("Case {")));
    }

    #[test]
    fn a_device_stands_beside_the_oracle_or_says_that_it_has_no_kernel() {
        let document = measure(&args(&[]), &["gated_delta_rule", "kda"], Some(&cpu()));
        let says: Vec<_> = document.families.iter().map(|s| (s.family.as_str(), s.laws, s.says.as_str())).collect();
        let cpu = &document.families[1].subject;
        assert!(cpu.starts_with("cpu"), "{cpu}");
        let exact = "exact with conv warm-up of 3 tokens";
        let none = "no kernel for this family on cpu yet";
        assert_eq!(
            says,
            [("gated_delta_rule", 13, exact), ("gated_delta_rule", 13, exact), ("kda", 13, exact), ("kda", 0, none)]
        );
        assert!(document.passed && document.families[3].passed.is_none());
        assert!(text(&document, false).contains(none));
    }
}
