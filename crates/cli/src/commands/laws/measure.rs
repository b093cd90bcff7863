//! Every law on every subject, several subjects at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seam_algebra::Family;
use seam_algebra::families::by_name;
use seam_algebra::laws::{Options, Row, Subject, SweepPoint, row, sweep};
use seam_device::Device;
use serde::Serialize;

use super::Args;
use super::form::FormChoice;
use super::plan::{Job, Plan};
use super::summary::Summary;
use crate::commands::DeviceInfo;
use crate::report::Progress;

/// All that is reported.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The device beside the oracles.
    pub(super) device: DeviceInfo,
    pub(super) form: FormChoice,
    pub(super) seed: u64,
    /// Cases that were run.
    pub(super) cases: usize,
    pub(super) max_len: u32,
    pub(super) passed: bool,
    /// A summary a family and subject.
    pub(super) families: Vec<Summary>,
    /// A row a family, subject and law.
    pub(super) rows: Vec<Tested>,
    /// The error over the number of segments, a family and subject each.
    pub(super) sweeps: Vec<Swept>,
}

/// A row, and its failure as a test to paste.
#[derive(Debug, Serialize)]
pub(super) struct Tested {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) test: Option<String>,
}

/// What a sweep gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Swept {
    pub(super) family: String,
    pub(super) subject: String,
    pub(super) passed: bool,
    pub(super) points: Vec<SweepPoint>,
    /// Why there are no points.
    pub(super) failure: Option<String>,
}

impl Swept {
    fn run(family: &dyn Family, subject: &mut dyn Subject, seed: u64) -> Self {
        let name = subject.name();
        // A law that panics is a law that fails, and so is this.
        let found = catch_unwind(AssertUnwindSafe(|| sweep(subject, seed)));
        let (points, failure) = match found {
            Ok(Ok(found)) => (found.points, None),
            Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
            Err(_) => (Vec::new(), Some("it panicked".to_owned())),
        };
        let passed = !points.is_empty() && points.iter().all(SweepPoint::holds);
        Self { family: family.name().to_owned(), subject: name, passed, points, failure }
    }

    /// The point nearest to its tolerance, or farthest above it.
    pub(super) fn worst(&self) -> Option<&SweepPoint> {
        self.points.iter().max_by(|a, b| (a.error / a.tolerance).total_cmp(&(b.error / b.tolerance)))
    }
}

/// What came of a job.
struct Done {
    rows: Vec<Row>,
    swept: Swept,
}

/// Runs the families of these names, each on its oracle and on what the device has for it.
pub(super) fn measure(args: &Args, names: &[&'static str], device: &Arc<dyn Device>) -> Document {
    let families: Vec<_> = names.iter().filter_map(|name| by_name(name)).collect();
    let on_device = |family| {
        let mut subjects = seam_conformance::laws::subjects(device, family);
        subjects.retain(|subject| args.form.takes(&subject.name()));
        subjects
    };
    let plan = Plan::new(&families, on_device, args.cases as usize);
    let kind = device.caps().kind.to_string();
    let progress = Progress::bar(plan.cases(), "laws");
    let names: Vec<(&'static dyn Family, String)> =
        plan.jobs.iter().map(|job| (job.family, job.subject.name())).collect();
    let done = all(plan.jobs, args, &progress);
    drop(progress);

    let (mut summaries, mut rows, mut sweeps) = (Vec::new(), Vec::new(), Vec::new());
    let mut of_families = names.iter().zip(done).peekable();
    while let Some(((family, subject), done)) = of_families.next() {
        summaries.push(Summary::of(*family, subject.clone(), &done.rows, &done.swept));
        let oracle = subject.starts_with("oracle/");
        let last = of_families.peek().is_none_or(|((next, _), _)| next.name() != family.name());
        if oracle && last {
            let why = format!("no {} for this family on {kind}", args.form.kernel());
            summaries.push(Summary::without_kernel(family.name(), kind.clone(), why));
        }
        rows.extend(done.rows);
        sweeps.push(done.swept);
    }
    let held = rows.iter().all(|row| row.report.passed) && sweeps.iter().all(|swept| swept.passed);
    Document {
        device: DeviceInfo::of(&**device),
        form: args.form,
        seed: args.seed,
        cases: rows.iter().map(|row| row.report.cases + row.report.skipped).sum(),
        max_len: args.max_len,
        passed: held && !rows.is_empty(),
        families: summaries,
        rows: rows.into_iter().map(|row| Tested { test: row.report.test(), row }).collect(),
        sweeps,
    }
}

/// Runs the jobs on as many threads as there are processors; results in the order of the jobs.
///
/// These are threads of their own: kernels on the processor wait for the shared pool, which must not wait for them.
fn all(jobs: Vec<Job>, args: &Args, progress: &Progress) -> Vec<Done> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let jobs: Vec<Mutex<Job>> = jobs.into_iter().map(Mutex::new).collect();
    let done: Vec<Mutex<Option<Done>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let i = next.fetch_add(1, Ordering::Relaxed);
        jobs.get(i).zip(done.get(i))
    };
    let work = || {
        while let Some((job, done)) = take() {
            let mut job = job.lock().unwrap_or_else(PoisonError::into_inner);
            let found = one(&mut job, args, progress);
            *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    done.into_iter().filter_map(|done| done.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// All laws on one subject, and the sweep.
fn one(job: &mut Job, args: &Args, progress: &Progress) -> Done {
    let name = job.subject.name();
    let mut rows = Vec::with_capacity(job.laws.len());
    for (law, cases) in &job.laws {
        let options = Options { seed: args.seed, cases: *cases, max_len: args.max_len as usize };
        rows.push(row(*law, &mut *job.subject, &options, &mut |law, _| {
            progress.step();
            progress.say(&format!("{name}, {law}"));
        }));
    }
    progress.say(&format!("{name}, chains of segments"));
    let swept = Swept::run(job.family, &mut *job.subject, args.seed);
    Done { rows, swept }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use seam_algebra::laws::Law;

    use super::*;
    use crate::commands::laws::summary::text;
    use crate::device::cpu;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(more: &[&str]) -> Args {
        let line = ["laws", "--max-len", "7"].iter().chain(more);
        Line::try_parse_from(line).expect("a good line").args
    }

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let all = args(&[]);
        assert!(matches!(&all.family, super::super::Choice::These(names) if names.len() >= 16), "{:?}", all.family);
        assert_eq!((all.form, args(&["--form", "chunk"]).form), (FormChoice::All, FormChoice::Chunk));
        for (line, said) in [
            (["--family", "kda,lstm"], "unknown family \"lstm\": expected all, list, or some of linear_attention"),
            (["--form", "blocks"], "unknown form \"blocks\": expected recurrent, chunk or all"),
            (["--cases", "0"], "--cases"),
        ] {
            let error = Line::try_parse_from(["laws"].iter().chain(&line)).expect_err("a bad line");
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn the_document_has_a_row_a_law_and_a_summary_a_subject() {
        let device = cpu();
        let document = measure(&args(&["--cases", "60"]), &["gla", "gated_delta_rule"], &device);
        assert!(document.passed, "{document:#?}");
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!((&json["passed"], &json["form"], &json["max_len"]), (&true.into(), &"all".into(), &7.into()));
        assert_eq!(json["device"]["kind"], "cpu");
        let rows = json["rows"].as_array().unwrap();
        let subjects = |family: &str| 1 + seam_conformance::laws::subjects(&device, by_name(family).unwrap()).len();
        let (gla, gated) = (subjects("gla"), subjects("gated_delta_rule"));
        assert!(gated > 1);
        assert_eq!(rows.len(), (gla + gated) * Law::ALL.len());
        assert_eq!((&rows[0]["family"], &rows[0]["report"]["law"]), (&"gla".into(), &"oracle".into()));
        assert!(rows[0]["test"].is_null() && rows[0]["verdict"]["exact"].is_object());
        assert_eq!(json["sweeps"].as_array().map(Vec::len), Some(gla + gated));
        assert_eq!(json["sweeps"][0]["points"].as_array().map(Vec::len), Some(3 * 7));
        let of = |family: &str| document.families.iter().filter(|s| s.family == family).collect::<Vec<_>>();
        assert_eq!(of("gla")[0].says, "exact");
        assert_eq!(of("gated_delta_rule").len(), gated);
        assert!(of("gated_delta_rule").iter().all(|s| s.says == "exact with conv warm-up of 3 tokens"));
        // The same cases give the same document, whatever thread ran which subject.
        let again = measure(&args(&["--cases", "60"]), &["gla", "gated_delta_rule"], &device);
        assert_eq!(serde_json::to_value(&again).unwrap(), json);
    }

    #[test]
    fn a_family_without_a_kernel_says_so() {
        // Whether there is one depends on the device; both must be said right.
        let without = |form: &str| {
            let args = args(&["--cases", "1", "--form", form]);
            let plan = |family| {
                let all = seam_conformance::laws::subjects(&cpu(), family);
                all.into_iter().filter(|subject| args.form.takes(&subject.name())).count()
            };
            (plan(by_name("kda").unwrap()), measure(&args, &["kda"], &cpu()))
        };
        for (form, says) in [("all", "no kernel"), ("recurrent", "no recurrent kernel"), ("chunk", "no chunk kernel")] {
            let (there, document) = without(form);
            let says = format!("{says} for this family on cpu");
            assert!(document.passed, "{document:#?}");
            assert_eq!(text(&document, false).contains(&says), there == 0, "{form}");
            assert_eq!(document.families.iter().filter(|s| s.passed.is_none()).count(), usize::from(there == 0));
        }
    }

    #[test]
    fn a_sweep_that_fails_is_no_pass() {
        struct Refuses;
        use seam_algebra::laws::{ChainStep, Limits, SubjectError};
        use seam_algebra::{Inputs, Operator, Run, Sizes};
        impl Subject for Refuses {
            fn name(&self) -> String {
                "refuses".into()
            }
            fn limits(&self) -> Limits {
                Limits::default()
            }
            fn run(&mut self, _: &Inputs, _: &[f64]) -> Result<Run, SubjectError> {
                panic!("no run")
            }
            fn operator(&mut self, _: &Inputs, _: usize) -> Result<Vec<Operator>, SubjectError> {
                panic!("no operator")
            }
            fn chain(&mut self, _: &Sizes, _: &[f64], _: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
                panic!("no chain")
            }
            fn batch(&mut self, _: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
                panic!("no batch")
            }
        }
        let swept = Swept::run(by_name("kda").unwrap(), &mut Refuses, 0);
        assert!(!swept.passed && swept.points.is_empty() && swept.failure.as_deref() == Some("it panicked"));
    }
}
