//! `seam ask`: a question over documents, with what was reused and what was computed.

mod documents;
mod show;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use seam_engine::sampling::SamplingParams;
use seam_engine::{Drift, EngineOptions, Request, SegmentReport, Stop, Work};
use seam_pic::{Mode, Policy, Warning};
use serde::Serialize;

use super::{DeviceInfo, Loaded, Verdict};
use crate::device::DeviceArgs;
use crate::report::{OutputArgs, clean, count, millis, print};
use documents::Document;

/// Ask a question over documents
///
/// Each document is a segment: it is computed once, alone, and reused at any place of any later prompt (with --cache also
/// by later runs). The answer appears as it is generated; a table then says what was reused and why not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Documents, in prompt order: UTF-8 text files.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    doc: Vec<PathBuf>,
    /// The question. Models with segment markers see it as `Question: … Answer:`.
    #[arg(long, value_name = "TEXT", value_parser = question)]
    question: String,
    /// The system text.
    #[arg(long, value_name = "TEXT", default_value = "Answer each question from the documents.")]
    system: String,
    /// How entries are used: full, transition, addition or last-state.
    #[arg(long, value_name = "MODE", default_value_t)]
    mode: Mode,
    /// First tokens of each document that are computed anew in every prompt.
    #[arg(long, value_name = "W", default_value_t = Policy::DEFAULT_SEAM)]
    seam: u32,
    /// Folder in which entries outlive the process.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Also recompute everything, and report the drift of each layer and the first diverging token.
    #[arg(long)]
    verify: bool,
    /// Tokens of the answer at most.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    max_new: u32,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Whose entries these are: tenants never share any.
    #[arg(long, value_name = "T", default_value = "", hide_default_value = true)]
    tenant: String,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct SamplingArgs {
    /// Divisor of the logits; 0 takes the most probable token.
    #[arg(long, value_name = "X", default_value_t = SamplingParams::default().temperature)]
    temperature: f32,
    /// Keep the K most probable tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = SamplingParams::default().top_k)]
    top_k: u32,
    /// Keep the most probable tokens up to this probability.
    #[arg(long, value_name = "P", default_value_t = SamplingParams::default().top_p)]
    top_p: f32,
    /// Keep tokens at least this probable beside the most probable one.
    #[arg(long, value_name = "P", default_value_t = SamplingParams::default().min_p)]
    min_p: f32,
    /// Weakens tokens that occurred; 1 is off.
    #[arg(long, value_name = "X", default_value_t = SamplingParams::default().repetition_penalty)]
    repetition_penalty: f32,
    /// Seed of the draws.
    #[arg(long, value_name = "S", default_value_t = SamplingParams::default().seed)]
    seed: u64,
}

impl From<SamplingArgs> for SamplingParams {
    fn from(a: SamplingArgs) -> Self {
        Self {
            temperature: a.temperature,
            top_k: a.top_k,
            top_p: a.top_p,
            min_p: a.min_p,
            repetition_penalty: a.repetition_penalty,
            seed: a.seed,
        }
    }
}

fn question(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("the question is empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// The report, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    device: DeviceInfo,
    model: String,
    mode: Mode,
    seam: u32,
    answer: String,
    tokens: Vec<u32>,
    stop: Stop,
    prompt_tokens: usize,
    segments: Vec<Segment>,
    ttft_ms: f64,
    total_ms: f64,
    /// Of the tokens after the first; `None` if there is at most one.
    tokens_per_second: Option<f64>,
    work: Work,
    cache_warnings: Vec<Warning>,
    verify: Option<Verified>,
}

#[derive(Debug, Serialize)]
struct Segment {
    what: String,
    #[serde(flatten)]
    report: SegmentReport,
}

#[derive(Debug, Serialize)]
struct Verified {
    full_answer: String,
    #[serde(flatten)]
    drift: Drift,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let sampling = SamplingParams::from(args.sampling);
    sampling.validate()?;
    crate::locate::check_model(&args.model)?;
    let documents = documents::read_all(&args.doc)?;
    let device = args.device.open()?;
    let options = EngineOptions { cache_dir: args.cache.clone(), ..EngineOptions::default() };
    let mut loaded = Loaded::open(&device, &args.model, options)?;
    let (names, segments) = segments(&loaded, args, &documents)?;
    let request = Request {
        mode: args.mode,
        seam: args.seam,
        tenant: args.tenant.clone(),
        sampling,
        max_new: args.max_new as usize,
        stop: loaded.stop(),
        ..Request::new(segments)
    };
    check_length(&loaded, &request, &names)?;

    // The answer appears as it comes, unless standard output is to be one JSON document.
    let mut written = Ok(());
    let answer = {
        let mut stream = loaded.tokenizer.decode_stream(true);
        let mut show = |text: Option<String>| {
            if let (false, Ok(()), Some(text)) = (args.output.json, &written, text) {
                written = print(&clean(&text));
            }
        };
        let answer = loaded.engine.answer(&request, &mut |token| show(stream.push(token)))?;
        show(stream.flush());
        show(Some("\n\n".to_owned()));
        answer
    };
    written?;
    let verify = match args.verify {
        true => {
            let drift = loaded.engine.verify(&request, &answer.tokens).context("verifying")?;
            Some(Verified { full_answer: loaded.text(&drift.full_tokens), drift })
        }
        false => None,
    };
    let generating = answer.total.saturating_sub(answer.ttft).as_secs_f64();
    let later = answer.tokens.len().saturating_sub(1);
    let report = Report {
        device: DeviceInfo::of(&*device),
        model: args.model.display().to_string(),
        mode: args.mode,
        seam: args.seam,
        answer: loaded.text(&answer.tokens),
        tokens: answer.tokens,
        stop: answer.stop,
        prompt_tokens: request.prompt_tokens(),
        segments: names.into_iter().zip(answer.segments).map(|(what, report)| Segment { what, report }).collect(),
        ttft_ms: millis(answer.ttft),
        total_ms: millis(answer.total),
        tokens_per_second: (later > 0 && generating > 0.0).then(|| later as f64 / generating),
        work: answer.work,
        cache_warnings: loaded.engine.warnings(),
        verify,
    };
    args.output.emit(&report, || show::text(&report, |tokens| loaded.text(tokens)))?;
    Ok(Verdict::Passed)
}

/// The segments and what each of them is.
fn segments(loaded: &Loaded, args: &Args, documents: &[Document]) -> Result<(Vec<String>, Vec<Vec<u32>>)> {
    let mut names = vec!["system text".to_owned()];
    let mut segments = vec![loaded.format.head(&loaded.tokenizer, &args.system).context("the system text")?];
    for document in documents {
        let ids = loaded.format.segment(&loaded.tokenizer, &document.text);
        segments.push(ids.with_context(|| format!("the document {}", document.name))?);
        names.push(document.name.clone());
    }
    let question = loaded.question(&args.question);
    segments.push(loaded.format.segment(&loaded.tokenizer, &question).context("the question")?);
    names.push("question".to_owned());
    // Without markers an empty system text has no tokens: the first document is then the head.
    if segments.first().is_some_and(Vec::is_empty) {
        segments.remove(0);
        names.remove(0);
    }
    Ok((names, segments))
}

/// Says which documents make the prompt too long; the engine only knows the sum.
fn check_length(loaded: &Loaded, request: &Request, names: &[String]) -> Result<()> {
    let limit = loaded.engine.runner().spec().max_position as usize;
    let prompt = request.prompt_tokens();
    if prompt + request.max_new <= limit {
        return Ok(());
    }
    let mut sizes: Vec<_> = names.iter().zip(request.segments.iter().map(Vec::len)).collect();
    sizes.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    let largest: Vec<_> =
        sizes.iter().take(3).map(|(name, n)| format!("{name}: {} tokens", count(*n as u64))).collect();
    bail!(
        "the prompt has {} tokens and the answer up to {}, the model's context is {} tokens; the largest parts are {}",
        count(prompt as u64),
        count(request.max_new as u64),
        count(limit as u64),
        largest.join(", ")
    );
}
