//! What the laws say of a family in one line, and the tables.

use seam_algebra::Family;
use seam_algebra::laws::{Law, LawReport, Row, SweepPoint, Verdict, family_verdict};
use serde::Serialize;

use super::form::label;
use super::measure::{Document, Swept};
use crate::report::{Column, Table, count, heading, ratio, verdict};

/// Rows of laws that are shown without being asked for: a family on three subjects.
const SHORT: usize = 3 * Law::ALL.len();

/// The error nearest to its tolerance.
#[derive(Debug, Serialize)]
pub(super) struct Worst {
    law: String,
    error: f64,
    tolerance: f64,
    /// Its case, as an expression to paste.
    case: Option<String>,
}

/// A family on a subject.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) family: String,
    pub(super) subject: String,
    /// Laws that say something about the family and were run.
    pub(super) laws: usize,
    held: usize,
    cases: usize,
    /// `None` where nothing was run.
    pub(super) passed: Option<bool>,
    verdict: Option<Verdict>,
    /// What a rotation of the keys to another position would do.
    rerotation: Option<Verdict>,
    /// The verdict in words, or why there is none.
    pub(super) says: String,
    pub(super) worst: Option<Worst>,
    /// The error of a chain of segments nearest to its tolerance.
    chain: Option<SweepPoint>,
}

/// The error as a share of its tolerance; an error against a tolerance of 0 is above all.
fn share(report: &LawReport) -> f64 {
    if report.worst_error > 0.0 { report.worst_error / report.tolerance } else { 0.0 }
}

impl Summary {
    /// Of a family's rows on one subject.
    pub(super) fn of(family: &dyn Family, subject: String, rows: &[Row], swept: &Swept) -> Self {
        let ran = || rows.iter().filter(|row| !matches!(row.verdict, Verdict::Silent { .. }));
        let verdict = if swept.passed { family_verdict(family, rows) } else { Verdict::Fails };
        let worst = ran().map(|row| &row.report).max_by(|a, b| share(a).total_cmp(&share(b)));
        Self {
            family: family.name().to_owned(),
            subject,
            laws: ran().count(),
            held: ran().filter(|row| row.report.passed).count(),
            cases: ran().map(|row| row.report.cases).sum(),
            passed: Some(verdict != Verdict::Fails),
            says: said(&verdict),
            verdict: Some(verdict),
            rerotation: ran().find(|row| row.report.law == Law::Rerotation.name()).map(|row| row.verdict.clone()),
            worst: worst.map(|report| Worst {
                law: report.law.clone(),
                error: report.worst_error,
                tolerance: report.tolerance,
                case: report.worst_seed.clone(),
            }),
            chain: swept.worst().copied(),
        }
    }

    /// Of a family that a kind of device has no kernel for.
    pub(super) fn without_kernel(family: &str, subject: String, why: String) -> Self {
        Self {
            family: family.to_owned(),
            says: why,
            subject,
            laws: 0,
            held: 0,
            cases: 0,
            passed: None,
            verdict: None,
            rerotation: None,
            worst: None,
            chain: None,
        }
    }

    /// The word for the column of re-rotation.
    fn rotated(&self) -> &'static str {
        match self.rerotation {
            Some(Verdict::Exact { .. }) => "exact",
            Some(Verdict::Impossible { .. }) => "impossible",
            Some(Verdict::Fails) => "fails",
            Some(Verdict::Silent { .. }) | None => "-",
        }
    }
}

/// The verdict in words; the one for a failure is the one that tables mark.
fn said(verdict: &Verdict) -> String {
    if *verdict == Verdict::Fails { "FAILED".to_owned() } else { verdict.to_string() }
}

/// The report: the summary, then the laws (all of them if `verbose` or if they are few, else those that fail), then the
/// failing cases.
pub(super) fn text(document: &Document, verbose: bool) -> String {
    let Document { device, seed, cases, .. } = document;
    let title = format!("Laws on {}, seed {seed}, {} cases in all", device.name, count(*cases as u64));
    let mut out = format!("{}\n{}", heading(&title), summary(document));
    for why in reasons(document) {
        out += &format!("re-rotation impossible, because {why}\n");
    }
    out.push('\n');

    let all = verbose || document.rows.len() <= SHORT;
    let shown: Vec<&Row> = document.rows.iter().map(|t| &t.row).filter(|row| all || !row.report.passed).collect();
    if !shown.is_empty() {
        let title = if all { "Laws" } else { "Laws that fail" };
        out += &format!("{}\n{}\n", heading(title), laws(&shown));
    }
    document.rows.iter().for_each(|tested| out += &failure(&tested.row.report));
    document.sweeps.iter().for_each(|swept| out += &failed_chain(swept));

    let (held, total) = document.families.iter().fold((0, 0), |(h, n), s| (h + s.held, n + s.laws));
    let subjects = document.families.iter().filter(|s| s.passed.is_some()).count();
    let families = document.families.chunk_by(|a, b| a.family == b.family).count();
    let of_families = format!("{families} {}", if families == 1 { "family" } else { "families" });
    let on_subjects = format!("{subjects} {}", if subjects == 1 { "subject" } else { "subjects" });
    out += &verdict(document.passed, &format!("{held} of {total} laws hold, in {of_families} on {on_subjects}"));
    if !all {
        out += " (--verbose prints each, --json everything)";
    }
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

/// What to say of a chain of segments that is off. Nothing otherwise.
fn failed_chain(swept: &Swept) -> String {
    let Swept { subject, failure, .. } = swept;
    match (failure, swept.worst()) {
        (Some(why), _) => format!("no error over the number of segments on {subject}: {why}\n\n"),
        (None, Some(point)) if !swept.passed => format!(
            "a chain of {} segments is off on {subject}, {}: error {:e} > {:e}\n\n",
            point.segments,
            point.decay.name(),
            point.error,
            point.tolerance
        ),
        _ => String::new(),
    }
}

/// A case without the words that are the same in all of them; the JSON has it as an expression to paste.
fn brief(case: &str) -> String {
    let inner = case.strip_prefix("Case { ").and_then(|c| c.strip_suffix(" }")).unwrap_or(case);
    inner.replace("kind: Kind::", "")
}

/// The seed of a case.
fn seed(case: &str) -> &str {
    case.split("seed: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or(case)
}

fn summary(document: &Document) -> String {
    let mut table = Table::new(&[
        Column::Left("family"),
        Column::Left("subject"),
        Column::Right("laws held"),
        Column::Right("cases"),
        Column::Right("worst error"),
        Column::Right("tolerance"),
        Column::Left("of law"),
        Column::Left("with seed"),
        Column::Right("chains"),
        Column::Left("re-rotation"),
        Column::Left("verdict"),
    ]);
    for s in &document.families {
        let ran = s.passed.is_some();
        let or_dash = |text: String| if ran { text } else { "-".to_owned() };
        let case = s.worst.as_ref().and_then(|worst| worst.case.as_deref());
        table.row([
            s.family.clone(),
            label(&s.subject),
            or_dash(format!("{} of {}", s.held, s.laws)),
            or_dash(count(s.cases as u64)),
            ratio(s.worst.as_ref().map(|w| w.error)),
            ratio(s.worst.as_ref().map(|w| w.tolerance)),
            s.worst.as_ref().map_or_else(|| "-".to_owned(), |w| w.law.clone()),
            case.map_or("-", seed).to_owned(),
            ratio(s.chain.map(|point| point.error)),
            s.rotated().to_owned(),
            s.says.clone(),
        ]);
    }
    table.render()
}

/// Why re-rotation is impossible where it is, each reason once.
fn reasons(document: &Document) -> Vec<&str> {
    let mut reasons = Vec::new();
    for summary in &document.families {
        if let Some(Verdict::Impossible { because }) = &summary.rerotation
            && !reasons.contains(&because.as_str())
        {
            reasons.push(because.as_str());
        }
    }
    reasons
}

fn laws(rows: &[&Row]) -> String {
    let mut table = Table::new(&[
        Column::Left("family"),
        Column::Left("law"),
        Column::Left("subject"),
        Column::Right("cases"),
        Column::Right("worst error"),
        Column::Right("tolerance"),
        Column::Left("verdict"),
        Column::Left("worst case"),
    ]);
    for Row { family, verdict, report } in rows {
        let silent = matches!(verdict, Verdict::Silent { .. });
        let number = |x: f64| ratio((!silent).then_some(x));
        table.row([
            family.clone(),
            report.law.clone(),
            label(&report.subject),
            count(report.cases as u64),
            number(report.worst_error),
            number(report.tolerance),
            // The reason stands once below the summary.
            if matches!(verdict, Verdict::Impossible { .. }) { "impossible".to_owned() } else { said(verdict) },
            report.worst_seed.as_deref().map_or_else(|| "-".to_owned(), brief),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::DeviceInfo;
    use crate::commands::laws::form::FormChoice;
    use crate::commands::laws::measure::Tested;
    use seam_algebra::families::by_name;
    use seam_algebra::laws::SweepDecay;

    fn report(law: &str, error: f64, failure: Option<&str>) -> LawReport {
        LawReport {
            law: law.into(),
            subject: "oracle/kda".into(),
            cases: 20,
            skipped: 0,
            worst_error: error,
            tolerance: if law == "batch" { 0.0 } else { 2e-14 },
            worst_seed: Some("Case { seed: 0x7, kind: Kind::NoDecay, tokens: 3 }".into()),
            passed: failure.is_none(),
            failure: failure.map(Into::into),
        }
    }

    fn swept(error: f64) -> Swept {
        let point = |segments, error| SweepPoint { decay: SweepDecay::Slow, segments, error, tolerance: 2e-14 };
        Swept {
            family: "kda".into(),
            subject: "oracle/kda".into(),
            passed: error <= 2e-14,
            points: vec![point(1, 1e-17), point(64, error)],
            failure: None,
        }
    }

    fn document(rows: Vec<Row>, repeat: usize) -> Document {
        let kda = by_name("kda").unwrap();
        let summary = || Summary::of(kda, "oracle/kda".into(), &rows, &swept(1e-15));
        Document {
            device: DeviceInfo { kind: "cpu".into(), name: "cpu, 8 threads".into(), driver: "d".into() },
            form: FormChoice::All,
            seed: 3,
            cases: 80,
            max_len: 300,
            passed: rows.iter().all(|row| row.report.passed),
            families: (0..repeat).map(|_| summary()).collect(),
            rows: rows
                .iter()
                .cycle()
                .take(rows.len() * repeat)
                .cloned()
                .map(|row| Tested { test: row.report.test(), row })
                .collect(),
            sweeps: (0..repeat).map(|_| swept(1e-15)).collect(),
        }
    }

    fn rows(failure: Option<&str>) -> Vec<Row> {
        let row = |verdict, report| Row { family: "kda".into(), verdict, report };
        vec![
            row(Verdict::EXACT, report("oracle", 1e-15, None)),
            row(if failure.is_some() { Verdict::Fails } else { Verdict::EXACT }, report("chain", 2e-15, failure)),
            row(Verdict::EXACT, report("batch", 0.0, None)),
            row(Verdict::Impossible { because: "it does not commute".into() }, report("rerotation", 0.0, None)),
        ]
    }

    #[test]
    fn the_summary_comes_first_and_long_tables_only_when_asked_for() {
        let short = text(&document(rows(None), 1), false);
        let line = short.lines().find(|l| l.starts_with("kda")).unwrap();
        assert!(line.contains("4 of 4") && line.contains("2.0e-15") && line.contains("chain"), "{short}");
        assert!(line.contains("float64 oracle") && line.split_whitespace().any(|word| word == "0x7"), "{line}");
        assert!(line.contains("1.0e-15"), "{line}");
        assert!(line.ends_with("impossible   exact with conv warm-up of 3 tokens"), "{line}");
        assert!(short.starts_with("Laws on cpu, 8 threads, seed 3, 80 cases in all\n"), "{short}");
        assert_eq!(short.matches("it does not commute").count(), 1);
        assert!(short.contains("\nLaws\n") && short.contains("seed: 0x7, NoDecay, tokens: 3"), "{short}");

        let long = document(rows(None), 11);
        assert!(!text(&long, false).contains("\nLaws") && text(&long, false).contains("--verbose"));
        let long = text(&long, true);
        assert!(long.contains("\nLaws\n"), "{long}");
        assert!(long.contains("44 of 44 laws hold, in 1 family on 11 subjects"), "{long}");
    }

    #[test]
    fn a_failure_is_in_the_summary_and_is_a_test_to_paste() {
        let case = "check(Law::Chain, &mut subject, &Case { seed: 0x9, tokens: 1 }) // state: error 1 > 2e-14";
        let document = document(rows(Some(case)), 11);
        let text = text(&document, false);
        assert!(text.lines().any(|l| l.starts_with("kda") && l.contains("3 of 4") && l.ends_with("FAILED")), "{text}");
        assert!(text.contains("\nLaws that fail\n") && text.contains("fn chain_0x9() {"), "{text}");
        assert!(text.contains("OracleSubject::new(seam_algebra::families::by_name(\"kda\").unwrap())"));
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!((&json["families"][0]["passed"], &json["families"][0]["verdict"]), (&false.into(), &"fails".into()));
        assert!(json["rows"][1]["test"].as_str().is_some_and(|test| test.starts_with("#[test]")));
    }

    #[test]
    fn an_error_against_a_tolerance_of_nothing_is_the_worst() {
        let mut rows = rows(None);
        rows[2].report.worst_error = 1e-18;
        let summary = Summary::of(by_name("kda").unwrap(), "s".into(), &rows, &swept(0.0));
        assert_eq!(summary.worst.map(|w| w.law), Some("batch".into()));
    }

    #[test]
    fn a_law_without_a_case_and_a_chain_that_is_off_say_why() {
        let mut failing = document(rows(Some("no case was applicable")), 1);
        assert!(text(&failing, false).contains("chain fails on oracle/kda; no case was applicable"));
        failing.sweeps = vec![swept(3e-10)];
        let said = text(&failing, false);
        assert!(
            said.contains("a chain of 64 segments is off on oracle/kda, slow decay: error 3e-10 > 2e-14"),
            "{said}"
        );
        failing.sweeps = vec![Swept { failure: Some("it panicked".into()), points: vec![], ..swept(1.0) }];
        assert!(text(&failing, false).contains("number of segments on oracle/kda: it panicked"));
        let summary = Summary::of(by_name("kda").unwrap(), "s".into(), &rows(None), &swept(3e-10));
        assert_eq!((summary.passed, summary.says.as_str()), (Some(false), "FAILED"));
    }
}
