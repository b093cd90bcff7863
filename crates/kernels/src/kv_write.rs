//! Keys and values of fresh rows, normalised and rotated, into a private KV slab.

use bytemuck::{Pod, Zeroable};
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{ROW_TABLE, ROW_WORDS, ROWS, View};
use crate::twin::{Args, dot};

/// Parameters of [`KV_WRITE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct KvParams {
    /// KV heads.
    pub heads: u32,
    /// Head size.
    pub head: u32,
    /// Rotated dimensions, NeoX halves.
    pub rot: u32,
    /// Number of the KV slab that is bound: only rows that go there are written.
    pub slab: u32,
    /// Epsilon of the key norm.
    pub eps: f32,
    /// What keys are multiplied by: [`NORM_NONE`], [`NORM_PLAIN`] or [`NORM_CENTRED`].
    pub norm: u32,
    /// Zeros.
    pub pad: [u32; 2],
}

/// Keys are stored as they are.
pub const NORM_NONE: u32 = 0;
/// Keys are normalised per head, with the weight w.
pub const NORM_PLAIN: u32 = 1;
/// Keys are normalised per head, with the weight 1 + w.
pub const NORM_CENTRED: u32 = 2;

/// `K ← rope(rmsnorm(k)·(1+w), offset inside the segment)`, `V ← v`; the norm may have the factor w, or be left out.
///
/// `k`, `v` are `[rows, heads·head]`, `w` is `[head]`. A KV slab is `[KV rows, 2, heads·head]`: a token's key, then its
/// value. Keys are rotated by the row's *key angle*, its offset inside its segment. Grid: x = heads, y = rows.
pub static KV_WRITE: Kernel = Kernel {
    id: KernelId(11),
    name: "kv_write",
    wgsl: Some("kv_write/kv_write.wgsl"),
    cuda: Some("kv_write/kv_write.cu"),
    twin: Some(twin),
    bindings: &[
        Binding::read("tables"),
        Binding::read("k"),
        Binding::read("v"),
        Binding::read("w"),
        Binding::write("slab"),
    ],
    params: size_of::<KvParams>(),
    workgroup: Workgroup::new(64, 256),
    constants: &[],
};

/// [`KV_WRITE`] into a slab of bf16, two elements a word, each rounded to nearest even.
pub static KV_WRITE_BF16: Kernel = Kernel {
    id: KernelId(27),
    name: "kv_write_bf16",
    wgsl: None,
    cuda: Some("kv_write/kv_write_bf16.cu"),
    twin: None,
    ..KV_WRITE
};

/// Rotates the first `cos.len()·2` elements of `x` in NeoX halves.
pub(crate) fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for i in 0..half {
        let (a, b) = (x[i], x[i + half]);
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

fn twin(args: &mut Args<'_>) {
    let p: KvParams = args.params();
    let t = View(args.words(0));
    let (k, v, w, slab) = (args.floats(1), args.floats(2), args.floats(3), args.take(4));
    let (head, rot) = (p.head as usize, p.rot as usize);
    let width = p.heads as usize * head;
    for r in 0..t.header(ROWS) {
        let row = t.record(ROW_TABLE, r, ROW_WORDS);
        if row[4] != p.slab {
            continue;
        }
        let (cos, sin) = t.angle(row[3], rot);
        let (key, value) = slab[row[5] as usize * 2 * width..][..2 * width].split_at_mut(width);
        value.copy_from_slice(&v[r * width..][..width]);
        for (key, k) in key.chunks_mut(head).zip(k[r * width..].chunks(head)) {
            if p.norm == NORM_NONE {
                key.copy_from_slice(k);
            } else {
                let one = if p.norm == NORM_CENTRED { 1.0 } else { 0.0 };
                let scale = 1.0 / (dot(k, k) / head as f32 + p.eps).sqrt();
                for ((key, k), w) in key.iter_mut().zip(k).zip(w) {
                    *key = k * scale * (one + w);
                }
            }
            rotate(key, cos, sin);
        }
    }
}
