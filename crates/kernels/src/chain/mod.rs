//! Chains: one launch walks every chain of the pass, in the recurrent form.
//!
//! A chain carries the state `[K, V]` of each value head through steps: zero, load, run rows, begin operator, apply
//! operator, snapshot, store (design: one pass). Value columns are independent given q, k and the gates, so an invocation
//! owns one column and needs no barrier. While an operator is under construction a chain has three blocks of columns:
//! `S_run` (V), `S` (V, started from 0) and the transition: of a delta update `T` (K columns, started from the identity,
//! with no writes), of an add update with a decay one column of log-sums of its gates.

mod steps;
mod token;

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{CHAIN_LAUNCHES, LAUNCH_WORDS, SHARED_SLABS, View};
use crate::twin::Args;

pub(crate) use steps::{Columns, Left, Rule, Walk, rotate};
use token::Tokens;

/// Parameters of the chain kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ChainParams {
    /// Key heads H.
    pub heads: u32,
    /// Value heads HV, a multiple of H; value head j reads key head `j / (HV/H)`.
    pub value_heads: u32,
    /// V, size of a value head.
    pub value: u32,
    /// Elements from one row of `qkv` to the next, a multiple of four; q starts at 0, k at H·K, v at 2·H·K, then, from the next
    /// multiple of four on, a and b of a rank-one update.
    pub row: u32,
    /// Elements from one row of `gates` to the next; 0 for a fixed decay, whose one row serves every token.
    pub gate_row: u32,
    /// Where the write strengths begin in a row of `gates`.
    pub strength: u32,
    /// Which chain launch of the tables.
    pub launch: u32,
    /// Rotated key dims of moved operators.
    pub rot: u32,
}

/// Sizes K of a key head that the kernels are compiled for.
pub const KEY_SIZES: &[u32] = &[4, 8, 12, 16, 24, 32, 64, 128, 256];

/// Decay: none, `gates` holds no g.
pub const DECAY_NONE: u32 = 0;
/// Decay: one log-gate a head (and token, or fixed).
pub const DECAY_SCALAR: u32 = 1;
/// Decay: one log-gate a head, token and key dim.
pub const DECAY_DIAGONAL: u32 = 2;

/// Update: `S += k vᵀ`.
pub const UPDATE_ADD: u32 = 0;
/// Update: `S += k (β v)ᵀ`.
pub const UPDATE_STRENGTH: u32 = 1;
/// Update: `S += k uᵀ` with `u = β(v − Sᵀk)` of the decayed state.
pub const UPDATE_DELTA: u32 = 2;
/// Update: `S = e^g·S + b (aᵀS) + k vᵀ`, where `aᵀS` reads the state before the decay.
pub const UPDATE_RANK_ONE: u32 = 3;

/// Rotation of moved operators: none is moved.
pub const ROTATION_NONE: u32 = 0;
/// Rotation of key dims i and i + rot/2.
pub const ROTATION_HALVES: u32 = 1;
/// Rotation of key dims 2i and 2i + 1.
pub const ROTATION_INTERLEAVED: u32 = 2;

/// Logarithm of a factor that is exactly 0: sums of two stay finite, and its exponential is 0.
pub const LOG_ZERO: f32 = -1e38;

/// The constants of the chain kernels: K, decay, update, rotation.
pub(crate) const CONSTANTS: &[Constant] = &[
    Constant { name: "K", legal: KEY_SIZES },
    Constant { name: "DECAY", legal: &[DECAY_NONE, DECAY_SCALAR, DECAY_DIAGONAL] },
    Constant { name: "UPDATE", legal: &[UPDATE_ADD, UPDATE_STRENGTH, UPDATE_DELTA, UPDATE_RANK_ONE] },
    Constant { name: "ROTATION", legal: &[ROTATION_NONE, ROTATION_HALVES, ROTATION_INTERLEAVED] },
];

/// The recurrence of [`UPDATE_ADD`] to [`UPDATE_RANK_ONE`] and `o = Sᵀq` along the steps of each chain, token by token.
///
/// `qkv` is `[rows, row]` (q scaled, and with k normalised where the family wants it), `gates` `[rows, gate_row]`: g
/// `[HV]` or `[HV, K]`, then β `[HV]`; `out` `[rows, HV·V]`; all f32. States in the slabs are `[HV, K, V]`; a private slot is `S_run`, `S`, then
/// T `[HV, K, K]` or log-sums `[HV, K]` or `[HV]`. Grid: x covers the columns (V, or with an operator 2V and the
/// transition's) by 32, y = HV, z = chains of the launch.
pub static CHAIN: Kernel = Kernel {
    id: KernelId(10),
    name: "chain",
    wgsl: Some("chain/chain.wgsl"),
    cuda: Some("chain/chain.cu"),
    twin: Some(twin),
    bindings: &[
        Binding::read("tables"),
        Binding::read("qkv"),
        Binding::read("gates"),
        Binding::write("out"),
        Binding::write("private_slab"),
        Binding::read("shared0"),
        Binding::read("shared1"),
        Binding::read("shared2"),
    ],
    params: size_of::<ChainParams>(),
    workgroup: Workgroup::new(32, 0),
    constants: CONSTANTS,
};

fn twin(args: &mut Args<'_>) {
    let p: ChainParams = args.params();
    let rule = Rule::new([0, 1, 2, 3].map(|i| args.constant(i)), &p);
    let t = View(args.words(0));
    let (out, private) = (args.take(3), args.take(4));
    let left = {
        let walk = Walk { rule, t, private, shared: [args.floats(5), args.floats(6), args.floats(7)] };
        let tokens = Tokens { p, rule, qkv: args.floats(1), gates: args.floats(2) };
        walk_all(&p, t, |chain, head| {
            let mut run = tokens.runner(head);
            walk.walk(chain, head, &mut run)
        })
    };
    put(left, (p.value as usize, p.value_heads as usize), out, private);
}

/// What every (chain, head) of the launch leaves behind.
pub(crate) fn walk_all(p: &ChainParams, t: View<'_>, walk: impl Fn(usize, usize) -> Left + Sync) -> Vec<(usize, Left)> {
    let launch = t.record(CHAIN_LAUNCHES, p.launch as usize, LAUNCH_WORDS);
    let (first, heads) = (launch[0] as usize, p.value_heads as usize);
    (0..launch[1] as usize * heads).into_par_iter().map(|i| (i % heads, walk(first + i / heads, i % heads))).collect()
}

/// Writes it, for V and HV.
pub(crate) fn put(left: Vec<(usize, Left)>, (v, heads): (usize, usize), out: &mut [f32], private: &mut [f32]) {
    for (head, left) in left {
        for (first, o) in left.outputs {
            for (row, o) in (first..).zip(o.chunks_exact(v)) {
                out[(row * heads + head) * v..][..v].copy_from_slice(o);
            }
        }
        for (word, block) in left.stores {
            private[word..][..block.len()].copy_from_slice(&block);
        }
    }
}

/// The slabs of a chain launch by binding: the shared ones, then the private one.
pub(crate) type Shared<'a> = [&'a [f32]; SHARED_SLABS];
