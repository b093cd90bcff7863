//! The norms of a layer.

use std::sync::Arc;

use seam_conformance::tolerance::{GATED_NORM, NORM};
use seam_device::Device;
use seam_kernels::tables::ROWS;
use seam_ops::{GatedRmsNorm, HeadNorm, L2Norm, OutputGate, RmsNorm};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::reference::{compare, dot, output, sampled, silu, wide};
use crate::registry::Scale;

const EPS: f32 = 1e-6;

struct Sizes {
    rows: u32,
    /// Residual stream.
    hidden: u32,
    /// Value heads, and key heads.
    heads: (u32, u32),
    /// Size of both.
    size: u32,
}

fn sizes(scale: Scale) -> Sizes {
    match scale {
        Scale::Small => Sizes { rows: 60, hidden: 256, heads: (4, 2), size: 64 },
        Scale::Real => Sizes { rows: 512, hidden: 4096, heads: (32, 16), size: 128 },
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let Sizes { rows, hidden, heads, size } = sizes(scale);
    format!("{rows} rows of {hidden}, {} and {} heads of {size}", heads.0, 2 * heads.1)
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let Sizes { rows, hidden, heads: (heads, keys), size } = sizes(scale);
    let (value, key) = (heads * size, 2 * keys * size);
    let mut random = Random::new(8);
    let mut lab = Lab::new(device);
    let pass = plain_pass(rows)?;
    let tables = lab.tables(&pass)?;
    let capacity = pass.shape.rows;
    let (h, h_weight) = (random.signed(rows * hidden), random.signed(hidden));
    let (o, z, o_weight) = (random.signed(rows * value), random.signed(rows * value), random.signed(size));
    let qk = random.signed(rows * key);

    let x = lab.input("h", capacity, hidden, &h)?;
    let weight = lab.small("norm", 1, hidden, &h_weight)?;
    let out = lab.output("normed", capacity, rows, hidden)?;
    lab.record(&RmsNorm {
        rows: (&tables, ROWS),
        x: &x,
        weight: &weight,
        out: &out,
        groups: 1,
        stride: hidden,
        centred: true,
        eps: EPS,
    })?;
    let x = lab.input("o", capacity, value, &o)?;
    let gate = lab.input("z", capacity, value, &z)?;
    let weight = lab.small("gated norm", 1, size, &o_weight)?;
    let out = lab.output("gated", capacity, rows, value)?;
    lab.record(&GatedRmsNorm {
        tables: &tables,
        x: &x,
        weight: &weight,
        z: &gate,
        out: &out,
        groups: heads,
        gate: OutputGate::Silu,
        gate_first: false,
        eps: EPS,
    })?;
    let x = lab.in_place("q and k", capacity, key, &qk)?;
    lab.record(&L2Norm { tables: &tables, x: &x, heads: keys, key: size, eps: EPS })?;
    // The last head of a row is no part of it.
    let (groups, qk_weight) = (2 * keys - 1, random.signed(key - size));
    let x = lab.in_place("q and k of lightning", capacity, key, &qk)?;
    let weight = lab.small("q and k norm", 1, key - size, &qk_weight)?;
    lab.record(&HeadNorm { tables: &tables, x: &x, weight: &weight, groups, eps: EPS })?;

    let elements = u64::from(rows) * u64::from(2 * hidden + 3 * value + 4 * key) + u64::from(hidden + size);
    let cost = Cost { bytes: Some(4 * elements), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let some = sampled(scale, rows);
        let of = |x: &[f32], cols: u32, r: usize| wide(&x[r * cols as usize..][..cols as usize]);
        let (head, size) = (size, size as usize);
        let rms = |x: &[f64]| (dot(x, x) / x.len() as f64 + f64::from(EPS)).sqrt();
        let normed = |r: usize| -> Vec<f64> {
            let x = of(&h, hidden, r);
            let root = rms(&x);
            x.iter().zip(&h_weight).map(|(x, w)| x / root * (1.0 + f64::from(*w))).collect()
        };
        let gated = |r: usize| -> Vec<f64> {
            let (x, z) = (of(&o, value, r), of(&z, value, r));
            let heads = x.chunks_exact(size).zip(z.chunks_exact(size));
            heads
                .flat_map(|(x, z)| {
                    let root = rms(x);
                    let one = move |((x, w), z): ((&f64, &f32), &f64)| x / root * f64::from(*w) * silu(*z);
                    x.iter().zip(&o_weight).zip(z).map(one).collect::<Vec<_>>()
                })
                .collect()
        };
        let unit = |r: usize| -> Vec<f64> {
            let x = of(&qk, key, r);
            let heads = x.chunks_exact(size).enumerate();
            heads
                .flat_map(|(i, x)| {
                    let scale = if i < keys as usize { 1.0 / (size as f64).sqrt() } else { 1.0 };
                    let root = (dot(x, x) + f64::from(EPS)).sqrt();
                    x.iter().map(move |x| x / root * scale)
                })
                .collect()
        };
        let heads = |r: usize| -> Vec<f64> {
            let x = of(&qk, key, r);
            let weights = qk_weight.chunks_exact(size).map(Some).chain([None]);
            let one = |(x, w): (&[f64], Option<&[f32]>)| {
                let root = rms(x);
                let weigh = |i: usize| w.map_or(1.0, |w| f64::from(w[i]) / root);
                x.iter().enumerate().map(|(i, x)| x * weigh(i)).collect::<Vec<f64>>()
            };
            x.chunks_exact(size).zip(weights).flat_map(one).collect()
        };
        Ok(vec![
            compare("rms norm", output(outputs, 0), (hidden, hidden), &some, NORM, normed),
            compare("gated rms norm", output(outputs, 1), (value, head), &some, GATED_NORM, gated),
            compare("l2 norm", output(outputs, 2), (key, head), &some, NORM, unit),
            compare("norm of heads", output(outputs, 3), (key, head), &some, NORM, heads),
        ])
    })
}
