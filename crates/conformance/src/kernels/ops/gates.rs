//! Gates, as rows that chains read.

use seam_ops::{GdnGate, GlaGate, KdaGate, MambaGate, Operation};

use super::{Case, Checks, OnDevice};
use crate::kernels::measure::values;
use crate::tolerance::{GATE_BETA, GATE_DECAY};

/// Columns behind the gates of a row, which nothing may write.
const KEPT: u32 = 3;

/// `count` columns of rows of `row`, from column `from` on.
fn columns(found: &[f64], row: usize, from: usize, count: usize) -> Vec<f64> {
    found.chunks_exact(row).flat_map(|row| &row[from..from + count]).copied().collect()
}

/// `g = −exp(A_log)·softplus(a + dt_bias)`, `beta = sigmoid(b)`.
pub(super) fn gdn(on: &OnDevice<'_>, case: &Case<'_>) -> Checks {
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
    Ok(vec![
        values(&case.tensor("g"), &columns(&found, 2 * heads, 0, heads), &case.floats("g", &shape)?, GATE_DECAY),
        values(
            &case.tensor("beta"),
            &columns(&found, 2 * heads, heads, heads),
            &case.floats("beta", &shape)?,
            GATE_BETA,
        ),
    ])
}

/// `gk = ln sigmoid(x) / 16`: `x` is `[rows, heads, K]`.
pub(super) fn gla(on: &OnDevice<'_>, case: &Case<'_>) -> Checks {
    case.only(&["x", "gk"])?;
    let shape @ [count, heads, key] = case.shape("x")?;
    let width = case.narrow(heads * key)?;
    let pass = on.rows(count)?;
    let x = on.tensor(&pass, "x", width, &case.singles("x", &shape)?)?;
    let out = on.result(&pass, "gates", width + KEPT)?;
    on.run(&pass, &|recorder, tables| {
        GlaGate { tables, x: &x, normaliser: 16.0, out: &out }.record(recorder, on.device.caps())
    })?;
    let found = columns(&on.read(&out, count)?, (width + KEPT) as usize, 0, heads * key);
    Ok(vec![values(&case.tensor("gk"), &found, &case.floats("gk", &shape)?, GATE_DECAY)])
}

/// `g = −exp(A_log[h])·softplus(f + dt_bias)`, or `bound·sigmoid(exp(A_log[h])·(f + dt_bias))`: `f` is `[rows, heads, K]`.
/// The operation's beta has no golden; it is written from the first f of each head and held against f64.
pub(super) fn kda(on: &OnDevice<'_>, case: &Case<'_>, bound: Option<f32>) -> Checks {
    case.only(&["f", "A_log", "dt_bias", "g"])?;
    let shape @ [count, heads, key] = case.shape("f")?;
    let (width, row) = (case.narrow(heads * key)?, case.narrow(heads * (key + 1))? + KEPT);
    let pass = on.rows(count)?;
    let f_host = case.singles("f", &shape)?;
    let b_host: Vec<f32> = f_host.chunks_exact(key).map(|head| head[0]).collect();
    let f = on.tensor(&pass, "f", width, &f_host)?;
    let b = on.tensor(&pass, "b", width / case.narrow(key)?, &b_host)?;
    let a_log = on.weight("A_log", &case.singles("A_log", &[heads])?)?;
    let dt_bias = on.weight("dt_bias", &case.singles("dt_bias", &[heads, key])?)?;
    let [with, without] = [on.result(&pass, "gates", row)?, on.result(&pass, "gates without beta", row)?];
    on.run(&pass, &|recorder, tables| {
        for (b, out) in [(Some(&b), &with), (None, &without)] {
            KdaGate { tables, f: &f, b, a_log: &a_log, dt_bias: &dt_bias, bound, out }
                .record(recorder, on.device.caps())?;
        }
        Ok(())
    })?;
    let (with, without) = (on.read(&with, count)?, on.read(&without, count)?);
    let (row, width) = (row as usize, heads * key);
    let g = case.floats("g", &shape)?;
    let beta: Vec<f64> = b_host.iter().map(|b| 1.0 / (1.0 + (-f64::from(*b)).exp())).collect();
    Ok(vec![
        values(&case.tensor("g"), &columns(&with, row, 0, width), &g, GATE_DECAY),
        values(&case.tensor("g (without beta)"), &columns(&without, row, 0, width), &g, GATE_DECAY),
        values(&case.tensor("beta of f"), &columns(&with, row, width, heads), &beta, GATE_BETA),
    ])
}

/// `dt = clamp(softplus(x + dt_bias), limits)`, written as beta, and `g = −exp(A_log)·dt` with rates of this check.
pub(super) fn mamba(on: &OnDevice<'_>, case: &Case<'_>) -> Checks {
    case.only(&["x", "dt_bias", "dt", "dt_clamped"])?;
    let shape @ [count, heads] = case.shape("x")?;
    let (h, row) = (case.narrow(heads)?, 2 * case.narrow(heads)? + KEPT);
    let pass = on.rows(count)?;
    let x = on.tensor(&pass, "x", h, &case.singles("x", &shape)?)?;
    let dt_bias = on.weight("dt_bias", &case.singles("dt_bias", &[heads])?)?;
    // From slow heads to those that forget at once.
    let rates: Vec<f32> = (0..heads).map(|i| -4.0 + 7.0 * i as f32 / heads as f32).collect();
    let a_log = on.weight("A_log", &rates)?;
    let mut checks = Vec::new();
    for (name, limits) in [("dt", (0.0, f32::INFINITY)), ("dt_clamped", (0.01, 2.0))] {
        let out = on.result(&pass, "gates", row)?;
        on.run(&pass, &|recorder, tables| {
            MambaGate { tables, x: &x, a_log: &a_log, dt_bias: &dt_bias, limits, out: &out }
                .record(recorder, on.device.caps())
        })?;
        let found = on.read(&out, count)?;
        let dt = case.floats(name, &shape)?;
        let decays = dt.iter().enumerate().map(|(i, dt)| -f64::from(rates[i % heads]).exp() * dt);
        let part = |from: usize| columns(&found, row as usize, from, heads);
        let g = case.tensor(&format!("{name} (as g)"));
        checks.push(values(&g, &part(0), &decays.collect::<Vec<f64>>(), GATE_DECAY));
        checks.push(values(&case.tensor(name), &part(heads), &dt, GATE_DECAY));
    }
    Ok(checks)
}
