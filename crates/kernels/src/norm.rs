//! Root-mean-square norms over contiguous groups of a row, and the l2 norm of q and k.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::View;
use crate::twin::{Args, dot, sigmoid, silu};

/// Parameters of [`RMS_NORM`] and [`GATED_RMS_NORM`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct NormParams {
    /// Groups in a row, each normalised alone.
    pub groups: u32,
    /// Elements of a group.
    pub width: u32,
    /// Elements from one row of x to the next.
    pub x_row: u32,
    /// Elements from one group of x to the next.
    pub x_group: u32,
    /// Header word that holds the number of rows.
    pub count: u32,
    /// 1: the weight is `1 + w` (zero-centred), 0: `w`.
    pub centred: u32,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Elements from the weights of one group to those of the next; 0: all groups share `width` weights.
    pub w_group: u32,
}

/// `y = x·rsqrt(mean(x²)+eps)·w` per group, statistics in f32; `w` is `[width]` or `[groups·width]` f32, `out` is
/// `[rows, groups·width]`.
///
/// Grid: x = groups, y = rows.
pub static RMS_NORM: Kernel = Kernel {
    id: KernelId(1),
    name: "rms_norm",
    wgsl: Some("norm/rms_norm.wgsl"),
    cuda: Some("norm/rms_norm.cu"),
    twin: Some(rms_norm),
    bindings: &[Binding::read("tables"), Binding::read("x"), Binding::read("w"), Binding::write("out")],
    params: size_of::<NormParams>(),
    workgroup: Workgroup::new(128, 512),
    constants: &[],
};

/// `y = rmsnorm(x)·w·gate(z)` per group; `z` has the shape of `out`.
///
/// GATE 0: `gate` is silu (GDN, GLA, RetNet), 1: sigmoid (KDA; Ring, with a weight a channel). GATED_FIRST 1: `y =
/// rmsnorm(x·gate(z))·w` (Mamba-2). Grid: x = groups, y = rows.
pub static GATED_RMS_NORM: Kernel = Kernel {
    id: KernelId(2),
    name: "gated_rms_norm",
    wgsl: Some("norm/gated_rms_norm.wgsl"),
    cuda: Some("norm/gated_rms_norm.cu"),
    twin: Some(gated_rms_norm),
    bindings: &[
        Binding::read("tables"),
        Binding::read("x"),
        Binding::read("w"),
        Binding::read("z"),
        Binding::write("out"),
    ],
    params: size_of::<NormParams>(),
    workgroup: Workgroup::new(128, 512),
    constants: &[Constant { name: "GATE", legal: &[0, 1] }, Constant { name: "GATED_FIRST", legal: &[0, 1] }],
};

fn normalise(p: &NormParams, g: usize, x: &[f32], w: &[f32], out: &mut [f32]) {
    let scale = 1.0 / (dot(x, x) / p.width as f32 + p.eps).sqrt();
    let one = if p.centred == 1 { 1.0 } else { 0.0 };
    for ((out, x), w) in out.iter_mut().zip(x).zip(&w[g * p.w_group as usize..]) {
        *out = x * scale * (one + w);
    }
}

fn rows<'a>(p: &NormParams, t: View<'_>, x: &'a [f32], r: usize, g: usize) -> Option<&'a [f32]> {
    (r < t.header(p.count as usize)).then(|| &x[r * p.x_row as usize + g * p.x_group as usize..][..p.width as usize])
}

fn rms_norm(args: &mut Args<'_>) {
    let p: NormParams = args.params();
    let (t, x, w, out) = (View(args.words(0)), args.floats(1), args.floats(2), args.take(3));
    let (groups, width) = (p.groups as usize, p.width as usize);
    out.par_chunks_mut(groups * width).enumerate().for_each(|(r, out)| {
        for (g, out) in out.chunks_mut(width).enumerate() {
            if let Some(x) = rows(&p, t, x, r, g) {
                normalise(&p, g, x, w, out);
            }
        }
    });
}

fn gated_rms_norm(args: &mut Args<'_>) {
    let p: NormParams = args.params();
    let gate = if args.constant(0) == 1 { sigmoid } else { silu };
    let gated_first = args.constant(1) == 1;
    let (t, x, w, z, out) = (View(args.words(0)), args.floats(1), args.floats(2), args.floats(3), args.take(4));
    let (groups, width) = (p.groups as usize, p.width as usize);
    out.par_chunks_mut(groups * width).enumerate().for_each(|(r, out)| {
        for (g, out) in out.chunks_mut(width).enumerate() {
            let Some(x) = rows(&p, t, x, r, g) else { return };
            let z = &z[(r * groups + g) * width..][..width];
            if gated_first {
                let gated: Vec<f32> = x.iter().zip(z).map(|(x, z)| x * gate(*z)).collect();
                normalise(&p, g, &gated, w, out);
            } else {
                normalise(&p, g, x, w, out);
                out.iter_mut().zip(z).for_each(|(out, z)| *out *= gate(*z));
            }
        }
    });
}

/// Parameters of [`L2_NORM`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct L2Params {
    /// Elements from one row to the next.
    pub row: u32,
    /// Groups (heads) at the start of a row.
    pub groups: u32,
    /// Elements of a group.
    pub width: u32,
    /// The first so many groups (the queries) are scaled too.
    pub scaled: u32,
    /// Added to the sum of squares.
    pub eps: f32,
    /// The scale of the first groups, `K^-0.5`.
    pub scale: f32,
    /// Zeros.
    pub pad: [u32; 2],
}

/// `x ← x·rsqrt(Σx²+eps)` per head in place, then `·scale` for the first `scaled` heads: q and k of the delta rule.
/// A zero head stays zero. Grid: x = groups, y = rows.
pub static L2_NORM: Kernel = Kernel {
    id: KernelId(3),
    name: "l2_norm",
    wgsl: Some("norm/l2_norm.wgsl"),
    cuda: Some("norm/l2_norm.cu"),
    twin: Some(l2_norm),
    bindings: &[Binding::read("tables"), Binding::write("x")],
    params: size_of::<L2Params>(),
    workgroup: Workgroup::new(64, 256),
    constants: &[],
};

fn l2_norm(args: &mut Args<'_>) {
    let p: L2Params = args.params();
    let (t, x) = (View(args.words(0)), args.take(1));
    let count = t.header(crate::tables::ROWS);
    let (groups, width) = (p.groups as usize, p.width as usize);
    x.par_chunks_mut(p.row as usize).take(count).for_each(|row| {
        for (g, x) in row[..groups * width].chunks_mut(width).enumerate() {
            let norm = 1.0 / (dot(x, x) + p.eps).sqrt();
            let scale = if g < p.scaled as usize { p.scale } else { 1.0 };
            for x in x {
                *x = *x * norm * scale;
            }
        }
    });
}
