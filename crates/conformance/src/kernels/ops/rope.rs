//! Rotations, through the operation that writes keys.

use seam_ops::{KvWrite, Operation, PassBuilder, RunSpec};

use super::{Case, Checks, OnDevice};
use crate::kernels::measure::rows;
use crate::tolerance::{EXACT, ROPE};

/// Epsilon of the norm in front of the rotation.
const EPS: f32 = 1e-6;

/// NeoX rotation of the first `rot` dimensions: `x` is `[rows, heads, head]`, row i at its own position.
///
/// Keys are normalised before they are rotated: `K = rope(x/√(mean(x²) + ε)·(1 + w))`. With w = 0 the norm is one factor
/// per head, which commutes with the rotation and is divided out here in f64; what remains is its rounding in f32. The
/// rows' values are written unchanged beside the keys.
pub(super) fn keys(on: &OnDevice<'_>, case: &Case<'_>, rot: u32, theta: f64) -> Checks {
    case.only(&["x", "pos", "y"])?;
    let shape @ [count, heads, head] = case.shape("x")?;
    let width = heads * head;
    let cols = case.narrow(width)?;
    let positions = case.golden.positions(case.name, "pos", &[count])?;
    let mut pass = PassBuilder::new(0, rot, theta);
    // KV rows in another order than the rows of the pass.
    let places: Vec<(u32, u32)> = (0..count as u32).rev().map(|row| (0, row)).collect();
    for (pos, place) in positions.iter().zip(&places) {
        let kv = std::slice::from_ref(place);
        pass.run(&RunSpec { tokens: &[0], pos: *pos, origin: 0, kv, spans: (0, 0), history: &[] })?;
    }
    let pass = pass.finish()?;
    let x = case.singles("x", &shape)?;
    let k = on.tensor(&pass, "k", cols, &x)?;
    let v = on.tensor(&pass, "v", cols, &x)?;
    let weight = on.weight("w", &vec![0.0; head])?;
    let slab = on.slab("private KV", count * 2 * width, &[])?;
    let range = slab.range(0, count as u64 * 8 * u64::from(cols))?;
    on.run(&pass, &|recorder, tables| {
        KvWrite { tables, k: &k, v: &v, weight: &weight, rot, eps: EPS, slab: (0, range.clone()) }
            .record(recorder, on.device.caps())
    })?;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for &(_, row) in &places {
        let row = on.words(&slab, row as usize * 2 * width, 2 * width)?;
        keys.extend_from_slice(&row[..width]);
        values.extend_from_slice(&row[width..]);
    }
    let x: Vec<f64> = x.into_iter().map(f64::from).collect();
    for (key, x) in keys.chunks_exact_mut(head).zip(x.chunks_exact(head)) {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / head as f64;
        let length = (mean + f64::from(EPS)).sqrt();
        key.iter_mut().for_each(|k| *k *= length);
    }
    Ok(vec![
        rows(&case.tensor("y"), &keys, &case.floats("y", &shape)?, head, ROPE),
        rows(&case.tensor("x (as values)"), &values, &x, head, EXACT),
    ])
}
