//! Chains of the gated delta rule: one launch walks every chain of the pass.
//!
//! A chain carries the state `[K, V]` of each value head through steps: zero, load, run rows, begin operator, apply
//! operator, store (design: one pass). Value columns are independent given q, k and the gates, so an invocation owns
//! one column and needs no barrier. While an operator is under construction a chain has three blocks of columns:
//! `S_run` (V), `S` (V, started from 0) and `T` (K, started from the identity, with no writes).

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel};
use crate::tables::{
    CHAIN_LAUNCHES, CHAIN_OPERATOR, CHAIN_TABLE, CHAIN_WORDS, FORM_DENSE, FORM_IDENTITY, LAUNCH_WORDS, SHARED_SLABS,
    STEP_APPLY, STEP_BEGIN, STEP_LOAD, STEP_RUN, STEP_STORE, STEP_TABLE, STEP_WORDS, STEP_ZERO, View,
};
use crate::twin::Args;

/// Parameters of [`DELTA_CHAIN`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ChainParams {
    /// Key heads H.
    pub heads: u32,
    /// Value heads HV, a multiple of H; value head j reads key head `j / (HV/H)`.
    pub value_heads: u32,
    /// V, size of a value head.
    pub value: u32,
    /// Elements from one row of `qkv` to the next; q starts at 0, k at H·K, v at 2·H·K.
    pub row: u32,
    /// Which chain launch of the tables.
    pub launch: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

/// Sizes K of a key head that the kernel is compiled for.
pub const KEY_SIZES: &[u32] = &[4, 8, 12, 16, 24, 32, 64, 128, 256];

/// `S = e^g·S; u = β(v − Sᵀk); S += k uᵀ; o = Sᵀq` along the steps of each chain, all f32.
///
/// `qkv` is `[rows, row]` with q and k normalised and q scaled, `gates` `[rows, 2·HV]` (g, then beta), `out`
/// `[rows, HV·V]`. States in the slabs are `[HV, K, V]`, T is `[HV, K, K]`; a private slot is `S_run`, then `S`, then
/// `T`. Grid: x covers the columns (V, or 2V+K with an operator) by 32, y = HV, z = chains of the launch.
pub static DELTA_CHAIN: Kernel = Kernel {
    id: KernelId(10),
    name: "delta_chain",
    wgsl: Some("chain/delta_chain.wgsl"),
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
    constants: &[Constant { name: "K", legal: KEY_SIZES }],
};

/// What one (chain, head) leaves behind: outputs by row, and stores by word of the private slab.
#[derive(Default)]
struct Left {
    outputs: Vec<(usize, Vec<f32>)>,
    stores: Vec<(usize, Vec<f32>)>,
}

struct Walk<'a> {
    p: ChainParams,
    k: usize,
    t: View<'a>,
    qkv: &'a [f32],
    gates: &'a [f32],
    private: &'a [f32],
    shared: [&'a [f32]; SHARED_SLABS],
}

/// The state columns of one head: `[K, width]`, columns `S_run | S | T`.
struct Columns {
    data: Vec<f32>,
    width: usize,
}

impl Walk<'_> {
    fn walk(&self, chain: usize, head: usize) -> Left {
        let record = self.t.record(CHAIN_TABLE, chain, CHAIN_WORDS);
        let operator = record[2] & CHAIN_OPERATOR != 0;
        let (k, v) = (self.k, self.p.value as usize);
        let width = if operator { 2 * v + k } else { v };
        let mut state = Columns { data: vec![0.0; k * width], width };
        let mut active = v;
        let mut left = Left::default();
        for i in record[0]..record[0] + record[1] {
            let step = self.t.record(STEP_TABLE, i as usize, STEP_WORDS);
            match step[0] {
                STEP_ZERO => state.block_mut(0, v).for_each(|row| row.fill(0.0)),
                STEP_LOAD => {
                    state.load(0, v, &self.private[self.slot(step[1], 0, head)..]);
                    if step[2] == 1 {
                        state.load(v, v, &self.private[self.slot(step[1], 1, head)..]);
                        state.load(2 * v, k, &self.private[self.slot(step[1], 2, head)..]);
                        active = width;
                    }
                }
                STEP_RUN => {
                    for row in step[1] as usize..(step[1] + step[2]) as usize {
                        left.outputs.push((row, self.token(&mut state, active, row, head)));
                    }
                }
                STEP_BEGIN => {
                    state.block_mut(v, width).for_each(|row| row.fill(0.0));
                    for i in 0..k {
                        state.data[i * width + 2 * v + i] = 1.0;
                    }
                    active = width;
                }
                STEP_APPLY => self.apply(&mut state, active, step, head),
                STEP_STORE => {
                    left.stores.push((self.slot(step[1], 0, head), state.block(0, v)));
                    if step[2] == 1 {
                        left.stores.push((self.slot(step[1], 1, head), state.block(v, v)));
                        left.stores.push((self.slot(step[1], 2, head), state.block(2 * v, k)));
                    }
                }
                _ => {}
            }
        }
        left
    }

    /// Word of block `block` (0 `S_run`, 1 `S`, 2 `T`) of `head` in the slot at `base`.
    fn slot(&self, base: u32, block: usize, head: usize) -> usize {
        let (k, v, hv) = (self.k, self.p.value as usize, self.p.value_heads as usize);
        let size = if block == 2 { k * k } else { k * v };
        base as usize + block * hv * k * v + head * size
    }

    fn token(&self, state: &mut Columns, active: usize, row: usize, head: usize) -> Vec<f32> {
        let (k, v, hv) = (self.k, self.p.value as usize, self.p.value_heads as usize);
        let key_head = head / (hv / self.p.heads as usize);
        let qkv = &self.qkv[row * self.p.row as usize..];
        let keys = self.p.heads as usize * k;
        let q = &qkv[key_head * k..][..k];
        let key = &qkv[keys + key_head * k..][..k];
        let value = &qkv[2 * keys + head * v..][..v];
        let gates = &self.gates[row * 2 * hv..];
        let (decay, beta) = (gates[head].exp(), gates[hv + head]);
        let mut u = vec![0.0; active];
        for (row, key) in state.data.chunks_exact_mut(state.width).zip(key) {
            for (s, u) in row.iter_mut().zip(&mut u) {
                *s *= decay;
                *u += *key * *s;
            }
        }
        for (c, u) in u.iter_mut().enumerate() {
            let write = if c < v {
                value[c]
            } else if c < 2 * v {
                value[c - v]
            } else {
                0.0
            };
            *u = beta * (write - *u);
        }
        let mut o = vec![0.0; v];
        for ((row, key), q) in state.data.chunks_exact_mut(state.width).zip(key).zip(q) {
            for (s, u) in row.iter_mut().zip(&u) {
                *s += *key * *u;
            }
            for (o, s) in o.iter_mut().zip(&*row) {
                *o += *q * *s;
            }
        }
        o
    }

    /// `h ← T·h + S` for the running columns and a started S, `T·h` for a started T.
    fn apply(&self, state: &mut Columns, active: usize, step: &[u32], head: usize) {
        let (k, v) = (self.k, self.p.value as usize);
        let slab = if step[1] < SHARED_SLABS as u32 { self.shared[step[1] as usize] } else { self.private };
        let add = &slab[step[2] as usize + head * k * v..][..k * v];
        let width = state.width;
        let old = std::mem::replace(&mut state.data, vec![0.0; k * width]);
        if step[4] == FORM_IDENTITY {
            state.data.copy_from_slice(&old);
        } else if step[4] == FORM_DENSE {
            let t = &slab[step[3] as usize + head * k * k..][..k * k];
            for (row, t) in state.data.chunks_exact_mut(width).zip(t.chunks_exact(k)) {
                for (old, t) in old.chunks_exact(width).zip(t) {
                    for (s, old) in row[..active].iter_mut().zip(old) {
                        *s += *t * *old;
                    }
                }
            }
        }
        for (row, add) in state.data.chunks_exact_mut(width).zip(add.chunks_exact(v)) {
            for (s, add) in row.iter_mut().zip(add) {
                *s += *add;
            }
            if active > v {
                for (s, add) in row[v..].iter_mut().zip(add) {
                    *s += *add;
                }
            }
        }
    }
}

impl Columns {
    fn block_mut(&mut self, from: usize, to: usize) -> impl Iterator<Item = &mut [f32]> {
        self.data.chunks_exact_mut(self.width).map(move |row| &mut row[from..to])
    }

    fn block(&self, from: usize, len: usize) -> Vec<f32> {
        self.data.chunks_exact(self.width).flat_map(|row| &row[from..from + len]).copied().collect()
    }

    fn load(&mut self, from: usize, len: usize, words: &[f32]) {
        for (row, words) in self.block_mut(from, from + len).zip(words.chunks_exact(len)) {
            row.copy_from_slice(words);
        }
    }
}

fn twin(args: &mut Args<'_>) {
    let p: ChainParams = args.params();
    let k = args.constant(0) as usize;
    let t = View(args.words(0));
    let (out, private) = (args.take(3), args.take(4));
    let launch = t.record(CHAIN_LAUNCHES, p.launch as usize, LAUNCH_WORDS);
    let (first, heads) = (launch[0] as usize, p.value_heads as usize);
    let left: Vec<(usize, Left)> = {
        let walk = Walk {
            p,
            k,
            t,
            qkv: args.floats(1),
            gates: args.floats(2),
            private,
            shared: [args.floats(5), args.floats(6), args.floats(7)],
        };
        (0..launch[1] as usize * heads)
            .into_par_iter()
            .map(|i| (i % heads, walk.walk(first + i / heads, i % heads)))
            .collect()
    };
    let v = p.value as usize;
    for (head, left) in left {
        for (row, o) in left.outputs {
            out[(row * heads + head) * v..][..v].copy_from_slice(&o);
        }
        for (word, block) in left.stores {
            private[word..][..block.len()].copy_from_slice(&block);
        }
    }
}
