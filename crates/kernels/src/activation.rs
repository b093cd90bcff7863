//! What stands between the two products of an MLP.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, silu};

/// KIND: `silu(gate)·up`, where a row of x holds all of the gate, then all of up.
pub const KIND_SWIGLU: u32 = 0;
/// KIND: `max(x, 0)²`.
pub const KIND_RELU2: u32 = 1;

/// Parameters of [`ACTIVATION`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ActivationParams {
    /// Elements of a row of the result.
    pub width: u32,
    /// Rows of x for each row of the pass: the experts that a row goes to, or 1.
    pub top: u32,
    /// Zeros.
    pub pad: [u32; 2],
}

/// `out = act(x)`: `out` is `[rows·top, width]`, x `[rows·top, 2·width]` for SwiGLU, else `[rows·top, width]`.
///
/// Grid: x covers the width by 64, y the rows, z = top.
pub static ACTIVATION: Kernel = Kernel {
    id: KernelId(37),
    name: "activation",
    wgsl: Some("elementwise/activation.wgsl"),
    cuda: Some("elementwise/activation.cu"),
    twin: Some(activation),
    bindings: &[Binding::read("tables"), Binding::read("x"), Binding::write("out")],
    params: size_of::<ActivationParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "KIND", legal: &[KIND_SWIGLU, KIND_RELU2] }],
};

fn activation(args: &mut Args<'_>) {
    let p: ActivationParams = args.params();
    let kind = args.constant(0);
    let (t, x, out) = (View(args.words(0)), args.floats(1), args.take(2));
    let width = p.width as usize;
    let row = if kind == KIND_SWIGLU { 2 * width } else { width };
    out.par_chunks_mut(width).take(t.header(ROWS) * p.top as usize).zip(x.par_chunks(row)).for_each(|(out, x)| {
        for (i, out) in out.iter_mut().enumerate() {
            *out = if kind == KIND_SWIGLU { silu(x[i]) * x[width + i] } else { x[i].max(0.0) * x[i].max(0.0) };
        }
    });
}
