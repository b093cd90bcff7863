//! A norm of heads in place.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, dot};

/// Parameters of [`HEAD_NORM`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct HeadNormParams {
    /// Elements from one row to the next.
    pub row: u32,
    /// Heads at the start of a row.
    pub groups: u32,
    /// Elements of a head.
    pub width: u32,
    /// Added to the mean of squares.
    pub eps: f32,
}

/// `x ← x·rsqrt(mean(x²)+eps)·w` per head in place, `w` `[groups·width]`: q and k of lightning attention.
/// Grid: x = groups, y = rows.
pub static HEAD_NORM: Kernel = Kernel {
    id: KernelId(39),
    name: "head_norm",
    wgsl: Some("norm/head_norm.wgsl"),
    cuda: Some("norm/head_norm.cu"),
    twin: Some(head_norm),
    bindings: &[Binding::read("tables"), Binding::read("w"), Binding::write("x")],
    params: size_of::<HeadNormParams>(),
    workgroup: Workgroup::new(64, 256),
    constants: &[],
};

fn head_norm(args: &mut Args<'_>) {
    let p: HeadNormParams = args.params();
    let (t, w, x) = (View(args.words(0)), args.floats(1), args.take(2));
    let (groups, width) = (p.groups as usize, p.width as usize);
    x.par_chunks_mut(p.row as usize).take(t.header(ROWS)).for_each(|row| {
        for (x, w) in row[..groups * width].chunks_mut(width).zip(w.chunks(width)) {
            let scale = 1.0 / (dot(x, x) / width as f32 + p.eps).sqrt();
            x.iter_mut().zip(w).for_each(|(x, w)| *x = *x * scale * w);
        }
    });
}
