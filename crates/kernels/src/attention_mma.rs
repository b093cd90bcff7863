//! Attention over spans where the keys of a row are cut into parts: bf16 on tensor cores, f32 for few rows, and the joining of
//! parts. CUDA only.

use bytemuck::{Pod, Zeroable};
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{NARROW_TILE, WIDE_TILE};

/// Parameters of [`ATTENTION_MMA`], [`ATTENTION_PART`] and [`ATTENTION_JOIN`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PartParams {
    /// Query heads.
    pub heads: u32,
    /// KV heads; query head h reads KV head `h / (heads/kv_heads)`.
    pub kv_heads: u32,
    /// Rotated dimensions.
    pub rot: u32,
    /// Which attention launch of the tables.
    pub launch: u32,
    /// 1: start from nothing; 0: continue from `out` and `stats`.
    pub first: u32,
    /// 1: divide by the sum of weights at the end.
    pub last: u32,
    /// Scale of the logits, `head^-0.5`.
    pub scale: f32,
    /// Parts that the keys of a query are cut into. With one part `first` and `last` count in [`ATTENTION_MMA`], with more
    /// in [`ATTENTION_JOIN`].
    pub parts: u32,
    /// Rows from part to part.
    pub rows: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

/// Head sizes that [`ATTENTION_MMA`] is compiled for.
pub const HEAD_SIZES: &[u32] = &[32, 64, 128, 256];

/// Head sizes that [`ATTENTION_PART`] and [`ATTENTION_JOIN`] are compiled for.
pub const PART_HEAD_SIZES: &[u32] = &[16, 32, 64, 128, 256];

/// Most parts: [`ATTENTION_JOIN`] has a thread for each.
pub const MAX_PARTS: u32 = 128;

/// `out = softmax(scale·q·Kᵀ)·V` over the spans of each query whose slabs are bound, online over launches.
///
/// As [`crate::attention::ATTENTION`], with KV slabs of bf16 `[KV rows, 2, kv_heads·HEAD]`; the rotated query and the
/// weights are rounded to bf16, everything else is f32. `q`, `out` and `stats` are f32; the running maximum in `stats` is
/// one of `q·k` without the scale. With several parts, `out` and `stats` are `[parts, rows, heads·HEAD]` and
/// `[parts, rows, heads, 2]`, not divided by the sums. The pass has tiles; `TILE` says which kind a launch takes. Grid: x =
/// tiles, y = KV heads, z = parts.
pub static ATTENTION_MMA: Kernel = Kernel {
    id: KernelId(28),
    name: "attention_mma",
    wgsl: None,
    cuda: Some("attention/attention_mma.cu"),
    twin: None,
    bindings: &[
        Binding::read("tables"),
        Binding::read("q"),
        Binding::write("stats"),
        Binding::write("out"),
        Binding::read("kv0"),
        Binding::read("kv1"),
        Binding::read("kv2"),
        Binding::read("kv3"),
    ],
    params: size_of::<PartParams>(),
    // Queries, keys and values of a wide tile with heads of 256, each row 16 bytes longer than its values.
    workgroup: Workgroup::new(128, (WIDE_TILE as u32 + 2 * 64) * (256 + 8) * 2),
    constants: &[
        Constant { name: "HEAD", legal: HEAD_SIZES },
        Constant { name: "TILE", legal: &[NARROW_TILE as u32, WIDE_TILE as u32] },
    ],
};

/// `out` and `stats` of one launch from those of its parts, in the order of the parts.
///
/// `part_stats` is `[parts, rows, heads, 2]`, `part_out` `[parts, rows, heads·HEAD]`; `stats` and `out` are as for the kernel
/// that made the parts. A part that saw no key for a query has the sum 0, and its values are not read. Grid: x = heads, y =
/// rows.
pub static ATTENTION_JOIN: Kernel = Kernel {
    id: KernelId(29),
    name: "attention_join",
    wgsl: None,
    cuda: Some("attention/attention_join.cu"),
    twin: None,
    bindings: &[
        Binding::read("tables"),
        Binding::read("part_stats"),
        Binding::read("part_out"),
        Binding::write("stats"),
        Binding::write("out"),
    ],
    params: size_of::<PartParams>(),
    workgroup: Workgroup::new(MAX_PARTS, 2624),
    constants: &[Constant { name: "HEAD", legal: PART_HEAD_SIZES }],
};

/// What each part of the keys gives for few rows, as [`crate::attention::ATTENTION`] computes it: all f32.
///
/// `part_out` is `[parts, rows, heads·HEAD]` and `part_stats` `[parts, rows, heads, 2]`, not divided by the sums. Grid: x = KV
/// heads, y = rows, z = parts.
pub static ATTENTION_PART: Kernel = Kernel {
    id: KernelId(30),
    name: "attention_part",
    wgsl: None,
    cuda: Some("attention/attention_part.cu"),
    twin: None,
    bindings: &[
        Binding::read("tables"),
        Binding::read("q"),
        Binding::write("part_stats"),
        Binding::write("part_out"),
        Binding::read("kv0"),
        Binding::read("kv1"),
        Binding::read("kv2"),
        Binding::read("kv3"),
    ],
    params: size_of::<PartParams>(),
    workgroup: Workgroup::new(128, 42640),
    constants: &[Constant { name: "HEAD", legal: PART_HEAD_SIZES }],
};
