//! Attention over spans: a row reads the keys of every span before it, with its query rotated per span.
//!
//! Keys are stored rotated by their offset inside their segment, so a span with origin `a` is read with the query
//! rotated by `p − a` (RoPE is relative). The angle is composed from two host-made angles,
//! `cos(p−a) = cos p·cos a + sin p·sin a`, exact to f32 rounding. Causality is by position.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::kv_write::rotate;
use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{
    ATTENTION_LAUNCH_WORDS, ATTENTION_LAUNCHES, KV_SLABS, ROW_TABLE, ROW_WORDS, ROWS, RUN_TABLE, RUN_WORDS, SPAN_TABLE,
    SPAN_WORDS, View,
};
use crate::twin::{Args, dot};

/// Parameters of [`ATTENTION`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct AttentionParams {
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
    /// Zero.
    pub pad: u32,
}

/// Head sizes the kernel is compiled for.
pub const HEAD_SIZES: &[u32] = &[8, 16, 32, 64, 128, 256];

/// `out = softmax(scale·q·Kᵀ)·V` over the spans of each row whose slabs are bound, online over launches.
///
/// `q` is `[rows, heads·HEAD]`, normalised but not rotated; `out` has its shape; `stats` is `[rows, heads, 2]`: the
/// running maximum and sum of weights. KV slabs are `[KV rows, 2, kv_heads·HEAD]`. Grid: x = heads, y = rows.
pub static ATTENTION: Kernel = Kernel {
    id: KernelId(12),
    name: "attention",
    wgsl: Some("attention/attention.wgsl"),
    cuda: Some("attention/attention.cu"),
    twin: Some(twin),
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
    params: size_of::<AttentionParams>(),
    workgroup: Workgroup::new(64, 2848),
    constants: &[Constant { name: "HEAD", legal: HEAD_SIZES }],
};

/// Keys that are scored before their weights are applied.
const TILE: usize = 64;

struct Reader<'a> {
    p: AttentionParams,
    head: usize,
    t: View<'a>,
    slabs: [&'a [f32]; KV_SLABS],
}

/// Running maximum, sum of weights and weighted values of one (row, head).
struct Online<'a> {
    max: f32,
    sum: f32,
    out: &'a mut [f32],
}

impl Reader<'_> {
    fn row(&self, r: usize, q: &[f32], out: &mut [f32], stats: &mut [f32]) {
        let row = self.t.record(ROW_TABLE, r, ROW_WORDS);
        let run = self.t.record(RUN_TABLE, row[0] as usize, RUN_WORDS);
        let launch = self.t.record(ATTENTION_LAUNCHES, self.p.launch as usize, ATTENTION_LAUNCH_WORDS);
        let bound = &launch[4..4 + launch[0] as usize];
        let spans: Vec<(&[u32], &[f32])> = (run[2]..run[2] + run[3])
            .map(|i| self.t.record(SPAN_TABLE, i as usize, SPAN_WORDS))
            .filter_map(|span| {
                let slab = bound.iter().position(|&slab| slab == span[0])?;
                Some((span, self.slabs[slab]))
            })
            .collect();
        let rot = self.p.rot as usize;
        let group = (self.p.heads / self.p.kv_heads) as usize;
        let (pc, ps) = self.t.angle(row[2], rot);
        let mut turned = vec![0.0; self.head];
        let heads = out.chunks_mut(self.head).zip(stats.chunks_mut(2)).zip(q.chunks(self.head));
        for (h, ((out, stats), q)) in heads.enumerate() {
            if self.p.first == 1 {
                out.fill(0.0);
                stats.copy_from_slice(&[f32::NEG_INFINITY, 0.0]);
            }
            let mut online = Online { max: stats[0], sum: stats[1], out };
            for (span, slab) in &spans {
                let (ac, sin_a) = self.t.angle(span[4], rot);
                let cos: Vec<f32> = (0..rot / 2).map(|i| pc[i] * ac[i] + ps[i] * sin_a[i]).collect();
                let sin: Vec<f32> = (0..rot / 2).map(|i| ps[i] * ac[i] - pc[i] * sin_a[i]).collect();
                turned.copy_from_slice(q);
                rotate(&mut turned, &cos, &sin);
                let visible = (row[1] + 1).saturating_sub(span[3]).min(span[2]) as usize;
                self.span(span[1] as usize, visible, h / group, &turned, slab, &mut online);
            }
            stats.copy_from_slice(&[online.max, online.sum]);
            if self.p.last == 1 && online.sum > 0.0 {
                let sum = online.sum;
                online.out.iter_mut().for_each(|o| *o /= sum);
            }
        }
    }

    fn span(&self, first: usize, count: usize, kv_head: usize, q: &[f32], slab: &[f32], online: &mut Online<'_>) {
        let width = self.p.kv_heads as usize * self.head;
        let mut scores = [0.0f32; TILE];
        for tile in (0..count).step_by(TILE) {
            let len = TILE.min(count - tile);
            let at = |j: usize| (first + tile + j) * 2 * width + kv_head * self.head;
            for (j, score) in scores[..len].iter_mut().enumerate() {
                *score = self.p.scale * dot(q, &slab[at(j)..][..self.head]);
            }
            let max = scores[..len].iter().fold(online.max, |m, &s| m.max(s));
            let keep = (online.max - max).exp();
            online.out.iter_mut().for_each(|o| *o *= keep);
            online.sum *= keep;
            online.max = max;
            for (j, score) in scores[..len].iter().enumerate() {
                let weight = (score - max).exp();
                online.sum += weight;
                for (o, v) in online.out.iter_mut().zip(&slab[at(j) + width..][..self.head]) {
                    *o += weight * v;
                }
            }
        }
    }
}

fn twin(args: &mut Args<'_>) {
    let p: AttentionParams = args.params();
    let head = args.constant(0) as usize;
    let reader = Reader {
        p,
        head,
        t: View(args.words(0)),
        slabs: [args.floats(4), args.floats(5), args.floats(6), args.floats(7)],
    };
    let (q, stats, out) = (args.floats(1), args.take(2), args.take(3));
    let heads = p.heads as usize;
    let count = reader.t.header(ROWS);
    out.par_chunks_mut(heads * head)
        .zip(stats.par_chunks_mut(heads * 2))
        .zip(q.par_chunks(heads * head))
        .take(count)
        .enumerate()
        .for_each(|(r, ((out, stats), q))| reader.row(r, q, out, stats));
}
