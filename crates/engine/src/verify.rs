//! How far a spliced prompt is from recomputing it in full.

use seam_pic::{Mode, Sequence};
use serde::Serialize;

use crate::engine::{Engine, items};
use crate::error::EngineError;
use crate::request::Request;
use crate::runner::Tap;

/// Drift in one layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerDrift {
    /// The layer, counted from 0.
    pub layer: usize,
    /// Whether it has full attention.
    pub full_attention: bool,
    /// `‖h_mode − h_full‖ / ‖h_full‖` of the residual stream after the layer, over the query's rows.
    pub hidden: f64,
    /// The same of the recurrent state after the prompt; `None` for a layer without one.
    pub state: Option<f64>,
}

/// A spliced prompt beside its full recomputation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// Each layer.
    pub layers: Vec<LayerDrift>,
    /// KL(full‖mode) of the distribution of the first answer token, in nats.
    pub kl: f64,
    /// The answer by full recomputation (greedy or with the request's seed).
    pub full_tokens: Vec<u32>,
    /// Index of the first token in which the answers differ.
    pub first_difference: Option<usize>,
}

struct Traced {
    logits: Vec<f32>,
    taps: Vec<Tap>,
    states: Vec<Vec<f32>>,
}

impl Engine {
    /// Compares a request with its full recomputation; `tokens` is the answer that its mode gave.
    ///
    /// # Errors
    /// As [`Engine::answer`].
    pub fn verify(&mut self, request: &Request, tokens: &[u32]) -> Result<Drift, EngineError> {
        let mode = self.traced(request)?;
        let full_request = Request { mode: Mode::Full, ..request.clone() };
        let full = self.traced(&full_request)?;
        let answer = self.answer(&full_request, &mut |_| {})?;
        let spec = self.runner.spec();
        let layers = (0..spec.layers.len())
            .map(|layer| {
                let name = format!("layer{layer}");
                let rows = |t: &Traced| t.taps.iter().find(|tap| tap.name == name).map(|tap| tap.values.clone());
                let hidden = relative(&rows(&mode).unwrap_or_default(), &rows(&full).unwrap_or_default());
                let state = spec.linear_index(layer).map(|i| relative(&mode.states[i], &full.states[i]));
                LayerDrift { layer, full_attention: spec.layers[layer].kv, hidden, state }
            })
            .collect();
        let longest = tokens.len().max(answer.tokens.len());
        let first_difference = (0..longest).find(|&i| tokens.get(i) != answer.tokens.get(i));
        Ok(Drift { layers, kl: kl(&full.logits, &mode.logits), full_tokens: answer.tokens, first_difference })
    }

    fn traced(&mut self, request: &Request) -> Result<Traced, EngineError> {
        let spec = self.runner.spec().clone();
        let (parts, query) = request.check(spec.vocab, spec.max_position)?;
        let prepared = self.prepare(parts, request)?;
        let items = items(request, parts, query, &prepared, query.len() - 1);
        let result = match Sequence::new(&mut self.runner.memory, &spec, items, 0, false) {
            Ok(mut sequence) => {
                let result = self.trace_sequence(&mut sequence, query.len());
                sequence.release(&mut self.runner.memory);
                result
            }
            Err(full) => Err(full.into()),
        };
        self.cache.unpin(prepared.pinned());
        result
    }

    fn trace_sequence(&mut self, sequence: &mut Sequence, query: usize) -> Result<Traced, EngineError> {
        let filter = |name: &str| name.strip_prefix("layer").is_some_and(|n| n.parse::<usize>().is_ok());
        let (logits, mut taps) = self.runner.trace(sequence, &filter)?;
        for tap in &mut taps {
            let skip = tap.values.len().saturating_sub(query * tap.cols);
            tap.values.drain(..skip);
        }
        let layers = self.runner.spec().linear.map_or(0, |l| l.layers);
        let states: Result<Vec<_>, _> =
            (0..layers).map(|l| self.runner.read_state(sequence, l).map(|(state, _)| state)).collect();
        Ok(Traced { logits, taps, states: states? })
    }
}

/// `‖a − b‖ / ‖b‖`.
fn relative(a: &[f32], b: &[f32]) -> f64 {
    let sum = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = sum(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let norm = sum(&mut b.iter().map(|b| f64::from(*b)));
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    if difference == 0.0 { 0.0 } else { difference / norm }
}

/// KL(p‖q) in nats of the distributions of two rows of logits.
fn kl(p: &[f32], q: &[f32]) -> f64 {
    let log_softmax = |logits: &[f32]| {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
        logits.iter().map(|l| f64::from(l - max) - sum.ln()).collect::<Vec<f64>>()
    };
    let (p, q) = (log_softmax(p), log_softmax(q));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
}
