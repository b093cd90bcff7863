//! Gates of gated linear attention, Kimi delta attention and Mamba-2, as rows that chains read.

use std::sync::Arc;

use seam_conformance::tolerance::{GATE_BETA, GATE_DECAY};
use seam_device::Device;
use seam_ops::{GlaGate, KdaGate, MambaGate};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::reference::{compare, output, sampled, sigmoid, wide};
use crate::registry::Scale;

/// Divides the log-sigmoid.
const NORMALISER: f32 = 16.0;
/// Least gate of the bounded variant.
const BOUND: f32 = -5.0;
/// Limits of a step.
const LIMITS: (f32, f32) = (0.01, 2.0);

/// Rows, heads, and key size.
fn sizes(scale: Scale) -> [u32; 3] {
    match scale {
        Scale::Small => [60, 4, 64],
        Scale::Real => [512, 32, 128],
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let [rows, heads, key] = sizes(scale);
    format!("{rows} rows, {heads} heads of {key}")
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let [rows, heads, key] = sizes(scale);
    let width = heads * key;
    let mut random = Random::new(12);
    let mut lab = Lab::new(device);
    let pass = plain_pass(rows)?;
    let tables = lab.tables(&pass)?;
    let capacity = pass.shape.rows;
    let [f, steps, b] = [width, heads, heads].map(|cols| random.reals(rows * cols, -8.0, 4.0));
    let [a_log, dt_bias] = [heads, width].map(|n| random.reals(n, -2.0, 2.0));

    let x = lab.input("f", capacity, width, &f)?;
    let strengths = lab.input("b", capacity, heads, &b)?;
    let rates = lab.small("A_log", 1, heads, &a_log)?;
    let biases = lab.small("dt_bias", 1, width, &dt_bias)?;
    let gla = lab.output("GLA gates", capacity, rows, width)?;
    lab.record(&GlaGate { tables: &tables, x: &x, normaliser: NORMALISER, out: &gla })?;
    for bound in [None, Some(BOUND)] {
        let out = lab.output("KDA gates", capacity, rows, width + heads)?;
        lab.record(&KdaGate {
            tables: &tables,
            f: &x,
            b: Some(&strengths),
            a_log: &rates,
            dt_bias: &biases,
            bound,
            out: &out,
        })?;
    }
    let mamba = lab.output("Mamba gates", capacity, rows, 2 * heads)?;
    lab.record(&MambaGate {
        tables: &tables,
        x: &lab.input("dt", capacity, heads, &steps)?,
        a_log: &rates,
        dt_bias: &lab.small("dt_bias of heads", 1, heads, &dt_bias[..heads as usize])?,
        limits: LIMITS,
        out: &mamba,
    })?;

    let elements = u64::from(rows) * u64::from(6 * width + 7 * heads);
    let cost = Cost { bytes: Some(4 * elements), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let some = sampled(scale, rows);
        let of = |x: &[f32], cols: u32, r: usize| wide(&x[r * cols as usize..][..cols as usize]);
        let rate = |h: usize| f64::from(a_log[h]).exp();
        let gla = |r: usize| of(&f, width, r).iter().map(|x| -softplus(-x) / f64::from(NORMALISER)).collect();
        let biased =
            |r: usize| -> Vec<f64> { of(&f, width, r).iter().zip(&dt_bias).map(|(x, b)| x + f64::from(*b)).collect() };
        let plain = |r: usize| -> Vec<f64> {
            biased(r).iter().enumerate().map(|(c, x)| -rate(c / key as usize) * softplus(*x)).collect()
        };
        let bounded = |r: usize| -> Vec<f64> {
            let one = |(c, x): (usize, &f64)| f64::from(BOUND) * sigmoid(rate(c / key as usize) * x);
            biased(r).iter().enumerate().map(one).collect()
        };
        let beta = |r: usize| -> Vec<f64> { of(&b, heads, r).into_iter().map(sigmoid).collect() };
        let step = |r: usize| -> Vec<f64> {
            let (low, high) = (f64::from(LIMITS.0), f64::from(LIMITS.1));
            of(&steps, heads, r)
                .iter()
                .zip(&dt_bias)
                .map(|(x, b)| softplus(x + f64::from(*b)).clamp(low, high))
                .collect()
        };
        let decay = |r: usize| -> Vec<f64> { step(r).iter().enumerate().map(|(h, dt)| -rate(h) * dt).collect() };
        let part = |i: usize, row: u32, from: u32, cols: u32| -> Vec<f32> {
            let rows = output(outputs, i).chunks_exact(row as usize);
            rows.flat_map(|row| &row[from as usize..][..cols as usize]).copied().collect()
        };
        let row = width + heads;
        let gate = |name, found: &[f32], cols, tolerance, row: &dyn Fn(usize) -> Vec<f64>| {
            compare(name, found, (cols, 1), &some, tolerance, row)
        };
        Ok(vec![
            gate("GLA g", output(outputs, 0), width, GATE_DECAY, &gla),
            gate("KDA g", &part(1, row, 0, width), width, GATE_DECAY, &plain),
            gate("KDA beta", &part(1, row, width, heads), heads, GATE_BETA, &beta),
            gate("bounded KDA g", &part(2, row, 0, width), width, GATE_DECAY, &bounded),
            gate("bounded KDA beta", &part(2, row, width, heads), heads, GATE_BETA, &beta),
            gate("Mamba g", &part(3, 2 * heads, 0, heads), heads, GATE_DECAY, &decay),
            gate("Mamba dt", &part(3, 2 * heads, heads, heads), heads, GATE_DECAY, &step),
        ])
    })
}
