//! `seam eval`: the quality of modes and seam widths over a set of questions.

mod show;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use seam_engine::EngineOptions;
use seam_engine::quality::{EvalCase, EvalPrompt, Evaluation, PromptScores, Row, evaluate};
use seam_pic::{Budgets, Mode};
use serde::Serialize;

use super::{DeviceInfo, Loaded, Verdict};
use crate::device::DeviceArgs;
use crate::evalset;
use crate::reference::{Comparison, Reference};
use crate::report::{OutputArgs, Progress, note};

/// Token that ends an answer in the evaluation sets, if the tokenizer has it.
const END: &str = "<|end|>";

/// Measure the quality of modes and seam widths over a set of questions
///
/// Teacher-forced: exact match (every token of the answer is the most probable one), agreement with full recomputation,
/// KL(full‖mode) and the answer's negative log-likelihood, by type of question.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The questions: JSON lines, plain or gzipped.
    #[arg(long, value_name = "FILE")]
    set: PathBuf,
    /// Modes beside full, comma-separated.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "transition,addition,last-state")]
    pub(crate) modes: Vec<Mode>,
    /// Seam widths, comma-separated.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,8,32")]
    pub(crate) seams: Vec<u32>,
    /// Only the first N prompts of the set.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Leave out prompts of more than N tokens.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Folder for quality.json (with every prompt) and quality.svg.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A reference table (pic_table.json) of the same set: prints the differences, and exits with 1 if one is too large.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What `--json` prints; `quality.json` has the prompts beside it.
#[derive(Debug, Serialize)]
struct Document<'a> {
    device: DeviceInfo,
    model: String,
    set: String,
    prompts: usize,
    seconds: f64,
    rows: &'a [Row],
    reference: Option<&'a Comparison>,
}

#[derive(Debug, Serialize)]
struct Full<'a> {
    #[serde(flatten)]
    document: &'a Document<'a>,
    prompt_scores: &'a [PromptScores],
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    crate::locate::check_model(&args.model)?;
    let set = evalset::read(&args.set)?;
    let reference = args.reference.as_deref().map(Reference::read).transpose()?;
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    }
    let device = args.device.open_exact()?;
    // Every prompt has its own documents: nothing is worth keeping on the host.
    let budgets = Budgets { host: 0, ..Budgets::default() };
    let mut loaded = Loaded::open(&device, &args.model, EngineOptions { budgets, ..EngineOptions::default() })?;
    let (indices, cases) = cases(&loaded, &set, args)?;
    let progress = Progress::bar(cases.len(), "prompts");
    let start = Instant::now();
    let mut found = evaluate(&mut loaded.engine, &cases, &args.modes, &args.seams, &mut |_| progress.step())
        .with_context(|| format!("evaluating {}", args.set.display()))?;
    let seconds = start.elapsed().as_secs_f64();
    drop(progress);
    for (prompt, index) in found.prompts.iter_mut().zip(indices) {
        prompt.index = index;
    }
    let comparison = reference.map(|r| r.compare(&set, &found)).transpose()?;
    let document = Document {
        device: DeviceInfo::of(&*device),
        model: args.model.display().to_string(),
        set: args.set.display().to_string(),
        prompts: found.prompts.len(),
        seconds,
        rows: &found.rows,
        reference: comparison.as_ref(),
    };
    if let Some(dir) = &args.out {
        write(dir, &document, &found)?;
    }
    args.output.emit(&document, || show::text(&document))?;
    Ok(comparison.is_none_or(|c| c.passed).into())
}

/// The prompts that are evaluated, with their indices in the set.
fn cases(loaded: &Loaded, set: &[EvalPrompt], args: &Args) -> Result<(Vec<usize>, Vec<EvalCase>)> {
    let end = loaded.tokenizer.special_id(END).or_else(|| loaded.stop().first().copied());
    let Some(end) = end else {
        bail!("the model {} names no token that ends an answer", args.model.display());
    };
    let limit = args.limit.map_or(usize::MAX, |n| n as usize);
    let most = args.max_tokens.map_or(usize::MAX, |n| n as usize);
    let (mut indices, mut cases, mut other) = (Vec::new(), Vec::new(), 0);
    for (index, prompt) in set.iter().enumerate().take(limit) {
        let case = prompt
            .case(&loaded.tokenizer, &loaded.format, end)
            .with_context(|| format!("prompt {index} of {}", args.set.display()))?;
        other += usize::from(prompt.tokens != 0 && prompt.tokens != case.tokens());
        if case.tokens() <= most {
            indices.push(index);
            cases.push(case);
        }
    }
    ensure!(!cases.is_empty(), "no prompt of {} has at most {most} tokens", args.set.display());
    if other > 0 {
        note(&format!(
            "note: {other} prompts have other token counts than the set says: it was made for another tokenizer"
        ));
    }
    Ok((indices, cases))
}

fn write(dir: &Path, document: &Document<'_>, found: &Evaluation) -> Result<()> {
    let json = serde_json::to_string(&Full { document, prompt_scores: &found.prompts })?;
    let svg = crate::report::svg(&show::panels(&found.rows))?;
    for (name, text) in [("quality.json", json), ("quality.svg", svg)] {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("wrote {}", path.display()));
    }
    Ok(())
}
