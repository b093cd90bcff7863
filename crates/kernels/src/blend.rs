//! Sums of two rows with factors: residual streams that are scaled, factors of muP, activations on the way.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::View;
use crate::twin::{Args, silu};

/// Parameters of [`BLEND`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlendParams {
    /// Elements of a row.
    pub width: u32,
    /// Header word that holds the number of rows.
    pub count: u32,
    /// What f(x) is multiplied by; 0: x is not read.
    pub a: f32,
    /// What y is multiplied by; 0: y is not read.
    pub b: f32,
}

/// `y ← a·f(x) + b·y`; f is the identity, or, SILU 1, `x·sigmoid(x)`. `x`, `y` are `[rows, width]`.
///
/// Grid: x covers the width by 64, y the rows.
pub static BLEND: Kernel = Kernel {
    id: KernelId(38),
    name: "blend",
    wgsl: Some("blend/blend.wgsl"),
    cuda: Some("blend/blend.cu"),
    twin: Some(blend),
    bindings: &[Binding::read("tables"), Binding::read("x"), Binding::write("y")],
    params: size_of::<BlendParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "SILU", legal: &[0, 1] }],
};

fn blend(args: &mut Args<'_>) {
    let p: BlendParams = args.params();
    let f = if args.constant(0) == 1 { silu } else { |x: f32| x };
    let (t, x, y) = (View(args.words(0)), args.floats(1), args.take(2));
    let width = p.width as usize;
    y.par_chunks_mut(width).take(t.header(p.count as usize)).enumerate().for_each(|(r, y)| {
        for (i, y) in y.iter_mut().enumerate() {
            let of_x = if p.a == 0.0 { 0.0 } else { p.a * f(x[r * width + i]) };
            let of_y = if p.b == 0.0 { 0.0 } else { p.b * *y };
            *y = of_x + of_y;
        }
    });
}
