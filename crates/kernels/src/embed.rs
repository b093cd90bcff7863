//! Token embedding: a row of the table for each row of the pass.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROW_TABLE, ROW_WORDS, ROWS, View};
use crate::twin::{Args, bf16};

/// Parameters of [`EMBED`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct EmbedParams {
    /// Hidden size.
    pub width: u32,
    /// First token id of this shard of the table.
    pub first: u32,
    /// Token ids in this shard.
    pub count: u32,
    /// Zero.
    pub pad: u32,
}

/// `out[r] = table[token of r − first]` for rows whose token lies in the shard; other rows are left alone.
///
/// Grid: x covers the width by 64, y the rows. `table` is bf16 (two to a word) or f32.
pub static EMBED: Kernel = Kernel {
    id: KernelId(0),
    name: "embed",
    wgsl: Some("embed/embed.wgsl"),
    cuda: Some("embed/embed.cu"),
    twin: Some(twin),
    bindings: &[Binding::read("tables"), Binding::read("table"), Binding::write("out")],
    params: size_of::<EmbedParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "BF16", legal: &[0, 1] }],
};

fn twin(args: &mut Args<'_>) {
    let p: EmbedParams = args.params();
    let packed = args.constant(0) == 1;
    let (t, words, floats, out) = (View(args.words(0)), args.words(1), args.floats(1), args.take(2));
    let width = p.width as usize;
    out.par_chunks_mut(width).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        let token = t.record(ROW_TABLE, r, ROW_WORDS)[6];
        if token < p.first || token - p.first >= p.count {
            return;
        }
        let at = (token - p.first) as usize * width;
        for (d, out) in out.iter_mut().enumerate() {
            *out = if packed { bf16(words, at + d) } else { floats[at + d] };
        }
    });
}
