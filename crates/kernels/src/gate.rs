//! Gates as the chains of recurrences read them: rows of log-decays, then write strengths.
//!
//! A row of the result is `[g | beta]`: g is `[HV]` for a scalar decay and `[HV·K]` for a diagonal one, beta is `[HV]` if
//! the family has it. Rows may be longer than that; what lies behind is not touched.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, sigmoid, softplus};

/// Parameters of [`GLA_GATE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct GlaGateParams {
    /// Gates of a row, HV·K.
    pub width: u32,
    /// Elements from one row of the result to the next.
    pub row: u32,
    /// What the log-sigmoid is divided by; above 0.
    pub normaliser: f32,
    /// Zero.
    pub pad: u32,
}

/// `g = ln sigmoid(x) / normaliser` of gated linear attention; `x` is `[rows, HV·K]`, `out` `[rows, row]`.
///
/// Grid: x covers the width by 64, y the rows.
pub static GLA_GATE: Kernel = Kernel {
    id: KernelId(16),
    name: "gla_gate",
    wgsl: Some("gate/gla_gate.wgsl"),
    cuda: Some("gate/gla_gate.cu"),
    twin: Some(gla_gate),
    bindings: &[Binding::read("tables"), Binding::read("x"), Binding::write("out")],
    params: size_of::<GlaGateParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn gla_gate(args: &mut Args<'_>) {
    let p: GlaGateParams = args.params();
    let (t, x, out) = (View(args.words(0)), args.floats(1), args.take(2));
    let width = p.width as usize;
    out.par_chunks_mut(p.row as usize).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        for (out, x) in out.iter_mut().zip(&x[r * width..][..width]) {
            *out = -softplus(-x) / p.normaliser;
        }
    });
}

/// Parameters of [`KDA_GATE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct KdaGateParams {
    /// Gates of a row, H·K.
    pub width: u32,
    /// Key size K.
    pub head: u32,
    /// Elements from one row of the result to the next.
    pub row: u32,
    /// BOUNDED 1: the lower bound of g, below 0.
    pub bound: f32,
}

/// The gates of Kimi delta attention: `g = −exp(A_log[h])·softplus(f + dt_bias)`, or, BOUNDED 1 (Ling-3.0), `g =
/// bound·sigmoid(exp(A_log[h])·(f + dt_bias))`; BETA 1: then `beta = sigmoid(b)`.
///
/// `f` is `[rows, H·K]`, `b` `[rows, H]` (BETA 0: not read), `a_log` `[H]`, `dt_bias` `[H·K]`, `out` `[rows, row]`: all g
/// of a row, then all beta. Grid: x covers H·K, and H more for beta, by 64, y the rows.
pub static KDA_GATE: Kernel = Kernel {
    id: KernelId(17),
    name: "kda_gate",
    wgsl: Some("gate/kda_gate.wgsl"),
    cuda: Some("gate/kda_gate.cu"),
    twin: Some(kda_gate),
    bindings: &[
        Binding::read("tables"),
        Binding::read("f"),
        Binding::read("b"),
        Binding::read("a_log"),
        Binding::read("dt_bias"),
        Binding::write("out"),
    ],
    params: size_of::<KdaGateParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "BOUNDED", legal: &[0, 1] }, Constant { name: "BETA", legal: &[0, 1] }],
};

fn kda_gate(args: &mut Args<'_>) {
    let p: KdaGateParams = args.params();
    let (bounded, with_beta) = (args.constant(0) == 1, args.constant(1) == 1);
    let (t, f, b, a_log, dt_bias, out) =
        (View(args.words(0)), args.floats(1), args.floats(2), args.floats(3), args.floats(4), args.take(5));
    let (width, head) = (p.width as usize, p.head as usize);
    let heads = width / head;
    out.par_chunks_mut(p.row as usize).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        let (g, beta) = out.split_at_mut(width);
        for (c, g) in g.iter_mut().enumerate() {
            let (a, x) = (a_log[c / head].exp(), f[r * width + c] + dt_bias[c]);
            *g = if bounded { p.bound * sigmoid(a * x) } else { -a * softplus(x) };
        }
        if with_beta {
            beta.iter_mut().zip(&b[r * heads..][..heads]).for_each(|(beta, b)| *beta = sigmoid(*b));
        }
    });
}

/// Parameters of [`MAMBA_GATE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct MambaGateParams {
    /// Heads H.
    pub heads: u32,
    /// Elements from one row of the result to the next.
    pub row: u32,
    /// Least step.
    pub low: f32,
    /// Largest step; finite (the largest f32 where there is no limit).
    pub high: f32,
}

/// The gates of Mamba-2: `dt = clamp(softplus(x + dt_bias), low, high)`, `g = −exp(A_log)·dt`, `beta = dt`.
///
/// `x` is `[rows, H]`, `a_log`, `dt_bias` `[H]`, `out` `[rows, row]`: all g of a row, then all beta.
/// Grid: x covers H by 64, y the rows.
pub static MAMBA_GATE: Kernel = Kernel {
    id: KernelId(18),
    name: "mamba_gate",
    wgsl: Some("gate/mamba_gate.wgsl"),
    cuda: Some("gate/mamba_gate.cu"),
    twin: Some(mamba_gate),
    bindings: &[
        Binding::read("tables"),
        Binding::read("x"),
        Binding::read("a_log"),
        Binding::read("dt_bias"),
        Binding::write("out"),
    ],
    params: size_of::<MambaGateParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn mamba_gate(args: &mut Args<'_>) {
    let p: MambaGateParams = args.params();
    let (t, x, a_log, dt_bias, out) =
        (View(args.words(0)), args.floats(1), args.floats(2), args.floats(3), args.take(4));
    let heads = p.heads as usize;
    out.par_chunks_mut(p.row as usize).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        for h in 0..heads {
            let dt = softplus(x[r * heads + h] + dt_bias[h]).max(p.low).min(p.high);
            out[h] = -a_log[h].exp() * dt;
            out[heads + h] = dt;
        }
    });
}
