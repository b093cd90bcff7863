//! Rotary position embedding of the heads at the start of a row.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::kv_write::rotate;
use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROW_TABLE, ROW_WORDS, ROWS, View};
use crate::twin::Args;

/// Parameters of [`ROPE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct RopeParams {
    /// Elements from one row to the next.
    pub row: u32,
    /// Heads at the start of a row that are rotated: q, then k.
    pub heads: u32,
    /// Elements of a head.
    pub head: u32,
    /// Rotated dimensions at the start of a head, even; those of the tables' angles.
    pub rot: u32,
}

/// Rotates the first `rot` dimensions of the first `heads` heads of a row in place, by the row's *query angle*: its position.
///
/// INTERLEAVED 0: pairs are `(i, i + rot/2)` (NeoX halves), 1: `(2i, 2i + 1)`, kept where they are (GPT-J).
/// Grid: x covers heads·rot/2 by 64, y the rows.
pub static ROPE: Kernel = Kernel {
    id: KernelId(19),
    name: "rope",
    wgsl: Some("rope/rope.wgsl"),
    cuda: Some("rope/rope.cu"),
    twin: Some(rope),
    bindings: &[Binding::read("tables"), Binding::write("x")],
    params: size_of::<RopeParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "INTERLEAVED", legal: &[0, 1] }],
};

fn rope(args: &mut Args<'_>) {
    let p: RopeParams = args.params();
    let interleaved = args.constant(0) == 1;
    let (t, x) = (View(args.words(0)), args.take(1));
    let (heads, head) = (p.heads as usize, p.head as usize);
    x.par_chunks_mut(p.row as usize).take(t.header(ROWS)).enumerate().for_each(|(r, row)| {
        let (cos, sin) = t.angle(t.record(ROW_TABLE, r, ROW_WORDS)[2], p.rot as usize);
        for x in row[..heads * head].chunks_exact_mut(head) {
            if interleaved {
                for (pair, (cos, sin)) in x.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
                    (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin);
                }
            } else {
                rotate(x, cos, sin);
            }
        }
    });
}
