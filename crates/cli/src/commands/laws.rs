//! `seam laws`: the laws of the state algebra, held against a device.

use anyhow::Result;
use seam_algebra::laws::{LawReport, Options};
use serde::Serialize;

use super::{DeviceInfo, Verdict};
use crate::device::DeviceArgs;
use crate::report::{Column, OutputArgs, Progress, Table, count, heading, ratio, verdict};

/// Hold a device against the laws of the state algebra, on generated cases
///
/// Each law is tried on many cases against a sequential float64 oracle. A failing case is shrunk and printed. Exits with
/// 1 if a law fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Cases of each law.
    #[arg(long, value_name = "N", default_value_t = Options::default().cases as u32,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    cases: u32,
    /// Seed of the cases: the same seed gives the same cases.
    #[arg(long, value_name = "S", default_value_t = Options::default().seed)]
    seed: u64,
    /// Most tokens of a case.
    #[arg(long, value_name = "N", default_value_t = Options::default().max_len as u32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_len: u32,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Document {
    device: DeviceInfo,
    seed: u64,
    passed: bool,
    laws: Vec<LawReport>,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let device = args.device.open()?;
    let options = Options { seed: args.seed, cases: args.cases as usize, max_len: args.max_len as usize };
    let progress = Progress::spinner("laws");
    let laws = seam_conformance::laws::run(&device, &options, &mut |law, case| {
        progress.say(&format!("{law}, case {}", case + 1));
    });
    drop(progress);
    let passed = !laws.is_empty() && laws.iter().all(|law| law.passed);
    let document = Document { device: DeviceInfo::of(&*device), seed: args.seed, passed, laws };
    args.output.emit(&document, || text(&document))?;
    Ok(passed.into())
}

fn text(document: &Document) -> String {
    let mut table = Table::new(&[
        Column::Left("law"),
        Column::Right("cases"),
        Column::Right("skipped"),
        Column::Right("worst error"),
        Column::Right("tolerance"),
        Column::Left(""),
        Column::Left("worst case"),
    ]);
    for law in &document.laws {
        table.row([
            law.law.clone(),
            count(law.cases as u64),
            count(law.skipped as u64),
            ratio(Some(law.worst_error)),
            ratio(Some(law.tolerance)),
            if law.passed { "holds" } else { "FAILED" }.to_owned(),
            law.worst_seed.as_deref().map_or_else(|| "-".to_owned(), brief),
        ]);
    }
    let title = format!("Laws on {}, seed {}", document.device.name, document.seed);
    let mut out = format!("{}\n{}\n", heading(&title), table.render());
    for (law, failure) in document.laws.iter().filter_map(|l| Some((l, l.failure.as_ref()?))) {
        out += &format!("{} fails on {}; the smallest case found:\n  {failure}\n", law.law, law.subject);
    }
    let held = document.laws.iter().filter(|l| l.passed).count();
    out += &verdict(document.passed, &format!("{held} of {} laws hold", document.laws.len()));
    out.push('\n');
    out
}

/// A case without the words that are the same in all of them; the JSON has it as an expression to paste.
fn brief(case: &str) -> String {
    let inner = case.strip_prefix("Case { ").and_then(|c| c.strip_suffix(" }")).unwrap_or(case);
    inner.replace("kind: Kind::", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_law_shows_its_shrunk_case() {
        let law = |law: &str, failure: Option<&str>| LawReport {
            law: law.into(),
            subject: "cpu".into(),
            cases: 64,
            skipped: 2,
            worst_error: 3e-6,
            tolerance: 2e-5,
            worst_seed: Some("Case { seed: 0x7, kind: Kind::NoDecay, tokens: 3 }".into()),
            passed: failure.is_none(),
            failure: failure.map(Into::into),
        };
        let device = DeviceInfo { kind: "cpu".into(), name: "n".into(), driver: "d".into() };
        let laws = vec![law("identity", None), law("chain", Some("check(Law::Chain, …) // state: 1 > 2e-5"))];
        let document = Document { device, seed: 0, passed: false, laws };
        let text = text(&document);
        assert!(text.contains("check(Law::Chain, …) // state: 1 > 2e-5"), "{text}");
        assert!(text.contains("1 of 2 laws hold") && text.contains("seed: 0x7, NoDecay, tokens: 3"));
        assert!(text.lines().any(|l| l.starts_with("chain") && l.contains("FAILED")));
        assert_eq!(serde_json::to_value(&document).unwrap()["laws"][1]["passed"], false);
    }
}
