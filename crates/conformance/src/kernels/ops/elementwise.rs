//! Norms and gates.

use seam_kernels::tables::ROWS;
use seam_ops::{GatedRmsNorm, GdnGate, L2Norm, Operation, RmsNorm};

use super::{Case, Checks, OnDevice};
use crate::kernels::measure::{rows, values};
use crate::tolerance::{GATE_BETA, GATE_DECAY, GATED_NORM, NORM};

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

/// `y = x̂·w·silu(z)`.
pub(super) fn gated_rms_norm(on: &OnDevice<'_>, case: &Case<'_>) -> Checks {
    case.only(&["x", "w", "z", "y"])?;
    let shape @ [count, groups, width] = case.shape("x")?;
    let cols = case.narrow(groups * width)?;
    let pass = on.rows(count)?;
    let x = on.tensor(&pass, "x", cols, &case.singles("x", &shape)?)?;
    let z = on.tensor(&pass, "z", cols, &case.singles("z", &shape)?)?;
    let weight = on.weight("w", &case.singles("w", &[width])?)?;
    let out = on.result(&pass, "y", cols)?;
    on.run(&pass, &|recorder, tables| {
        GatedRmsNorm { tables, x: &x, weight: &weight, z: &z, out: &out, eps: EPS }.record(recorder, on.device.caps())
    })?;
    Ok(vec![rows(&case.tensor("y"), &on.read(&out, count)?, &case.floats("y", &shape)?, width, GATED_NORM)])
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

/// `g = −exp(A_log)·softplus(a + dt_bias)`, `beta = sigmoid(b)`.
pub(super) fn gdn_gate(on: &OnDevice<'_>, case: &Case<'_>) -> Checks {
    case.only(&["a", "b", "A_log", "dt_bias", "g", "beta"])?;
    let shape @ [count, heads] = case.shape("a")?;
    let hv = case.narrow(heads)?;
    let pass = on.rows(count)?;
    let a = on.tensor(&pass, "a", hv, &case.singles("a", &shape)?)?;
    let b = on.tensor(&pass, "b", hv, &case.singles("b", &shape)?)?;
    let a_log = on.weight("A_log", &case.singles("A_log", &[heads])?)?;
    let dt_bias = on.weight("dt_bias", &case.singles("dt_bias", &[heads])?)?;
    let out = on.result(&pass, "gates", 2 * hv)?;
    on.run(&pass, &|recorder, tables| {
        GdnGate { tables, a: &a, b: &b, a_log: &a_log, dt_bias: &dt_bias, out: &out }.record(recorder, on.device.caps())
    })?;
    let found = on.read(&out, count)?;
    let part = |from: usize| -> Vec<f64> {
        found.chunks_exact(2 * heads).flat_map(|row| &row[from..from + heads]).copied().collect()
    };
    Ok(vec![
        values(&case.tensor("g"), &part(0), &case.floats("g", &shape)?, GATE_DECAY),
        values(&case.tensor("beta"), &part(heads), &case.floats("beta", &shape)?, GATE_BETA),
    ])
}
