//! A row's result from those of its experts.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, sigmoid};

/// SHARED: there is no shared expert.
pub const SHARED_NONE: u32 = 0;
/// SHARED: its result is added.
pub const SHARED_PLAIN: u32 = 1;
/// SHARED: its result times the sigmoid of a gate is added.
pub const SHARED_GATED: u32 = 2;

/// Parameters of [`EXPERT_COMBINE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CombineParams {
    /// Elements of a row.
    pub width: u32,
    /// Experts k that a row goes to.
    pub top: u32,
    /// 1: the result is added to `out`.
    pub accumulate: u32,
    /// What the result is multiplied by.
    pub scale: f32,
}

/// `out[r] (+)= scale·(Σ_j weight[r, j]·y[r·k + j] + g·shared[r])` with `g` = 1 or `sigmoid(gate[r])`.
///
/// The sum runs over j in order, so that its bits depend on nothing else. `weight` is `[rows, k]`, `y` `[rows·k, width]`,
/// `shared` and `out` `[rows, width]`, `gate` `[rows]`. Grid: x covers the width by 64, y the rows.
pub static EXPERT_COMBINE: Kernel = Kernel {
    id: KernelId(36),
    name: "expert_combine",
    wgsl: Some("experts/expert_combine.wgsl"),
    cuda: Some("experts/expert_combine.cu"),
    twin: Some(combine),
    bindings: &[
        Binding::read("tables"),
        Binding::read("weight"),
        Binding::read("y"),
        Binding::read("shared_out"),
        Binding::read("gate"),
        Binding::write("out"),
    ],
    params: size_of::<CombineParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "SHARED", legal: &[SHARED_NONE, SHARED_PLAIN, SHARED_GATED] }],
};

fn combine(args: &mut Args<'_>) {
    let p: CombineParams = args.params();
    let kind = args.constant(0);
    let (t, weight, y, shared, gate, out) =
        (View(args.words(0)), args.floats(1), args.floats(2), args.floats(3), args.floats(4), args.take(5));
    let (width, top) = (p.width as usize, p.top as usize);
    out.par_chunks_mut(width).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        let weight = &weight[r * top..][..top];
        let g = match kind {
            SHARED_NONE => 0.0,
            SHARED_PLAIN => 1.0,
            _ => sigmoid(gate[r]),
        };
        for (c, out) in out.iter_mut().enumerate() {
            let term = |(j, w): (usize, &f32)| w * y[(r * top + j) * width + c];
            let mut sum: f32 = weight.iter().enumerate().map(term).sum();
            if kind != SHARED_NONE {
                sum += g * shared[r * width + c];
            }
            *out = if p.accumulate == 1 { *out + p.scale * sum } else { p.scale * sum };
        }
    });
}
