//! `seam demo`: documents computed once, spliced in any order, beside full recomputation.

mod show;
mod world;

use std::path::PathBuf;

use anyhow::{Context, Result};
use seam_engine::{Answer, EngineOptions, Request};
use seam_pic::{Mode, Policy};
use serde::Serialize;

use super::{DeviceInfo, Loaded, Verdict};
use crate::device::DeviceArgs;
use crate::locate;
use crate::report::{OutputArgs, Progress, millis};
use world::World;

/// What the counts do not say.
const NOTE: &str = "The questions were chosen: right in full, and all but one right spliced on the cpu device. So the counts are no\n\
                    measure of quality. Splicing is not exact in a deep model; `seam eval` measures how often answers differ.";

/// The model that comes with the source.
const MODEL: &str = "tiny_qwen35";

/// Show what Seam does: documents computed once, reused in any order, beside full recomputation
///
/// A small model answers questions over a few documents. Each document is computed once; every question has the
/// documents in another order. Each prompt is also recomputed in full, so that answers and times can be compared.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Another model folder than the one that comes with the source.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The report, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    device: DeviceInfo,
    model: String,
    mode: Mode,
    seam: u32,
    documents: Vec<Document>,
    questions: Vec<Row>,
    summary: Summary,
}

/// A document after the first request.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Document {
    name: String,
    tokens: usize,
    entry_bytes: u64,
    begins: String,
}

/// A question, spliced and in full.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    order: String,
    question: String,
    gold: String,
    spliced: String,
    full: String,
    /// Whether the answers have the same tokens.
    agree: bool,
    spliced_correct: bool,
    full_correct: bool,
    prompt_tokens: usize,
    /// Prompt tokens that came from entries computed before this question.
    reused: u64,
    /// Tokens computed for the prompt: seams and question, and new entries.
    computed: u64,
    ttft_spliced_ms: f64,
    ttft_full_ms: f64,
}

/// All questions.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Summary {
    questions: usize,
    agree: usize,
    spliced_correct: usize,
    full_correct: usize,
    computed_spliced: u64,
    computed_full: u64,
    median_ttft_spliced_ms: f64,
    median_ttft_full_ms: f64,
    /// What the counts do not say.
    note: &'static str,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let dir = args.model.clone().map_or_else(|| locate::model(MODEL), Ok)?;
    locate::check_model(&dir)?;
    let world = World::built_in()?;
    let device = args.device.open()?;
    let mut loaded = Loaded::open(&device, &dir, EngineOptions::default())?;
    let progress = Progress::bar(world.questions.len() + 1, "warming up");
    warm_up(&mut loaded, &world)?;
    progress.step();
    let (mut documents, mut rows) = (Vec::new(), Vec::new());
    for (i, question) in world.questions.iter().enumerate() {
        progress.say(&format!("question {}", i + 1));
        let texts: Vec<&str> = question.order.iter().map(|&d| world.documents[d].as_str()).collect();
        let request = request(&loaded, &world.system, &texts, &question.question)?;
        let context = || format!("question {}", i + 1);
        let spliced = loaded.engine.answer(&request, &mut |_| {}).with_context(context)?;
        let full_request = Request { mode: Mode::Full, ..request.clone() };
        let full = loaded.engine.answer(&full_request, &mut |_| {}).with_context(context)?;
        if documents.is_empty() {
            documents = entries(&world, &question.order, &spliced);
        }
        let order = question.order.iter().map(|&d| World::name(d)).collect();
        rows.push(row(&loaded, order, question, &request, &spliced, &full));
        progress.step();
    }
    drop(progress);
    let report = Report {
        device: DeviceInfo::of(&*device),
        model: dir.display().to_string(),
        mode: Mode::Transition,
        seam: Policy::DEFAULT_SEAM,
        documents,
        summary: Summary::of(&rows),
        questions: rows,
    };
    args.output.emit(&report, || show::text(&report))?;
    Ok(Verdict::Passed)
}

fn request(loaded: &Loaded, system: &str, documents: &[&str], question: &str) -> Result<Request> {
    let question = loaded.question(question);
    let segments = loaded.format.build(&loaded.tokenizer, system, documents, &question)?;
    Ok(Request { max_new: 24, stop: loaded.stop(), ..Request::new(segments) })
}

/// Answers over a part of a document for another tenant, in both ways, so that no time includes the making of pipelines.
fn warm_up(loaded: &mut Loaded, world: &World) -> Result<()> {
    let text = world.documents.first().map_or("", String::as_str);
    // Enough rows for the kernels that many rows take.
    let part: String = text.chars().take(400).collect();
    let request = request(loaded, &world.system, &[&part], "What is this?")?;
    for mode in [Mode::Transition, Mode::Transition, Mode::Full] {
        let request = Request { mode, tenant: "warm-up".to_owned(), max_new: 2, ..request.clone() };
        loaded.engine.answer(&request, &mut |_| {}).context("warming up")?;
    }
    Ok(())
}

/// The documents as the first request computed them.
fn entries(world: &World, order: &[usize], answer: &Answer) -> Vec<Document> {
    let describe = |(d, text): (usize, &String)| {
        // Segment 0 is the system text.
        let place = order.iter().position(|&o| o == d)?;
        let segment = answer.segments.get(place + 1)?;
        let begins = crate::report::short(text, 60);
        Some(Document { name: World::name(d), tokens: segment.tokens, entry_bytes: segment.bytes, begins })
    };
    world.documents.iter().enumerate().filter_map(describe).collect()
}

fn row(
    loaded: &Loaded,
    order: String,
    question: &world::Question,
    request: &Request,
    spliced: &Answer,
    full: &Answer,
) -> Row {
    let text = |answer: &Answer| loaded.text(&answer.tokens).trim().to_owned();
    let (spliced_text, full_text) = (text(spliced), text(full));
    // What a cold request splices was computed by it: only hits are reuse.
    let reused = spliced.segments.iter().filter(|s| s.hit.is_some()).map(|s| s.reused as u64).sum();
    Row {
        order,
        question: question.question.clone(),
        gold: question.answer.clone(),
        agree: spliced.tokens == full.tokens,
        spliced_correct: spliced_text == question.answer,
        full_correct: full_text == question.answer,
        spliced: spliced_text,
        full: full_text,
        prompt_tokens: request.prompt_tokens(),
        reused,
        computed: spliced.work.cold_rows + spliced.work.prompt_rows,
        ttft_spliced_ms: millis(spliced.ttft),
        ttft_full_ms: millis(full.ttft),
    }
}

impl Summary {
    fn of(rows: &[Row]) -> Self {
        let times = |f: fn(&Row) -> f64| median(rows.iter().map(f).collect());
        Self {
            questions: rows.len(),
            agree: rows.iter().filter(|r| r.agree).count(),
            spliced_correct: rows.iter().filter(|r| r.spliced_correct).count(),
            full_correct: rows.iter().filter(|r| r.full_correct).count(),
            computed_spliced: rows.iter().map(|r| r.computed).sum(),
            computed_full: rows.iter().map(|r| r.prompt_tokens as u64).sum(),
            median_ttft_spliced_ms: times(|r| r.ttft_spliced_ms),
            median_ttft_full_ms: times(|r| r.ttft_full_ms),
            note: NOTE,
        }
    }
}

/// The middle value, or the mean of the two in the middle; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match (values.get(n.wrapping_sub(1) / 2), values.get(n / 2)) {
        (Some(a), Some(b)) => (a + b) / 2.0,
        _ => 0.0,
    }
}
