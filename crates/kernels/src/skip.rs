//! The direct path past a recurrence.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::Args;

/// Parameters of [`SKIP`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SkipParams {
    /// Elements of a row of the result, HV·V.
    pub width: u32,
    /// Value size V.
    pub head: u32,
    /// Elements from one row of v to the next.
    pub row: u32,
    /// Where v begins in its row.
    pub offset: u32,
}

/// `out[r, h, :] += D[h]·v[r, h, :]` (Mamba-2); `v` lies in the rows of a chain behind q and k, `D` is `[HV]`, `out`
/// `[rows, HV·V]`. Grid: x covers HV·V by 64, y the rows.
pub static SKIP: Kernel = Kernel {
    id: KernelId(21),
    name: "skip",
    wgsl: Some("skip/skip.wgsl"),
    cuda: Some("skip/skip.cu"),
    twin: Some(skip),
    bindings: &[Binding::read("tables"), Binding::read("v"), Binding::read("d"), Binding::write("out")],
    params: size_of::<SkipParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn skip(args: &mut Args<'_>) {
    let p: SkipParams = args.params();
    let (t, v, d, out) = (View(args.words(0)), args.floats(1), args.floats(2), args.take(3));
    let (width, head) = (p.width as usize, p.head as usize);
    out.par_chunks_mut(width).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        let v = &v[r * p.row as usize + p.offset as usize..][..width];
        for ((out, v), d) in out.chunks_mut(head).zip(v.chunks(head)).zip(d) {
            out.iter_mut().zip(v).for_each(|(out, v)| *out += d * v);
        }
    });
}
