//! Tokens chosen from logits: greedily, and by draws under every filter.

use std::sync::Arc;

use seam_conformance::tolerance::{EXACT, LOGPROB};
use seam_device::{BufferUse, Device};
use seam_ops::{Choice, OpError, PassBuilder, RunSpec, Sample};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{compare, output, sampled, wide, word};
use crate::registry::Scale;

/// Temperature, top-k, top-p, min-p; rows take them in turn.
const FILTERS: [(f32, u32, f32, f32); 6] = [
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (0.7, 20, 1.0, 0.0),
    (1.3, 0, 0.9, 0.0),
    (1.0, 50, 0.95, 0.05),
    (2.0, 0, 1.0, 0.1),
];

/// Rows and vocabulary.
fn sizes(scale: Scale) -> [u32; 2] {
    match scale {
        Scale::Small => [12, 700],
        Scale::Real => [64, 248_320],
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let [rows, vocab] = sizes(scale);
    format!("{rows} rows of {vocab}")
}

/// Tables of a pass of which every row wants logits, and how the token of each is chosen.
pub(crate) fn record(
    lab: &mut Lab,
    (rows, vocab): (u32, u32),
    values: &[f32],
    choices: &[Choice],
) -> Result<(), BenchError> {
    let mut pass = PassBuilder::new(0, 0, 1.0);
    let tokens = vec![0; rows as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    (0..rows).for_each(|row| {
        pass.logit(row);
    });
    let pass = pass.finish()?;
    let tables = lab.tables(&pass)?;
    let capacity = pass.shape.logits;
    let logits = lab.input("logits", capacity, vocab, values)?;
    let mut all = choices.to_vec();
    all.resize(capacity as usize, Choice::GREEDY);
    let bytes: &[u8] = bytemuck::cast_slice(&all);
    let buffer = lab.device().alloc("choices", bytes.len() as u64, BufferUse::Storage).map_err(OpError::from)?;
    lab.device().write(&buffer.all(), bytes)?;
    let out = lab.output("tokens", capacity, rows, 2)?;
    Ok(lab.record(&Sample { tables: &tables, logits: &logits, choices: &buffer.all(), out: &out })?)
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let [rows, vocab] = sizes(scale);
    let mut random = Random::new(16);
    let values = random.reals(rows * vocab, -6.0, 6.0);
    let draws: Vec<f32> = random.reals(rows, 0.0, 1.0);
    let choices: Vec<Choice> = (0..rows as usize)
        .map(|r| {
            let (temperature, top_k, top_p, min_p) = FILTERS[r % FILTERS.len()];
            // Exact: a draw has 24 bits.
            Choice::new(temperature, top_k, top_p, min_p, (f64::from(draws[r]) * 2f64.powi(64)) as u64)
        })
        .collect();
    let mut lab = Lab::new(device);
    record(&mut lab, (rows, vocab), &values, &choices)?;
    let elements = u64::from(rows) * u64::from(vocab);
    let cost = Cost { bytes: Some(4 * elements), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let some = sampled(scale, rows);
        let of = |r: usize| wide(&values[r * vocab as usize..][..vocab as usize]);
        let token = |r: usize| choose(&of(r), FILTERS[r % FILTERS.len()], f64::from(draws[r]));
        let logprob = |r: usize| {
            let x = of(r);
            let highest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            x[token(r)] - highest - x.iter().map(|x| (x - highest).exp()).sum::<f64>().ln()
        };
        let column =
            |at: usize| -> Vec<f32> { output(outputs, 0).chunks(2).filter_map(|pair| pair.get(at).copied()).collect() };
        let tokens: Vec<f32> = column(0).into_iter().map(word).collect();
        Ok(vec![
            compare("tokens", &tokens, (1, 1), &some, EXACT, |r| vec![token(r) as f64]),
            compare("log-probabilities", &column(1), (1, 1), &some, LOGPROB, |r| vec![logprob(r)]),
        ])
    })
}

/// By sorting, in f64: temperature, top-k, top-p, min-p, draw.
fn choose(x: &[f64], (temperature, top_k, top_p, min_p): (f32, u32, f32, f32), draw: f64) -> usize {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|a, b| x[*b].total_cmp(&x[*a]).then(a.cmp(b)));
    let best = order[0];
    if temperature == 0.0 {
        return best;
    }
    let weight = |i: usize| ((x[i] - x[best]) / f64::from(temperature)).exp();
    if top_k > 0 {
        order.truncate(top_k as usize);
    }
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut before = 0.0;
    order.retain(|&i| {
        let kept = before < f64::from(top_p) * total || top_p == 1.0;
        before += weight(i);
        kept
    });
    order.retain(|&i| weight(i) >= f64::from(min_p));
    order.sort_unstable();
    let target = draw * order.iter().map(|&i| weight(i)).sum::<f64>();
    let mut sum = 0.0;
    let found = order.iter().find(|&&i| {
        sum += weight(i);
        sum > target
    });
    found.copied().unwrap_or(best)
}
