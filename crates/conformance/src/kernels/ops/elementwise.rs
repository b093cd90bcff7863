//! Norms.

use seam_kernels::tables::ROWS;
use seam_ops::{GatedRmsNorm, L2Norm, Operation, OutputGate, RmsNorm};

use super::{Case, Checks, OnDevice};
use crate::kernels::measure::rows;
use crate::tolerance::{GATED_NORM, NORM};

/// Epsilon of the goldens.
const EPS: f32 = 1e-6;

/// `y = x̂·w` or `x̂·(1 + w)` in groups: `x` is `[rows, groups, width]`.
pub(super) fn rms_norm(on: &OnDevice<'_>, case: &Case<'_>, centred: bool) -> Checks {
    case.only(&["x", "w", "y"])?;
    let shape @ [count, groups, width] = case.shape("x")?;
    let (groups, stride) = (case.narrow(groups)?, case.narrow(width)?);
    let pass = on.rows(count)?;
    let x = on.tensor(&pass, "x", groups * stride, &case.singles("x", &shape)?)?;
    let weight = on.weight("w", &case.singles("w", &[width])?)?;
    let out = on.result(&pass, "y", groups * stride)?;
    on.run(&pass, &|recorder, tables| {
        RmsNorm { rows: (tables, ROWS), x: &x, weight: &weight, out: &out, groups, stride, centred, eps: EPS }
            .record(recorder, on.device.caps())
    })?;
    Ok(vec![rows(&case.tensor("y"), &on.read(&out, count)?, &case.floats("y", &shape)?, width, NORM)])
}

/// `y = x̂·w·gate(z)`, each head with the same weights: `x` is `[rows, heads, width]`.
pub(super) fn gated_heads(on: &OnDevice<'_>, case: &Case<'_>, gate: OutputGate) -> Checks {
    let shape @ [_, heads, width] = case.shape("x")?;
    gated(on, case, &shape, &Gated { groups: heads, width, weights: width, gate, gate_first: false, eps: EPS })
}

/// `y = û·w` with `u = x·silu(z)`, or `x̂·w·sigmoid(z)`, in groups that have weights of their own: `x` is `[rows, width]`.
pub(super) fn gated_groups(on: &OnDevice<'_>, case: &Case<'_>, groups: usize, gate_first: bool) -> Checks {
    let shape @ [_, weights] = case.shape("x")?;
    if !weights.is_multiple_of(groups) {
        return Err(case.golden.not_understood(format!("{} has rows of {weights} in {groups} groups", case.name)));
    }
    let (gate, eps) = if gate_first { (OutputGate::Silu, 1e-5) } else { (OutputGate::Sigmoid, EPS) };
    gated(on, case, &shape, &Gated { groups, width: weights / groups, weights, gate, gate_first, eps })
}

struct Gated {
    groups: usize,
    width: usize,
    weights: usize,
    gate: OutputGate,
    gate_first: bool,
    eps: f32,
}

fn gated(on: &OnDevice<'_>, case: &Case<'_>, shape: &[usize], norm: &Gated) -> Checks {
    case.only(&["x", "w", "z", "y"])?;
    let Gated { groups, width, weights, gate, gate_first, eps } = *norm;
    let (cols, groups) = (case.narrow(groups * width)?, case.narrow(groups)?);
    let pass = on.rows(shape[0])?;
    let x = on.tensor(&pass, "x", cols, &case.singles("x", shape)?)?;
    let z = on.tensor(&pass, "z", cols, &case.singles("z", shape)?)?;
    let weight = on.weight("w", &case.singles("w", &[weights])?)?;
    let out = on.result(&pass, "y", cols)?;
    on.run(&pass, &|recorder, tables| {
        GatedRmsNorm { tables, x: &x, weight: &weight, z: &z, out: &out, groups, gate, gate_first, eps }
            .record(recorder, on.device.caps())
    })?;
    Ok(vec![rows(&case.tensor("y"), &on.read(&out, shape[0])?, &case.floats("y", shape)?, width, GATED_NORM)])
}

/// `y = x/√(Σx² + ε)`. The operation scales the first half of the groups, the queries, by `width^-0.5`: a power of two
/// at the width of 16, so that dividing it out on the host is exact.
pub(super) fn l2_norm(on: &OnDevice<'_>, case: &Case<'_>) -> Checks {
    case.only(&["x", "y"])?;
    let shape @ [count, groups, width] = case.shape("x")?;
    if !groups.is_multiple_of(2) || width != 16 {
        return Err(case.golden.not_understood(format!("{} has {groups} groups of {width}", case.name)));
    }
    let (heads, key) = (case.narrow(groups / 2)?, case.narrow(width)?);
    let pass = on.rows(count)?;
    let x = on.tensor(&pass, "x", 2 * heads * key, &case.singles("x", &shape)?)?;
    on.run(&pass, &|recorder, tables| {
        L2Norm { tables, x: &x, heads, key, eps: EPS }.record(recorder, on.device.caps())
    })?;
    let mut found = on.read(&x, count)?;
    for row in found.chunks_exact_mut(groups * width) {
        row[..groups * width / 2].iter_mut().for_each(|q| *q *= 4.0);
    }
    Ok(vec![rows(&case.tensor("y"), &found, &case.floats("y", &shape)?, width, NORM)])
}
