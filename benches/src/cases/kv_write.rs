//! Keys and values of a pass into a slab.

use std::sync::Arc;

use seam_conformance::tolerance::{EXACT, KEYS, KEYS_BF16};
use seam_device::{DType, Device};
use seam_ops::{KeyNorm, KvWrite, PassBuilder, RunSpec, kv_dtype};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{compare, dot, output, part, rotated, sampled, wide};
use crate::registry::Scale;

const EPS: f32 = 1e-6;

/// Frequencies of Qwen3.5.
const THETA: f64 = 1e7;

/// Where the segment begins: keys are rotated by their distance from it.
const ORIGIN: u32 = 1000;

/// Rows, KV heads, their size, and rotated dimensions.
fn sizes(scale: Scale) -> [u32; 4] {
    match scale {
        Scale::Small => [60, 2, 64, 16],
        Scale::Real => [512, 4, 256, 64],
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let [rows, heads, size, rot] = sizes(scale);
    format!("{rows} rows, {heads} heads of {size}, {rot} rotated")
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let [rows, heads, size, rot] = sizes(scale);
    let width = heads * size;
    let mut random = Random::new(11);
    let mut pass = PassBuilder::new(0, rot, THETA);
    // KV rows in another order than the rows of the pass.
    let places: Vec<(u32, u32)> = (0..rows).rev().map(|row| (0, row)).collect();
    let tokens = vec![0; rows as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: ORIGIN, origin: ORIGIN, kv: &places, spans: (0, 0), history: &[] })?;
    let pass = pass.finish()?;

    let (keys, values, norm) = (random.signed(rows * width), random.signed(rows * width), random.signed(size));
    let mut lab = Lab::new(device);
    let tables = lab.tables(&pass)?;
    let k = lab.input("k", pass.shape.rows, width, &keys)?;
    let v = lab.input("v", pass.shape.rows, width, &values)?;
    let weight = lab.small("key norm", 1, size, &norm)?;
    let dtype = kv_dtype(device.caps(), size);
    let words = rows * 2 * width * dtype.size() as u32 / 4;
    let slab = lab.slab("KV", &vec![0.0; words as usize])?;
    lab.written(&slab, 0, words)?;
    let range = slab.range(0, u64::from(words) * 4)?;
    lab.record(&KvWrite {
        tables: &tables,
        k: &k,
        v: &v,
        norm: KeyNorm::Centred(&weight),
        head: size,
        rot,
        eps: EPS,
        slab: (0, range),
        dtype,
    })?;
    let cost = Cost {
        bytes: Some((8 + 2 * dtype.size() as u64) * u64::from(rows) * u64::from(width) + 4 * u64::from(size)),
        ..Cost::default()
    };
    lab.finish(name, cost, move |outputs| {
        let unpacked: Vec<f32>;
        let slab = if dtype == DType::BF16 {
            let pair = |w: &f32| [w.to_bits() << 16, w.to_bits() & 0xffff_0000].map(f32::from_bits);
            unpacked = output(outputs, 0).iter().flat_map(pair).collect();
            &unpacked[..]
        } else {
            output(outputs, 0)
        };
        let halves = |which: usize| -> Vec<f32> {
            let at = |row: u32| (2 * row as usize + which) * width as usize;
            places.iter().flat_map(|&(_, row)| part(slab, at(row), width as usize)).copied().collect()
        };
        let of = |x: &[f32], r: usize| wide(&x[r * width as usize..][..width as usize]);
        let key = |r: usize| -> Vec<f64> {
            let heads = of(&keys, r);
            let heads = heads.chunks_exact(size as usize);
            heads
                .flat_map(|k| {
                    let root = (dot(k, k) / k.len() as f64 + f64::from(EPS)).sqrt();
                    let normed: Vec<f64> = k.iter().zip(&norm).map(|(k, w)| k / root * (1.0 + f64::from(*w))).collect();
                    rotated(&normed, rot, THETA, r as u32)
                })
                .collect()
        };
        let value = |r: usize| -> Vec<f64> {
            let round = |x: f64| if dtype == DType::BF16 { half::bf16::from_f64(x).to_f64() } else { x };
            of(&values, r).into_iter().map(round).collect()
        };
        let written = if dtype == DType::BF16 { KEYS_BF16 } else { KEYS };
        let some = sampled(scale, rows);
        Ok(vec![
            compare("keys", &halves(0), (width, size), &some, written, key),
            compare("values", &halves(1), (width, width), &some, EXACT, value),
        ])
    })
}
