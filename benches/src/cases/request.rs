//! Requests to an engine over the fixture model.
//!
//! The reference is an engine on the processor whose passes are cut at other rows; for decoding it sees the answer all at
//! once. The model itself is held against a reference implementation by the goldens of the conformance crate.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seam_conformance::Check;
use seam_conformance::tolerance::{LOGITS, LOGITS_BF16, Tolerance};
use seam_cpu::CpuDevice;
use seam_device::{Device, Precision};
use seam_engine::{Engine, EngineOptions, Request, RunnerOptions};
use seam_pic::Budgets;

use crate::case::{Case, Cost, Sample, Work};
use crate::error::BenchError;
use crate::random::Random;
use crate::reference::output;
use crate::registry::Scale;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tiny_qwen35");

/// Tokens of the head, documents, tokens of each, tokens of the query, tokens of an answer.
fn sizes(scale: Scale) -> [u32; 5] {
    match scale {
        Scale::Small => [16, 2, 24, 8, 5],
        Scale::Real => [256, 8, 512, 64, 65],
    }
}

/// Rows of a pass of the reference: no divisor of what devices suggest.
fn reference_rows(scale: Scale) -> u32 {
    match scale {
        Scale::Small => 7,
        Scale::Real => 96,
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let [head, documents, tokens, query, _] = sizes(scale);
    format!("{head} + {documents} x {tokens} + {query} tokens")
}

pub(crate) fn decode_shape(scale: Scale) -> String {
    format!("{} tokens after {}", sizes(scale)[4] - 1, shape(scale))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cold,
    Warm,
    Decode,
}

pub(crate) fn cold(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    prepare(name, device, scale, Kind::Cold)
}

pub(crate) fn warm(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    prepare(name, device, scale, Kind::Warm)
}

pub(crate) fn decode(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    prepare(name, device, scale, Kind::Decode)
}

fn engine(device: &Arc<dyn Device>, runner: RunnerOptions) -> Result<Engine, BenchError> {
    // One tier, so that what is forgotten is gone.
    let budgets = Budgets { device: 1 << 30, host: 0, disk: None };
    Ok(Engine::load(Arc::clone(device), Path::new(MODEL), EngineOptions { runner, budgets, cache_dir: None })?)
}

fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale, kind: Kind) -> Result<Case, BenchError> {
    let [head, documents, tokens, query, answer] = sizes(scale);
    let mut engine = engine(device, RunnerOptions::default())?;
    let vocab = engine.runner().spec().vocab;
    let mut random = Random::new(12);
    let mut segment = |n: u32| -> Vec<u32> { (0..n).map(|_| random.below(vocab)).collect() };
    let mut segments = vec![segment(head)];
    segments.extend((0..documents).map(|_| segment(tokens)));
    segments.push(segment(query));
    let max_new = if kind == Kind::Decode { answer as usize } else { 1 };
    let request = Request { max_new, ..Request::new(segments) };
    // Fills the cache.
    engine.answer(&request, &mut |_| {})?;
    let tokens = if kind == Kind::Decode { max_new - 1 } else { request.prompt_tokens() };
    let cost = Cost { tokens: Some(tokens as u64), ..Cost::default() };
    let reference = request.clone();
    let tolerance = match device.caps().precision {
        Precision::F32 => LOGITS,
        Precision::Bf16 => LOGITS_BF16,
    };
    Ok(Case {
        name,
        cost,
        kernels: Vec::new(),
        work: Box::new(RequestWork { name, engine, request, kind }),
        reference: Box::new(move |outputs| compare(scale, kind, &reference, tolerance, outputs)),
    })
}

struct RequestWork {
    name: &'static str,
    engine: Engine,
    request: Request,
    kind: Kind,
}

impl RequestWork {
    fn device_time(&self) -> Duration {
        self.engine.runner().stats().device_time
    }
}

impl Work for RequestWork {
    fn run(&mut self) -> Result<Sample, BenchError> {
        if self.kind == Kind::Cold {
            self.engine.forget_device_entries();
        }
        let before = self.device_time();
        let start = Instant::now();
        let answer = self.engine.answer(&self.request, &mut |_| {})?;
        let total = start.elapsed();
        if (answer.work.cold_rows > 0) != (self.kind == Kind::Cold) || answer.tokens.len() != self.request.max_new {
            let (rows, tokens) = (answer.work.cold_rows, answer.tokens.len());
            let what = format!("{rows} rows of cold segments, {tokens} tokens of {}", self.request.max_new);
            return Err(BenchError::OtherWork { bench: self.name, what });
        }
        if self.kind == Kind::Decode {
            // The device does not tell the prompt's time from that of the answer.
            return Ok(Sample { host: answer.total.saturating_sub(answer.ttft), device: None });
        }
        let device = self.device_time() - before;
        Ok(Sample { host: total, device: (!device.is_zero()).then_some(device) })
    }

    /// Logits at the end of the prompt; for decoding the log-probabilities of the answer's tokens, then the tokens.
    fn outputs(&mut self) -> Result<Vec<Vec<f32>>, BenchError> {
        if self.kind == Kind::Decode {
            let answer = self.engine.answer(&self.request, &mut |_| {})?;
            return Ok(vec![answer.logprobs, answer.tokens.iter().map(|&t| t as f32).collect()]);
        }
        if self.kind == Kind::Cold {
            self.engine.forget_device_entries();
        }
        Ok(vec![self.engine.score(&self.request, &[0])?])
    }
}

fn compare(
    scale: Scale,
    kind: Kind,
    request: &Request,
    tolerance: Tolerance,
    outputs: &[Vec<f32>],
) -> Result<Vec<Check>, BenchError> {
    let device: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options::default());
    let runner = RunnerOptions { max_rows: Some(reference_rows(scale)), ..RunnerOptions::default() };
    let mut engine = engine(&device, runner)?;
    if kind != Kind::Decode {
        let logits: Vec<f64> = engine.score(request, &[0])?.into_iter().map(f64::from).collect();
        return Ok(vec![Check::compare("logits", output(outputs, 0), &logits, tolerance)]);
    }
    let vocab = engine.runner().spec().vocab;
    let valid = |t: &&f32| t.fract() == 0.0 && **t >= 0.0 && **t < vocab as f32;
    let tokens: Vec<u32> = output(outputs, 1).iter().take_while(valid).map(|&t| t as u32).collect();
    let given: Vec<i64> = output(outputs, 1).iter().map(|&t| t as i64).collect();
    let known = Check::tokens("tokens", &tokens, &given);
    if !known.passed() {
        return Ok(vec![known]);
    }
    let logits = engine.score(request, &tokens)?;
    let logprob = |(logits, token): (&[f32], &u32)| {
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        logits.get(*token as usize).map_or(f64::NAN, |&l| f64::from(l) - sum.ln())
    };
    let reference: Vec<f64> = logits.chunks_exact(vocab as usize).zip(&tokens).map(logprob).collect();
    Ok(vec![known, Check::compare("log-probabilities", output(outputs, 0), &reference, tolerance)])
}
