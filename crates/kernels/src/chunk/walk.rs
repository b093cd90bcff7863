//! Chains over the chunks that were prepared: one launch walks every chain of the pass.

use seam_device::KernelId;

use super::numbers::{Matrix, exp, multiply};
use super::{DECAY, KEY, Layout, ROTATION, UPDATE};
use crate::chain::{ChainParams, Columns, DECAY_DIAGONAL, DECAY_NONE, LOG_ZERO, Rule, Walk, put, walk_all};
use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{CHUNK_TOKENS, CHUNKS, View};
use crate::twin::Args;

/// The recurrences along the steps of each chain, from what [`super::CHUNK_PREPARE`] left in `work`.
///
/// `out` is `[rows, HV·V]`. States in the slabs are `[HV, K, V]`, a dense T is `[HV, K, K]`, logs are `[HV]` or `[HV, K]`; a
/// private slot is `S_run`, then `S`, then the transition: T for a delta update, the sums of the gates' logs for an add update
/// with a decay, nothing otherwise. All f32. Grid: x covers the columns (V, or 2V and those of the transition with an
/// operator) by 32, y = HV, z = chains of the launch.
pub static CHUNK_CHAIN: Kernel = Kernel {
    id: KernelId(24),
    name: "chunk_chain",
    wgsl: Some("chain/chunk_chain.wgsl"),
    cuda: Some("chain/chunk_chain.cu"),
    twin: Some(twin),
    bindings: &[
        Binding::read("tables"),
        Binding::read("work"),
        Binding::write("out"),
        Binding::write("private_slab"),
        Binding::read("shared0"),
        Binding::read("shared1"),
        Binding::read("shared2"),
    ],
    params: size_of::<ChainParams>(),
    workgroup: Workgroup::new(32, 0),
    constants: &[KEY, DECAY, UPDATE, ROTATION],
};

/// Memory of a (chain, head) between its chunks.
#[derive(Default)]
struct Scratch {
    /// `[rows, active]`.
    x: Vec<f32>,
    /// `[K, rows]`: keys of the chunk, a key dim a row.
    ke: Vec<f32>,
}

struct Chunks<'a> {
    layout: Layout,
    decay: u32,
    chunks: usize,
    work: &'a [f32],
}

impl Chunks<'_> {
    /// Takes the columns of `head` through the rows from `first` on, which are chunk `chunk`; returns o `[rows, V]`.
    fn run(
        &self,
        state: &mut Columns,
        [first, rows, chunk]: [usize; 3],
        head: usize,
        memory: &mut Scratch,
    ) -> Vec<f32> {
        let l = self.layout;
        let (k, v, heads, words) = (l.key, l.value, l.value_heads, l.record());
        let (width, active) = (state.width, state.active);
        let stride = heads * words;
        let records = &self.work[l.records(self.chunks) + (first * heads + head) * words..];
        let part = |at: usize| Matrix { data: &records[at..], stride };
        let old = Matrix { data: &state.data, stride: width };

        // x = u − w·S; T has no u.
        let x = &mut memory.x;
        x.clear();
        x.resize(rows * active, 0.0);
        if l.delta {
            multiply(x, active, part(l.w()), old, &[0.0; CHUNK_TOKENS][..rows], k, active);
        }
        for (i, x) in x.chunks_exact_mut(active).enumerate() {
            let u = &records[i * stride + l.u()..][..v];
            let (written, rest) = x.split_at_mut(if active > v { 2 * v } else { v });
            for block in written.chunks_exact_mut(v) {
                block.iter_mut().zip(u).for_each(|(x, u)| *x = u - *x);
            }
            rest.iter_mut().for_each(|x| *x = -*x);
        }
        let x = Matrix { data: x, stride: active };

        let mut o = vec![0.0; rows * v];
        multiply(&mut o, v, part(0), old, &[0.0; CHUNK_TOKENS][..rows], k, v);
        multiply(&mut o, v, part(l.a()), x, &[1.0; CHUNK_TOKENS][..rows], rows, v);

        // S ← e^(Σg)·S + keᵀ·x
        memory.ke.resize(k * rows, 0.0);
        for (d, ke) in memory.ke.chunks_exact_mut(rows).enumerate() {
            ke.iter_mut().enumerate().for_each(|(i, ke)| *ke = records[i * stride + l.ke() + d]);
        }
        let sums = &self.work[(chunk * heads + head) * l.sums..][..l.sums];
        let keep: Vec<f32> = match self.decay {
            DECAY_NONE => vec![1.0; k],
            DECAY_DIAGONAL => sums.iter().map(|log| exp(*log)).collect(),
            _ => vec![exp(sums[0]); k],
        };
        multiply(&mut state.data, width, Matrix { data: &memory.ke, stride: rows }, x, &keep, rows, active);
        let logs = state.logs.iter_mut().flatten();
        logs.zip(sums).for_each(|(log, sum)| *log = (*log + sum).max(LOG_ZERO));
        o
    }
}

fn twin(args: &mut Args<'_>) {
    let p: ChainParams = args.params();
    let constants = [0, 1, 2, 3].map(|i| args.constant(i));
    let rule = Rule::new(constants, &p);
    let t = View(args.words(0));
    let (out, private) = (args.take(2), args.take(3));
    let (heads, v) = (p.value_heads as usize, p.value as usize);
    let layout = Layout::new(rule.k, v, heads, rule.decay, rule.update);
    let left = {
        let chunks = Chunks { layout, decay: rule.decay, chunks: t.header(CHUNKS), work: args.floats(1) };
        let walk = Walk { rule, t, private, shared: [args.floats(4), args.floats(5), args.floats(6)] };
        walk_all(&p, t, |chain, head| {
            let mut memory = Scratch::default();
            let mut run = |state: &mut Columns, first: usize, rows: usize, chunk: usize| {
                let pieces = (first..first + rows).step_by(CHUNK_TOKENS).enumerate();
                let piece = |(i, row): (usize, usize)| {
                    chunks.run(state, [row, CHUNK_TOKENS.min(first + rows - row), chunk + i], head, &mut memory)
                };
                pieces.flat_map(piece).collect()
            };
            walk.walk(chain, head, &mut run)
        })
    };
    put(left, (v, heads), out, private);
}
