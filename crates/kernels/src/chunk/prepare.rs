//! What a chunk needs no state for.

use rayon::prelude::*;
use seam_device::KernelId;

use super::numbers::exp;
use super::{DECAY, KEY, Layout, UPDATE};
use crate::chain::{ChainParams, DECAY_DIAGONAL, DECAY_NONE, UPDATE_ADD};
use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{CHUNK_TABLE, CHUNK_TOKENS, CHUNK_WORDS, CHUNKS, View};
use crate::twin::{Args, dot};

/// Per chunk and value head: decayed queries and keys, their products, the solved writes of a delta update.
///
/// `qkv` is `[rows, row]` with q and k normalised and q scaled; a row of `gates` has g `[HV]` or `[HV, K]` (log, <= 0; none
/// without a decay), and beta `[HV]` at `strength`; `work` is as [`Layout`] says. All f32. Grid: x = chunks, y = HV.
pub static CHUNK_PREPARE: Kernel = Kernel {
    id: KernelId(23),
    name: "chunk_prepare",
    wgsl: Some("chain/chunk_prepare.wgsl"),
    cuda: Some("chain/chunk_prepare.cu"),
    twin: Some(twin),
    bindings: &[Binding::read("tables"), Binding::read("qkv"), Binding::read("gates"), Binding::write("work")],
    params: size_of::<ChainParams>(),
    workgroup: Workgroup::new(256, 1024),
    constants: &[KEY, DECAY, UPDATE],
};

struct Prepare<'a> {
    p: ChainParams,
    layout: Layout,
    decay: u32,
    update: u32,
    qkv: &'a [f32],
    gates: &'a [f32],
}

/// The rows of a chunk as one head sees them.
struct Rows<'a> {
    q: Vec<&'a [f32]>,
    k: Vec<&'a [f32]>,
    v: Vec<&'a [f32]>,
    /// One gate a row, or K; none without a decay.
    g: Vec<&'a [f32]>,
    beta: Vec<f32>,
}

/// Row i, column j: G_ij for j < i, otherwise 0.
type Solve = [[f32; CHUNK_TOKENS]; CHUNK_TOKENS];

impl Prepare<'_> {
    fn rows(&self, first: usize, rows: usize, head: usize) -> Rows<'_> {
        let p = self.p;
        let (k, v) = (self.layout.key, self.layout.value);
        let keys = p.heads as usize * k;
        let key_head = head / (p.value_heads / p.heads) as usize;
        let row = |i: usize| &self.qkv[i * p.row as usize..];
        let gates = |i: usize| &self.gates[i * p.gate_row as usize..];
        let all = first..first + rows;
        let gate = match self.decay {
            DECAY_NONE => 0..0,
            DECAY_DIAGONAL => head * k..(head + 1) * k,
            _ => head..head + 1,
        };
        let beta = |i| if self.update == UPDATE_ADD { 1.0 } else { gates(i)[p.strength as usize + head] };
        Rows {
            q: all.clone().map(|i| &row(i)[key_head * k..][..k]).collect(),
            k: all.clone().map(|i| &row(i)[keys + key_head * k..][..k]).collect(),
            v: all.clone().map(|i| &row(i)[2 * keys + head * v..][..v]).collect(),
            g: all.clone().map(|i| if gate.is_empty() { &[][..] } else { &gates(i)[gate.clone()] }).collect(),
            beta: all.map(beta).collect(),
        }
    }

    /// Fills the records of one chunk and head, `stride` words from row to row, and returns the sums `[D]`.
    fn chunk(&self, first: usize, rows: usize, head: usize, records: &mut [f32], stride: usize) -> Vec<f32> {
        let x = self.rows(first, rows, head);
        let (u, end) = (self.layout.u(), self.layout.u() + self.layout.value);
        let mut solve: Solve = [[0.0; CHUNK_TOKENS]; CHUNK_TOKENS];
        for record in records.chunks_mut(stride) {
            record[self.layout.a()..u].fill(0.0);
        }
        for j in 0..rows {
            self.products(&x, j, records, stride, &mut solve);
        }
        let sums = self.decayed(&x, records, stride);
        // (I + G) U = β V and (I + G) W = β (K e^b), row by row: each row takes the ones before it out of itself.
        for i in 0..rows {
            let (before, row) = records.split_at_mut(i * stride);
            for (u, v) in row[u..end].iter_mut().zip(x.v[i]) {
                *u = x.beta[i] * v;
            }
            for (record, g) in before.chunks_exact(stride).zip(&solve[i]).filter(|_| self.layout.delta) {
                for part in [self.layout.w()..self.layout.a(), u..end] {
                    for (x, before) in row[part.clone()].iter_mut().zip(&record[part]) {
                        *x -= *g * *before;
                    }
                }
            }
        }
        sums
    }

    /// The products of key j with every query and key from j on, decayed from j to there.
    fn products(&self, x: &Rows<'_>, j: usize, records: &mut [f32], stride: usize, solve: &mut Solve) {
        let mut log = vec![0.0; x.g[j].len()];
        let mut key = x.k[j].to_vec();
        for i in j..x.k.len() {
            if i > j {
                log.iter_mut().zip(x.g[i]).for_each(|(log, g)| *log += g);
            }
            let mut factor = 1.0;
            match log.as_slice() {
                [] => {}
                [log] => factor = exp(*log),
                logs => key.iter_mut().zip(x.k[j]).zip(logs).for_each(|((key, k), log)| *key = k * exp(*log)),
            }
            records[i * stride + self.layout.a() + j] = factor * dot(x.q[i], &key);
            if self.layout.delta && i > j {
                solve[i][j] = x.beta[i] * (factor * dot(x.k[i], &key));
            }
        }
    }

    /// `q e^b`, `β k e^b` and `k e^(the gates after it)` of every row; returns the sums of the gates.
    fn decayed(&self, x: &Rows<'_>, records: &mut [f32], stride: usize) -> Vec<f32> {
        let (k, l) = (self.layout.key, self.layout);
        let mut log = vec![0.0; l.sums];
        let mut decay = vec![1.0; k];
        let decays = |decay: &mut [f32], log: &[f32]| match log {
            [log] => decay.fill(exp(*log)),
            logs => decay.iter_mut().zip(logs).for_each(|(d, log)| *d = exp(*log)),
        };
        for (i, record) in records.chunks_mut(stride).enumerate() {
            log.iter_mut().zip(x.g[i]).for_each(|(log, g)| *log += g);
            decays(&mut decay, &log);
            scaled(&mut record[..k], x.q[i], &decay, 1.0);
            if l.delta {
                scaled(&mut record[l.w()..][..k], x.k[i], &decay, x.beta[i]);
            }
        }
        let mut rest = vec![0.0; l.sums];
        for (i, record) in records.chunks_mut(stride).enumerate().rev() {
            decays(&mut decay, &rest);
            scaled(&mut record[l.ke()..][..k], x.k[i], &decay, 1.0);
            rest.iter_mut().zip(x.g[i]).for_each(|(log, g)| *log += g);
        }
        log
    }
}

/// `out = factor·(x ⊙ decay)`
fn scaled(out: &mut [f32], x: &[f32], decay: &[f32], factor: f32) {
    for ((out, x), decay) in out.iter_mut().zip(x).zip(decay) {
        *out = factor * (x * decay);
    }
}

fn twin(args: &mut Args<'_>) {
    let p: ChainParams = args.params();
    let (key, decay, update) = (args.constant(0) as usize, args.constant(1), args.constant(2));
    let t = View(args.words(0));
    let work = args.take(3);
    let (heads, chunks) = (p.value_heads as usize, t.header(CHUNKS));
    let layout = Layout::new(key, p.value as usize, heads, decay, update);
    let prepare = Prepare { p, layout, decay, update, qkv: args.floats(1), gates: args.floats(2) };
    // The records of a chunk are one range: chunks in the order of their rows cut `work` into them.
    let (sums, mut rest) = work.split_at_mut(layout.records(chunks));
    let (row, mut at) = (heads * layout.record(), 0);
    let mut ranges: Vec<_> = (0..chunks).map(|i| (i, t.record(CHUNK_TABLE, i, CHUNK_WORDS))).collect();
    ranges.sort_unstable_by_key(|(_, chunk)| chunk[0]);
    let mut jobs = Vec::new();
    for (i, chunk) in ranges {
        let (first, rows) = (chunk[0] as usize, chunk[1] as usize);
        // A row belongs to one chunk.
        if first < at {
            continue;
        }
        let (records, after) = rest.split_at_mut((first - at) * row).1.split_at_mut(rows * row);
        jobs.push((i, first, rows, records));
        (rest, at) = (after, first + rows);
    }
    let fill = |(i, first, rows, records): (usize, usize, usize, &mut [f32])| {
        let head = |head| prepare.chunk(first, rows, head, &mut records[head * layout.record()..], row);
        (i, (0..heads).flat_map(head).collect::<Vec<f32>>())
    };
    for (i, chunk) in jobs.into_par_iter().map(fill).collect::<Vec<_>>() {
        sums[i * heads * layout.sums..][..chunk.len()].copy_from_slice(&chunk);
    }
}
