//! Rotations, through the operation that writes keys and the one that works on the rows of a chain.

use seam_device::DType;
use seam_ops::{KeyNorm, KvWrite, Operation, Pairing, PassBuilder, PassTables, Rope, RunSpec};

use super::{Case, Checks, OnDevice};
use crate::kernels::golden::GoldenError;
use crate::kernels::measure::rows as groups;
use crate::tolerance::{EXACT, ROPE};

/// Epsilon of the norm in front of the rotation.
const EPS: f32 = 1e-6;

/// Columns behind q and k in a row, which are no part of the rotation.
const VALUES: usize = 5;

/// NeoX rotation in both operations.
pub(super) fn halves(on: &OnDevice<'_>, case: &Case<'_>, rot: u32, theta: f64) -> Checks {
    let mut checks = keys(on, case, rot, theta)?;
    checks.extend(rows(on, case, rot, theta, Pairing::Halves)?);
    Ok(checks)
}

/// The two heads of a golden's row as q and k of a chain's row, with a value behind them, rotated in place.
pub(super) fn rows(on: &OnDevice<'_>, case: &Case<'_>, rot: u32, theta: f64, pairing: Pairing) -> Checks {
    case.only(&["x", "pos", "y"])?;
    let shape @ [count, heads, head] = case.shape("x")?;
    if !heads.is_multiple_of(2) {
        return Err(case.golden.not_understood(format!("{} has {heads} heads, no q and k", case.name)));
    }
    let (width, key) = (heads * head, case.narrow(head)?);
    let pass = pass(case, count, rot, theta, |_| &[])?;
    let values: Vec<f32> = (0..count * VALUES).map(|i| i as f32 - 7.0).collect();
    let x = case.singles("x", &shape)?;
    let rows = x.chunks_exact(width).zip(values.chunks_exact(VALUES)).flat_map(|(x, v)| [x, v].concat());
    let x = on.tensor(&pass, "qkv", case.narrow(width + VALUES)?, &rows.collect::<Vec<f32>>())?;
    let heads = case.narrow(heads / 2)?;
    on.run(&pass, &|recorder, tables| {
        Rope { tables, x: &x, heads, key, rot, pairing }.record(recorder, on.device.caps())
    })?;
    let found = on.read(&x, count)?;
    let part = |from: usize, to: usize| -> Vec<f64> {
        found.chunks_exact(width + VALUES).flat_map(|row| &row[from..to]).copied().collect()
    };
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    Ok(vec![
        groups(&case.tensor("y (in rows)"), &part(0, width), &case.floats("y", &shape)?, head, ROPE),
        groups(&case.tensor("x (kept behind)"), &part(width, width + VALUES), &values, VALUES, EXACT),
    ])
}

/// A pass of `count` rows at the golden's positions; `places` gives a row's place in a KV slab, if it has one.
fn pass<'a>(
    case: &Case<'_>,
    count: usize,
    rot: u32,
    theta: f64,
    places: impl Fn(usize) -> &'a [(u32, u32)],
) -> Result<PassTables, GoldenError> {
    let positions = case.golden.whole(case.name, "pos", &[count])?;
    let mut pass = PassBuilder::new(0, rot, theta);
    for (i, pos) in positions.iter().enumerate() {
        pass.run(&RunSpec { tokens: &[0], pos: *pos, origin: 0, kv: places(i), spans: (0, 0), history: &[] })?;
    }
    Ok(pass.finish()?)
}

/// NeoX rotation of the first `rot` dimensions: `x` is `[rows, heads, head]`, row i at its own position.
///
/// Keys are normalised before they are rotated: `K = rope(x/√(mean(x²) + ε)·(1 + w))`. With w = 0 the norm is one factor
/// per head, which commutes with the rotation and is divided out here in f64; what remains is its rounding in f32. The
/// rows' values are written unchanged beside the keys.
fn keys(on: &OnDevice<'_>, case: &Case<'_>, rot: u32, theta: f64) -> Checks {
    case.only(&["x", "pos", "y"])?;
    let shape @ [count, heads, head] = case.shape("x")?;
    let width = heads * head;
    let (cols, size) = (case.narrow(width)?, case.narrow(head)?);
    // KV rows in another order than the rows of the pass.
    let places: Vec<(u32, u32)> = (0..count as u32).rev().map(|row| (0, row)).collect();
    let pass = pass(case, count, rot, theta, |i| &places[i..=i])?;
    let x = case.singles("x", &shape)?;
    let k = on.tensor(&pass, "k", cols, &x)?;
    let v = on.tensor(&pass, "v", cols, &x)?;
    let weight = on.weight("w", &vec![0.0; head])?;
    let slab = on.slab("private KV", count * 2 * width, &[])?;
    let range = slab.range(0, count as u64 * 8 * u64::from(cols))?;
    on.run(&pass, &|recorder, tables| {
        KvWrite {
            tables,
            k: &k,
            v: &v,
            norm: KeyNorm::Centred(&weight),
            head: size,
            rot,
            eps: EPS,
            slab: (0, range.clone()),
            dtype: DType::F32,
        }
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
        groups(&case.tensor("y"), &keys, &case.floats("y", &shape)?, head, ROPE),
        groups(&case.tensor("x (as values)"), &values, &x, head, EXACT),
    ])
}
