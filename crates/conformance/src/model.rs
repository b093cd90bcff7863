//! A model folder with `golden.safetensors` against the engine: logits, hidden states, states, greedy continuations.

use std::path::Path;
use std::sync::Arc;

use seam_device::Device;
use seam_engine::{Engine, EngineError, EngineOptions, Request, Runner, Tap};
use seam_model::weights::{Weights, WeightsError};
use seam_pic::{Item, Mode, Sequence};

use crate::report::{Check, Report};
use crate::tolerance::{HIDDEN, LOGITS, STATE, Tolerance};

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The golden file.
    #[error(transparent)]
    Golden(#[from] WeightsError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A golden tensor that no check knows: it would otherwise pass unseen.
    #[error("golden tensor {0} is not understood")]
    Unknown(String),
    /// A device.
    #[error(transparent)]
    Op(#[from] seam_ops::OpError),
}

/// Lengths into which prompts are cut again, to see that a cut changes nothing: prefill in pieces of this many rows.
const CUT: u32 = 17;

struct Golden(Weights);

impl Golden {
    fn floats(&self, name: &str) -> Result<Vec<f64>, CheckError> {
        Ok(self.0.get(name)?.to_f64()?)
    }

    fn ids(&self, name: &str) -> Result<Vec<i64>, CheckError> {
        Ok(self.0.get(name)?.to_i64()?)
    }

    fn prompt(&self, name: &str) -> Result<Vec<u32>, CheckError> {
        Ok(self.ids(name)?.into_iter().map(|id| u32::try_from(id).unwrap_or(u32::MAX)).collect())
    }
}

/// Compares the model in `dir` with its `golden.safetensors` on `device`.
///
/// # Errors
/// [`CheckError`] if the model or the golden file cannot be used. A difference is in the report, not an error.
pub fn check(device: &Arc<dyn Device>, dir: &Path, options: &EngineOptions) -> Result<Report, CheckError> {
    let golden = Golden(Weights::open_file(&dir.join("golden.safetensors"))?);
    let mut engine = Engine::load(Arc::clone(device), dir, options.clone())?;
    let mut report = Report {
        fixture: dir.file_name().map_or_else(|| dir.display().to_string(), |n| n.to_string_lossy().into_owned()),
        device: format!("{} ({})", device.caps().kind, device.caps().name),
        checks: Vec::new(),
        skipped: Vec::new(),
    };
    let names: Vec<String> = golden.0.names().map(str::to_owned).collect();
    for name in &names {
        let Some((prompt, kind)) = name.split_once('.') else { return Err(CheckError::Unknown(name.clone())) };
        match kind {
            "input_ids" => check_prompt(&mut engine, &golden, prompt, &names, &mut report)?,
            "output_ids" => check_greedy(&mut engine, &golden, prompt, &mut report)?,
            _ if names.contains(&format!("{prompt}.input_ids")) => {}
            _ => return Err(CheckError::Unknown(name.clone())),
        }
    }
    let compared: usize = report.checks.iter().filter(|c| !c.name.ends_with(CUT_SUFFIX)).count();
    let prompts = names.iter().filter(|n| n.ends_with("input_ids")).count();
    if compared + prompts != names.len() {
        let missing = names.iter().find(|n| !n.ends_with("input_ids") && !report.checks.iter().any(|c| &c.name == *n));
        return Err(CheckError::Unknown(missing.cloned().unwrap_or_default()));
    }
    Ok(report)
}

const CUT_SUFFIX: &str = " (in pieces)";

fn run(
    runner: &mut Runner,
    tokens: &[u32],
    logits_from: usize,
    cut: Option<u32>,
) -> Result<(Sequence, Vec<f32>, Vec<Tap>), CheckError> {
    let spec = runner.spec().clone();
    let items = match cut {
        None => vec![Item::Rows { tokens: tokens.to_vec(), origin: 0, logits_from }],
        Some(n) => tokens
            .chunks(n as usize)
            .enumerate()
            .map(|(i, piece)| {
                let start = i * n as usize;
                Item::Rows { tokens: piece.to_vec(), origin: 0, logits_from: logits_from.saturating_sub(start) }
            })
            .collect(),
    };
    let mut taps = Vec::new();
    let mut logits = Vec::new();
    let mut sequence;
    if cut.is_some() {
        // Each piece in a pass of its own, as a long prompt beside others would be.
        sequence = Sequence::new(&mut runner.memory, &spec, Vec::new(), tokens.len() as u32, false)
            .map_err(EngineError::from)?;
        for item in items {
            sequence.append(item);
            logits.extend(runner.advance(&mut [&mut sequence])?.pop().unwrap_or_default());
        }
    } else {
        sequence = Sequence::new(&mut runner.memory, &spec, items, 0, false).map_err(EngineError::from)?;
        (logits, taps) = runner.trace(&mut sequence, &|_| true)?;
    }
    Ok((sequence, logits, taps))
}

fn check_prompt(
    engine: &mut Engine,
    golden: &Golden,
    prompt: &str,
    names: &[String],
    report: &mut Report,
) -> Result<(), CheckError> {
    let tokens = golden.prompt(&format!("{prompt}.input_ids"))?;
    let name = format!("{prompt}.logits");
    let reference = golden.floats(&name)?;
    let runner = engine.runner_mut();
    let rows = reference.len() / runner.spec().vocab as usize;
    // All rows where hidden states are checked: `final_norm` is only computed for rows that want logits.
    let hidden = names.iter().any(|n| n == &format!("{prompt}.hidden.final_norm"));
    let from = if hidden { 0 } else { tokens.len().saturating_sub(rows) };
    let (sequence, logits, taps) = run(runner, &tokens, from, None)?;
    let skip = logits.len().saturating_sub(reference.len());
    report.checks.push(Check::compare(&name, &logits[skip..], &reference, LOGITS));
    let mut layers = Vec::new();
    for name in names.iter().filter(|n| n.starts_with(&format!("{prompt}."))) {
        let Some(rest) = name.strip_prefix(&format!("{prompt}.")) else { continue };
        if let Some(tensor) = rest.strip_prefix("state.layer") {
            layers.push((name, tensor));
        } else if let Some(tensor) = rest.strip_prefix("hidden.") {
            let values = taps.iter().find(|t| t.name == tensor).map(|t| t.values.clone()).unwrap_or_default();
            report.checks.push(Check::compare(name, &values, &golden.floats(name)?, HIDDEN));
        } else if rest.contains(".gdn.") {
            report.checks.push(check_gdn(runner, golden, name, rest, &taps)?);
        }
    }
    for (name, tensor) in &layers {
        report.checks.push(check_state(runner, golden, &sequence, name, tensor, tokens.len())?);
    }
    sequence.release(&mut runner.memory);
    let (sequence, logits, _) = run(runner, &tokens, from, Some(CUT))?;
    sequence.release(&mut runner.memory);
    let skip = logits.len().saturating_sub(reference.len());
    report.checks.push(Check::compare(&format!("{name}{CUT_SUFFIX}"), &logits[skip..], &reference, LOGITS));
    Ok(())
}

/// `layer<i>.gdn.{q,k,v,g,beta,o}` from the probes `layer<i>.gdn.{qkv,gates,o}`.
fn check_gdn(runner: &Runner, golden: &Golden, name: &str, rest: &str, taps: &[Tap]) -> Result<Check, CheckError> {
    let unknown = || CheckError::Unknown(name.to_owned());
    let (layer, part) = rest.split_once(".gdn.").ok_or_else(unknown)?;
    let linear = runner.spec().linear.ok_or_else(unknown)?;
    let r = linear.recurrence;
    let keys = (r.heads * r.key) as usize;
    let (hv, values) = (r.value_heads as usize, r.out() as usize);
    let (tap, range) = match part {
        "q" => ("qkv", 0..keys),
        "k" => ("qkv", keys..2 * keys),
        "v" => ("qkv", 2 * keys..2 * keys + values),
        "g" => ("gates", 0..hv),
        "beta" => ("gates", hv..2 * hv),
        "o" => ("o", 0..values),
        _ => return Err(unknown()),
    };
    let tap = taps.iter().find(|t| t.name == format!("{layer}.gdn.{tap}")).ok_or_else(unknown)?;
    let found: Vec<f32> = tap.values.chunks(tap.cols).flat_map(|row| &row[range.clone()]).copied().collect();
    Ok(Check::compare(name, &found, &golden.floats(name)?, STATE))
}

fn check_state(
    runner: &Runner,
    golden: &Golden,
    sequence: &Sequence,
    name: &str,
    tensor: &str,
    tokens: usize,
) -> Result<Check, CheckError> {
    let unknown = || CheckError::Unknown(name.to_owned());
    let (layer, kind) = tensor.split_once('.').ok_or_else(unknown)?;
    let layer: usize = layer.parse().map_err(|_| unknown())?;
    let linear_index = || runner.spec().linear_index(layer).ok_or_else(unknown);
    let reference = golden.floats(name)?;
    let tolerance: Tolerance = STATE;
    let found = match kind {
        "recurrent_state" => runner.read_state(sequence, linear_index()?)?.0,
        "conv_state" => {
            // The golden keeps 4 columns `[channels, 4]`, of which the last k−1 matter; the slot is `[k−1, channels]`.
            let tail = runner.read_state(sequence, linear_index()?)?.1;
            let channels = runner.spec().linear.map_or(0, |l| l.channels as usize);
            let kept = tail.len() / channels.max(1);
            let columns = reference.len() / channels.max(1);
            let wanted: Vec<f64> =
                reference.chunks(columns.max(1)).flat_map(|row| &row[columns - kept..]).copied().collect();
            let found: Vec<f32> = (0..channels)
                .flat_map(|c| (0..kept).map(move |i| (c, i)))
                .map(|(c, i)| tail[i * channels + c])
                .collect();
            return Ok(Check::compare(name, &found, &wanted, tolerance));
        }
        "keys" | "values" => {
            let (keys, values) = runner.read_kv(sequence, runner.spec().kv_index(layer).ok_or_else(unknown)?)?;
            let rows = if kind == "keys" { keys } else { values };
            let kv = runner.spec().kv.ok_or_else(unknown)?;
            let head = kv.head as usize;
            let width = kv.width() as usize;
            (0..kv.heads as usize)
                .flat_map(|h| (0..tokens).map(move |t| t * width + h * head))
                .flat_map(|at| rows[at..at + head].to_vec())
                .collect()
        }
        _ => return Err(unknown()),
    };
    Ok(Check::compare(name, &found, &reference, tolerance))
}

fn check_greedy(engine: &mut Engine, golden: &Golden, name: &str, report: &mut Report) -> Result<(), CheckError> {
    let full = format!("{name}.output_ids");
    let reference = golden.ids(&full)?;
    let length = name.strip_prefix("greedy").ok_or_else(|| CheckError::Unknown(full.clone()))?;
    let prompt = golden.prompt(&format!("p{length}.input_ids"))?;
    let request = Request { mode: Mode::Full, max_new: reference.len(), ..Request::new(vec![prompt]) };
    let answer = engine.answer(&request, &mut |_| {})?;
    report.checks.push(Check::tokens(&full, &answer.tokens, &reference));
    Ok(())
}
