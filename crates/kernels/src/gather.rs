//! Gathering the rows that want logits.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{LOGIT_TABLE, LOGITS, View};
use crate::twin::Args;

/// Parameters of [`GATHER_ROWS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct GatherParams {
    /// Elements of a row.
    pub width: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

/// `out[i] = x[row of logit i]`. Grid: x covers the width by 64, y the rows that want logits.
pub static GATHER_ROWS: Kernel = Kernel {
    id: KernelId(4),
    name: "gather_rows",
    wgsl: Some("gather/gather_rows.wgsl"),
    cuda: Some("gather/gather_rows.cu"),
    twin: Some(twin),
    bindings: &[Binding::read("tables"), Binding::read("x"), Binding::write("out")],
    params: size_of::<GatherParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn twin(args: &mut Args<'_>) {
    let p: GatherParams = args.params();
    let (t, x, out) = (View(args.words(0)), args.floats(1), args.take(2));
    let width = p.width as usize;
    out.par_chunks_mut(width).take(t.header(LOGITS)).enumerate().for_each(|(i, out)| {
        let row = t.record(LOGIT_TABLE, i, 1)[0] as usize;
        out.copy_from_slice(&x[row * width..][..width]);
    });
}
