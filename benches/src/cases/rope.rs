//! Rotation of q and k in the rows of a chain, and the direct path of v past it.

use std::sync::Arc;

use seam_conformance::tolerance::{EXACT, ROPE, SKIP};
use seam_device::Device;
use seam_ops::{Pairing, PassBuilder, Rope, RunSpec, Skip};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{compare, output, rotated, sampled, wide};
use crate::registry::Scale;

/// Frequencies of Ring.
const THETA: f64 = 1e6;

/// Position of the first row.
const FIRST: u32 = 1000;

/// Rows, heads, their size, and rotated dimensions.
fn sizes(scale: Scale) -> [u32; 4] {
    match scale {
        Scale::Small => [60, 2, 64, 32],
        Scale::Real => [512, 16, 128, 64],
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let [rows, heads, size, rot] = sizes(scale);
    format!("{rows} rows, {heads} heads of {size}, {rot} rotated")
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let [rows, heads, size, rot] = sizes(scale);
    let (width, row) = (heads * size, 3 * heads * size);
    let mut random = Random::new(13);
    let mut pass = PassBuilder::new(0, rot, THETA);
    let tokens = vec![0; rows as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: FIRST, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    let pass = pass.finish()?;

    let (qkv, o, d) = (random.signed(rows * row), random.signed(rows * width), random.signed(heads));
    let mut lab = Lab::new(device);
    let tables = lab.tables(&pass)?;
    let x = lab.in_place("qkv", pass.shape.rows, row, &qkv)?;
    lab.record(&Rope { tables: &tables, x: &x, heads, key: size, rot, pairing: Pairing::Halves })?;
    let out = lab.in_place("o", pass.shape.rows, width, &o)?;
    let weight = lab.small("D", 1, heads, &d)?;
    lab.record(&Skip { tables: &tables, qkv: &x, offset: 2 * width, d: &weight, out: &out })?;
    let elements = u64::from(rows) * u64::from(4 * heads * rot + 3 * width);
    let cost = Cost { bytes: Some(4 * elements), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let some = sampled(scale, rows);
        let part = |x: &[f32], r: usize, from: u32, to: u32| -> Vec<f64> {
            wide(&x[r * row as usize..][from as usize..to as usize])
        };
        let turned = |r: usize| -> Vec<f64> {
            let heads = part(&qkv, r, 0, 2 * width);
            heads.chunks_exact(size as usize).flat_map(|x| rotated(x, rot, THETA, FIRST + r as u32)).collect()
        };
        let skipped = |r: usize| -> Vec<f64> {
            let (v, o) = (part(&qkv, r, 2 * width, row), wide(&o[r * width as usize..][..width as usize]));
            o.iter().zip(v).enumerate().map(|(c, (o, v))| o + f64::from(d[c / size as usize]) * v).collect()
        };
        let columns = |from: u32, to: u32| -> Vec<f32> {
            let rows = output(outputs, 0).chunks_exact(row as usize);
            rows.flat_map(|row| &row[from as usize..to as usize]).copied().collect()
        };
        Ok(vec![
            compare("q and k", &columns(0, 2 * width), (2 * width, size), &some, ROPE, turned),
            compare("v", &columns(2 * width, row), (width, width), &some, EXACT, |r| part(&qkv, r, 2 * width, row)),
            compare("skip", output(outputs, 1), (width, 1), &some, SKIP, skipped),
        ])
    })
}
