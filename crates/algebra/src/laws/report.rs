//! Running laws over many cases, and what comes of it.

use super::Law;
use super::measure::Measured;
use super::properties::check;
use super::subject::{Subject, SubjectError};
use crate::rng::Rng;
use crate::strategy::{CaseParams, cases};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;

/// How much to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Seed of everything: the same seed and cases give the same run.
    pub seed: u64,
    /// Cases a law; a subject may ask for fewer.
    pub cases: usize,
    /// Most tokens of a case; a subject may ask for fewer.
    pub max_len: usize,
}

impl Default for Options {
    /// 64 cases of up to 300 tokens, seed 0.
    fn default() -> Self {
        Self { seed: 0, cases: 64, max_len: 300 }
    }
}

/// What running one law gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawReport {
    /// Name of the law.
    pub law: String,
    /// Name of the subject.
    pub subject: String,
    /// Cases that were measured.
    pub cases: usize,
    /// Cases that the law says nothing about or that the subject does not do.
    pub skipped: usize,
    /// Largest error of the measured cases as a multiple of its tolerance; `f64::MAX` for a NaN or an error against a
    /// tolerance of 0.
    pub worst_error: f64,
    /// The tolerance of that error.
    pub tolerance: f64,
    /// The case it came from, as an expression to paste; `None` when every error was 0.
    pub worst_seed: Option<String>,
    /// Whether all cases held, of which there was at least one.
    pub passed: bool,
    /// The smallest failing case found, as a line to paste into a test, and what failed.
    pub failure: Option<String>,
}

impl fmt::Display for LawReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "holds" } else { "FAILS" };
        write!(
            f,
            "{} {verdict} on {}: {} cases ({} skipped), worst error {:.1e} of {:.1e}",
            self.law, self.subject, self.cases, self.skipped, self.worst_error, self.tolerance
        )?;
        match &self.failure {
            Some(failure) => write!(f, "\n  {failure}"),
            None => Ok(()),
        }
    }
}

impl LawReport {
    /// The report of a law that says nothing about the subject's family.
    pub(super) fn silent(law: &str, subject: &str) -> Self {
        Self {
            law: law.into(),
            subject: subject.into(),
            cases: 0,
            skipped: 0,
            worst_error: 0.0,
            tolerance: 0.0,
            worst_seed: None,
            passed: true,
            failure: None,
        }
    }

    /// The smallest failing case as a whole test to paste, `None` when the law held. For the oracle of a family it compiles
    /// as it is; for another subject it asks for a function `subject()`.
    pub fn test(&self) -> Option<String> {
        let (call, why) = self.failure.as_ref()?.split_once(" // ")?;
        let family = self.subject.strip_prefix("oracle/");
        let subject = family.map_or_else(
            || "subject()".to_string(),
            |name| format!("OracleSubject::new(seam_algebra::families::by_name({name:?}).unwrap())"),
        );
        let seed = call.split("seed: ").nth(1)?.split(',').next()?;
        let (law, name) = (&self.law, &self.subject);
        Some(format!(
            "#[test]\nfn {law}_{seed}() {{\n    use seam_algebra::laws::*;\n    use seam_algebra::strategy::{{Case, Kind}};\n    \
             // {name}: {why}\n    let mut subject = {subject};\n    let measured = {call}.unwrap();\n    \
             assert!(measured.holds(), \"{{measured:?}}\");\n}}\n"
        ))
    }
}

/// Runs on `subject` all laws that say something about its family. `progress` hears of every case before it runs: the law's name and the case's number.
///
/// Deterministic in `options` for a deterministic subject. A law without a single measured case does not pass. On a failure
/// the law stops, and proptest shrinks the case over its sizes and kind.
pub fn run_laws(subject: &mut dyn Subject, options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Vec<LawReport> {
    let family = subject.family();
    let said = Law::ALL.into_iter().filter(|law| law.silent_on(family).is_none());
    said.map(|law| run_law(law, subject, options, progress)).collect()
}

/// Runs one law on `subject`, as [`run_laws`] does it. A law that says nothing about the subject's family passes, with no
/// case.
pub fn run_law(
    law: Law,
    subject: &mut dyn Subject,
    options: &Options,
    progress: &mut dyn FnMut(&str, usize),
) -> LawReport {
    let name = subject.name();
    if law.silent_on(subject.family()).is_some() {
        return LawReport::silent(law.name(), &name);
    }
    let limits = subject.limits();
    let strategy = cases(&CaseParams {
        max_tokens: options.max_len.min(limits.max_tokens),
        max_key_heads: limits.max_key_heads,
        max_ratio: limits.max_ratio,
        key_dims: limits.key_dims,
        value_dims: limits.value_dims,
        ..CaseParams::default()
    });
    let options = Options { cases: options.cases.min(limits.max_cases), ..*options };
    let paste = |case: &_| format!("check(Law::{law:?}, &mut subject, &{case})");
    let test = &mut |case: &_| check(law, subject, case);
    drive(law.name(), &name, &strategy, &options, &paste, progress, test)
}

#[derive(Default)]
struct Tally {
    cases: usize,
    skipped: usize,
    failed: bool,
    worst: Option<(Measured, String)>,
}

/// Runs `test` on `options.cases` cases of `strategy`, shrinks a failure and reports.
pub(super) fn drive<C: fmt::Debug + fmt::Display>(
    law: &str,
    subject: &str,
    strategy: &impl Strategy<Value = C>,
    options: &Options,
    paste: &dyn Fn(&C) -> String,
    progress: &mut dyn FnMut(&str, usize),
    test: &mut dyn FnMut(&C) -> Result<Measured, SubjectError>,
) -> LawReport {
    let config = Config {
        cases: u32::try_from(options.cases).unwrap_or(u32::MAX),
        failure_persistence: None,
        // Enough to reach the borders of all sizes; a slow device should not spend minutes on it.
        max_shrink_iters: 256,
        ..Config::default()
    };
    let mut seed = Rng::new(law.bytes().fold(options.seed, |s, b| Rng::new(s ^ u64::from(b)).next_u64()));
    let bytes: Vec<u8> = (0..4).flat_map(|_| seed.next_u64().to_le_bytes()).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    // proptest wants a `Fn`, the subject and the progress are `FnMut`.
    let inner = RefCell::new((Tally::default(), progress, test));
    let outcome = TestRunner::new_with_rng(config, rng).run(strategy, |case| {
        let mut guard = inner.borrow_mut();
        let (tally, progress, test) = &mut *guard;
        // After the first failure every further call is a step of shrinking, no case of its own.
        let counts = !tally.failed;
        if counts {
            progress(law, tally.cases + tally.skipped);
        }
        // Set before the call, so that a panic of the subject counts as the failure that it is.
        tally.failed = true;
        let result = test(&case);
        let failure = match &result {
            Ok(measured) if measured.holds() => None,
            Ok(m) => Some(format!("{}: error {:e} > {:e}", m.part, m.error, m.tolerance)),
            Err(SubjectError::NotApplicable { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        if counts {
            tally.failed = failure.is_some();
            match result {
                Err(SubjectError::NotApplicable { .. }) => tally.skipped += 1,
                Err(_) => tally.cases += 1,
                Ok(measured) => {
                    tally.cases += 1;
                    tally.note(measured, &case);
                }
            }
        }
        failure.map_or(Ok(()), |why| Err(TestCaseError::fail(why)))
    });
    let tally = inner.into_inner().0;
    let failure = match outcome {
        Ok(()) if tally.cases == 0 => Some("no case was applicable".to_string()),
        Ok(()) => None,
        Err(TestError::Fail(why, case)) => Some(format!("{} // {}", paste(&case), why.message())),
        Err(TestError::Abort(why)) => Some(format!("aborted: {}", why.message())),
    };
    let (worst, worst_seed) = match tally.worst {
        Some((worst, case)) => (worst, (worst.error != 0.0).then_some(case)),
        None => (Measured::NOTHING, None),
    };
    LawReport {
        law: law.into(),
        subject: subject.into(),
        cases: tally.cases,
        skipped: tally.skipped,
        // JSON has no NaN and no infinity.
        worst_error: if worst.error.is_finite() { worst.error } else { f64::MAX },
        tolerance: worst.tolerance,
        worst_seed,
        passed: failure.is_none(),
        failure,
    }
}

impl Tally {
    fn note(&mut self, measured: Measured, case: &impl fmt::Display) {
        let mut worst = self.worst.as_ref().map_or(Measured::NOTHING, |w| w.0);
        worst.note(measured.part, measured.error, measured.tolerance);
        if self.worst.as_ref().is_none_or(|w| w.0 != worst) {
            self.worst = Some((worst, case.to_string()));
        }
    }
}
