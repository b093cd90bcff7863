//! `seam laws`: the laws of the state algebra, held against a device or against the oracles of families.

mod choice;
mod families;
mod named;
mod plot;
mod summary;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use seam_algebra::laws::{LawReport, Options};
use serde::Serialize;

use self::choice::Choice;
use self::named::Named;
use super::{DeviceInfo, Verdict};
use crate::report::{Column, OutputArgs, Progress, Table, count, heading, note, ratio, verdict};

/// Hold a device, or families of recurrences, against the laws of the state algebra, on generated cases
///
/// Each law is tried on many cases against a sequential float64 oracle. A failing case is shrunk and printed as a test to
/// paste. Exits with 1 if a law fails.
///
/// Without --family the gated delta rule is run on the device. With it the float64 oracles of the families are held
/// against the laws, and beside them the device where --device names one and has a kernel.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Families, comma separated; `all` for all of them, `list` to print what there is.
    #[arg(long, value_name = "NAMES")]
    family: Option<Choice>,
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
    /// Print every law of every family, also where that is long.
    #[arg(long)]
    verbose: bool,
    /// Also draw the worst error of each law against its tolerance.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    device: Named,
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
    match &args.family {
        None => on_device(args),
        Some(Choice::List) => {
            let list = choice::list();
            args.output.emit(&list, || choice::text(&list))?;
            Ok(Verdict::Passed)
        }
        Some(Choice::These(names)) => families::run(args, names),
    }
}

impl Args {
    fn options(&self) -> Options {
        Options { seed: self.seed, cases: self.cases as usize, max_len: self.max_len as usize }
    }
}

/// Writes an SVG file and says so.
fn write_svg(path: &Path, svg: &str) -> Result<()> {
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}

fn on_device(args: &Args) -> Result<Verdict> {
    let device = args.device.args.open()?;
    let progress = Progress::spinner("laws");
    let laws = seam_conformance::laws::run(&device, &args.options(), &mut |law, case| {
        progress.say(&format!("{law}, case {}", case + 1));
    });
    drop(progress);
    let passed = !laws.is_empty() && laws.iter().all(|law| law.passed);
    let document = Document { device: DeviceInfo::of(&*device), seed: args.seed, passed, laws };
    if let Some(path) = &args.svg {
        write_svg(path, &plot::of_device(&document.device.name, &document.laws)?)?;
    }
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
    document.laws.iter().for_each(|law| out += &failure(law));
    let held = document.laws.iter().filter(|l| l.passed).count();
    out += &verdict(document.passed, &format!("{held} of {} laws hold", document.laws.len()));
    out.push('\n');
    out
}

/// What to say of a law that failed: its smallest case as a test, or the reason where no case says it. Nothing otherwise.
fn failure(law: &LawReport) -> String {
    let Some(failure) = &law.failure else { return String::new() };
    let head = format!("{} fails on {}; ", law.law, law.subject);
    match law.test() {
        Some(test) => format!("{head}the smallest case found, as a test:\n{test}\n"),
        None => format!("{head}{failure}\n\n"),
    }
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
        let case = "check(Law::Chain, &mut subject, &Case { seed: 0x7, tokens: 1 }) // state: error 1 > 2e-5";
        let laws = vec![law("identity", None), law("chain", Some(case)), law("oracle", Some("no case was applicable"))];
        let document = Document { device, seed: 0, passed: false, laws };
        let text = text(&document);
        assert!(text.contains("fn chain_0x7() {") && text.contains("// cpu: state: error 1 > 2e-5"), "{text}");
        assert!(text.contains("oracle fails on cpu; no case was applicable"), "{text}");
        assert!(text.contains("1 of 3 laws hold") && text.contains("seed: 0x7, NoDecay, tokens: 3"));
        assert!(text.lines().any(|l| l.starts_with("chain") && l.contains("FAILED")));
        assert_eq!(serde_json::to_value(&document).unwrap()["laws"][1]["passed"], false);
    }
}
