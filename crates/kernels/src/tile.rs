//! The recurrences of linear layers on tensor cores, 64 tokens at a time: the chunk form of [`crate::chunk`] in the
//! precision of bf16 keys, for devices that have such cores.
//!
//! The formulas are those of [`crate::chunk`], but the delta update is solved with the state: with `r = β (V − e^b K S)` the
//! writes are `X = (I + G)⁻¹ r`, so that only the inverse, which needs no state, is prepared, and keys enter every product
//! as they are. [`TILE_PREPARE`] rounds q and k to bf16, once. Every product that reaches a state is one of numbers
//! of 16 bits as sums of two bf16, with f32 sums: states and operators are those of the rounded inputs to about 1e-5. Outputs
//! are products of bf16, off by a few 1e-3.
//!
//! Both replace the stages [`crate::chain::CHAIN`] (or the two of [`crate::chunk`]), and are held against them; there
//! are no twins.

use seam_device::KernelId;

use crate::chain::{
    ChainParams, DECAY_NONE, DECAY_SCALAR, ROTATION_HALVES, ROTATION_INTERLEAVED, ROTATION_NONE, UPDATE_ADD,
    UPDATE_DELTA, UPDATE_STRENGTH,
};
use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::CHUNK_TOKENS;

/// Most rows of a tile.
pub const TILE_TOKENS: usize = 64;

/// Columns of a state that a block of threads walks: V is a multiple of it.
pub const TILE_COLUMNS: u32 = 64;

/// Sizes K that the kernels are compiled for: a state of 16 columns fits a warp's registers.
pub const TILE_KEY_SIZES: &[u32] = &[64, 128];

const KEY: Constant = Constant { name: "K", legal: TILE_KEY_SIZES };
const DECAY: Constant = Constant { name: "DECAY", legal: &[DECAY_NONE, DECAY_SCALAR] };
const UPDATE: Constant = Constant { name: "UPDATE", legal: &[UPDATE_ADD, UPDATE_STRENGTH, UPDATE_DELTA] };
const ROTATION: Constant =
    Constant { name: "ROTATION", legal: &[ROTATION_NONE, ROTATION_HALVES, ROTATION_INTERLEAVED] };

/// Words of the `work` buffer between the two kernels, for a pass of `chunks` chunks.
///
/// Everything lies as [`TILE_CHAIN`] has it in shared memory, a chunk of the tables (16 rows) after the other: matrices
/// `[HV, parts, chunks, 16, 64]` bf16 in core matrices of 8 by 8, for a delta update the inverse of `I + G` as the sum of two parts, then A, otherwise
/// A alone; scales `[HV, chunks, 16, 4]` f32: β, e^b, e^(the gates after it), b; keys `[H, 2, chunks, 16, K]`
/// bf16, likewise: k, then q.
#[must_use]
pub const fn words((heads, value_heads): (usize, usize), key: usize, update: u32, chunks: usize) -> usize {
    let parts = if update == UPDATE_DELTA { 3 } else { 1 };
    let head = parts * TILE_TOKENS / 2 + 4;
    chunks * CHUNK_TOKENS * (value_heads * head + heads * key)
}

/// Value heads that a block of [`TILE_PREPARE`] takes.
#[must_use]
pub const fn heads_of_block(heads: u32, value_heads: u32) -> u32 {
    if (value_heads / heads).is_multiple_of(2) { 2 } else { 1 }
}

/// What the tiles of the chains need no state for: rounded q and k, scales, the matrices A and (I + G)⁻¹.
///
/// `qkv` is `[rows, row]` with q and k normalised and q scaled, `gates` `[rows, gate_row]`, f32; `work` is as [`words`] says.
/// Grid: x = chunks of the tables, of which the first of a tile works; y = HV, or half of it where an even number of value heads
/// shares a key head ([`heads_of_block`]).
pub static TILE_PREPARE: Kernel = Kernel {
    id: KernelId(25),
    name: "tile_prepare",
    wgsl: None,
    cuda: Some("chain/tile_prepare.cu"),
    twin: None,
    bindings: &[Binding::read("tables"), Binding::read("qkv"), Binding::read("gates"), Binding::write("work")],
    params: size_of::<ChainParams>(),
    workgroup: Workgroup::new(128, 45_216),
    constants: &[KEY, DECAY, UPDATE],
};

/// The recurrences along the steps of each chain, from what [`TILE_PREPARE`] left in `work`.
///
/// `qkv` is read for v, `out` is `[rows, HV·V]`; states and operators in the slabs are as for [`crate::chain::CHAIN`], f32.
/// Grid: x covers the columns (V, or 2V and with a delta update K more) by 64, and has one block more for the log-sums of
/// an add update with a decay under construction; y = HV, z = chains of the launch.
pub static TILE_CHAIN: Kernel = Kernel {
    id: KernelId(26),
    name: "tile_chain",
    wgsl: None,
    cuda: Some("chain/tile_chain.cu"),
    twin: None,
    bindings: &[
        Binding::read("tables"),
        Binding::read("qkv"),
        Binding::read("work"),
        Binding::write("out"),
        Binding::write("private_slab"),
        Binding::read("shared0"),
        Binding::read("shared1"),
        Binding::read("shared2"),
    ],
    params: size_of::<ChainParams>(),
    workgroup: Workgroup::new(128, 96_256),
    constants: &[KEY, DECAY, UPDATE, ROTATION],
};
