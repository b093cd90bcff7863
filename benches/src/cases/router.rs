//! Routers of experts.

use std::sync::Arc;

use seam_conformance::tolerance::{EXACT, ROUTER_WEIGHT};
use seam_device::Device;
use seam_ops::{Router, Scoring};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::reference::{compare, output, sampled, sigmoid, wide, word};
use crate::registry::Scale;

/// What the weights of the sigmoid router are multiplied by.
const SCALE: f32 = 2.5;

struct Sizes {
    rows: u32,
    experts: u32,
    top: usize,
    /// Groups, and those that are kept.
    groups: (u32, u32),
}

fn sizes(scale: Scale) -> Sizes {
    match scale {
        Scale::Small => Sizes { rows: 40, experts: 32, top: 4, groups: (4, 2) },
        Scale::Real => Sizes { rows: 512, experts: 256, top: 8, groups: (8, 4) },
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let Sizes { rows, experts, top, groups } = sizes(scale);
    format!("{rows} rows, {top} of {experts} experts, {} of {} groups", groups.1, groups.0)
}

/// Indices of the values, largest first.
fn order(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    order
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let Sizes { rows, experts, top, groups: (groups, keep) } = sizes(scale);
    let mut random = Random::new(14);
    let mut lab = Lab::new(device);
    let pass = plain_pass(rows)?;
    let tables = lab.tables(&pass)?;
    let capacity = pass.shape.rows;
    let values = random.reals(rows * experts, -4.0, 4.0);
    let biases = random.reals(experts, -0.3, 0.3);
    let logits = lab.input("logits", capacity, experts, &values)?;
    let bias = lab.small("bias", 1, experts, &biases)?;
    let sigmoids = Scoring::Sigmoid { bias: &bias, groups, keep, renormalise: true, scale: SCALE };
    for scoring in [Scoring::Softmax { renormalise: true }, sigmoids] {
        let index = lab.output("index", capacity, rows, top as u32)?;
        let weight = lab.output("weight", capacity, rows, top as u32)?;
        lab.record(&Router { tables: &tables, logits: &logits, index: &index, weight: &weight, scoring })?;
    }
    let elements = 2 * u64::from(rows) * (u64::from(experts) + 2 * top as u64);
    let cost = Cost { bytes: Some(4 * elements), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let some = sampled(scale, rows);
        let of = |r: usize| wide(&values[r * experts as usize..][..experts as usize]);
        let shared = |chosen: Vec<usize>, score: &dyn Fn(usize) -> f64, scale: f64| -> (Vec<f64>, Vec<f64>) {
            let total: f64 = chosen.iter().map(|i| score(*i)).sum();
            chosen.into_iter().map(|i| (i as f64, score(i) / total * scale)).unzip()
        };
        let softmax = |r: usize| {
            let x = of(r);
            shared(order(&x)[..top].to_vec(), &|i| x[i].exp(), 1.0)
        };
        let grouped = |r: usize| {
            let scores: Vec<f64> = of(r).into_iter().map(sigmoid).collect();
            let choices: Vec<f64> = scores.iter().zip(&biases).map(|(s, b)| s + f64::from(*b)).collect();
            let size = (experts / groups) as usize;
            let best: Vec<f64> =
                choices.chunks_exact(size).map(|g| order(g)[..2].iter().map(|i| g[*i]).sum()).collect();
            let kept = &order(&best)[..keep as usize];
            let ranked = order(&choices).into_iter().filter(|i| kept.contains(&(i / size)));
            shared(ranked.take(top).collect(), &|i| scores[i], f64::from(SCALE))
        };
        // An index is a word: as a float it is that many of the smallest ones.
        let words = |i: usize| -> Vec<f32> { output(outputs, i).iter().map(|x| word(*x)).collect() };
        let cols = (top as u32, 1);
        Ok(vec![
            compare("softmax: experts", &words(0), cols, &some, EXACT, |r| softmax(r).0),
            compare("softmax: weights", output(outputs, 1), cols, &some, ROUTER_WEIGHT, |r| softmax(r).1),
            compare("groups: experts", &words(2), cols, &some, EXACT, |r| grouped(r).0),
            compare("groups: weights", output(outputs, 3), cols, &some, ROUTER_WEIGHT, |r| grouped(r).1),
        ])
    })
}
