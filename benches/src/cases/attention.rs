//! Attention: a pass at the end of one span, and the rows of a warm request over many.

use std::sync::Arc;

use seam_conformance::tolerance::{ATTENTION, ATTENTION_BF16};
use seam_device::{BufferRange, DType, Device};
use seam_ops::{PART_ROWS, Parts, PassBuilder, RunSpec, SlabId, SpanAttention, SpanSpec, kv_dtype, splits_keys};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{dot, groups, output, part, rotated, sampled, wide};
use crate::registry::Scale;

/// Frequencies of Qwen3.5.
const THETA: f64 = 1e7;

/// Rows of a seam.
const SEAM: u32 = 8;

/// Slabs of cached entries; with the private one they are more than one launch binds.
const SHARED: u32 = 4;

/// Heads of the fixture model, and of Qwen3.5-9B.
#[derive(Clone, Copy)]
struct Heads {
    query: u32,
    kv: u32,
    size: u32,
    rot: u32,
}

fn heads(scale: Scale) -> Heads {
    match scale {
        Scale::Small => Heads { query: 4, kv: 2, size: 64, rot: 16 },
        Scale::Real => Heads { query: 16, kv: 4, size: 256, rot: 64 },
    }
}

/// Rows, and keys that the last of them sees.
fn pass_sizes(scale: Scale) -> (u32, u32) {
    match scale {
        Scale::Small => (40, 100),
        Scale::Real => (512, 2048),
    }
}

/// Tokens of the head, documents, tokens of each, tokens of the query.
fn request_sizes(scale: Scale) -> [u32; 4] {
    match scale {
        Scale::Small => [20, 6, 22, 9],
        Scale::Real => [512, 16, 1024, 32],
    }
}

fn words(h: Heads) -> String {
    format!("{}/{} heads of {}", h.query, h.kv, h.size)
}

pub(crate) fn prefill_shape(scale: Scale) -> String {
    let (rows, keys) = pass_sizes(scale);
    format!("{rows} rows, {keys} keys, {}", words(heads(scale)))
}

pub(crate) fn spans_shape(scale: Scale) -> String {
    let [head, documents, tokens, query] = request_sizes(scale);
    let (rows, keys) = (documents * SEAM + query, head + documents * tokens + query);
    format!("{rows} rows, {keys} keys in {} spans, {}", 2 + 2 * documents, words(heads(scale)))
}

/// Consecutive rows that read the first `spans` spans.
#[derive(Clone, Copy)]
struct Run {
    pos: u32,
    rows: u32,
    spans: u32,
}

pub(crate) fn prefill(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let (rows, keys) = pass_sizes(scale);
    let span = SpanSpec { slab: SlabId::Private(0), row: 0, len: keys, pos: 0, origin: 0 };
    prepare(name, device, scale, vec![span], &[Run { pos: keys - rows, rows, spans: 1 }])
}

/// `head, seam1, interior1, …, query`: the interiors and the head in shared slabs in turn, fresh keys in the private one.
pub(crate) fn spans(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let [head, documents, tokens, query] = request_sizes(scale);
    let mut used = [0; SHARED as usize + 1];
    let mut place = |slab: u32, len: u32| {
        let row = used[slab as usize];
        used[slab as usize] += len;
        row
    };
    let fresh = SHARED;
    let mut spans = vec![SpanSpec { slab: SlabId::Shared(0), row: place(0, head), len: head, pos: 0, origin: 0 }];
    let mut runs = Vec::new();
    for i in 0..documents {
        let origin = head + i * tokens;
        let row = place(fresh, SEAM);
        spans.push(SpanSpec { slab: SlabId::Private(0), row, len: SEAM, pos: origin, origin });
        runs.push(Run { pos: origin, rows: SEAM, spans: spans.len() as u32 });
        let (slab, len) = (i % SHARED, tokens - SEAM);
        spans.push(SpanSpec { slab: SlabId::Shared(slab), row: place(slab, len), len, pos: origin + SEAM, origin });
    }
    let origin = head + documents * tokens;
    let row = place(fresh, query);
    spans.push(SpanSpec { slab: SlabId::Private(0), row, len: query, pos: origin, origin });
    runs.push(Run { pos: origin, rows: query, spans: spans.len() as u32 });
    prepare(name, device, scale, spans, &runs)
}

/// The raw keys and the values of a span, `[len, kv·size]` each.
struct Content {
    keys: Vec<f32>,
    values: Vec<f32>,
}

fn prepare(
    name: &'static str,
    device: &Arc<dyn Device>,
    scale: Scale,
    spans: Vec<SpanSpec>,
    runs: &[Run],
) -> Result<Case, BenchError> {
    let h = heads(scale);
    let width = h.kv * h.size;
    let mut random = Random::new(6);
    let dtype = kv_dtype(device.caps(), h.size);
    let mut pass = PassBuilder::new(0, h.rot, THETA);
    if dtype == DType::BF16 {
        pass = pass.with_tiles(h.query / h.kv);
    }
    pass.spans(&spans);
    for run in runs {
        let tokens = vec![0; run.rows as usize];
        pass.run(&RunSpec { tokens: &tokens, pos: run.pos, origin: 0, kv: &[], spans: (0, run.spans), history: &[] })?;
    }
    let rows: u32 = runs.iter().map(|run| run.rows).sum();
    let pass = pass.finish()?;

    // Values that are stored as they are; keys are rounded after they were rotated.
    let stored = |x: f32| if dtype == DType::BF16 { half::bf16::from_f32(x).to_f32() } else { x };
    let contents: Vec<Content> = spans
        .iter()
        .map(|span| {
            let [keys, values] = [random.signed(span.len * width), random.signed(span.len * width)];
            Content { keys, values: values.into_iter().map(stored).collect() }
        })
        .collect();
    let mut lab = Lab::new(device);
    let tables = lab.tables(&pass)?;
    let slabs = fill(&lab, h, dtype, &spans, &contents)?;
    let none = lab.no_slab()?;
    let bound = |slab: &SlabId| slabs.iter().find(|(id, _)| id == slab).map_or(&none, |(_, range)| range).clone();
    let launches: Vec<[BufferRange; 4]> = pass
        .shape
        .attention
        .iter()
        .map(|launch| std::array::from_fn(|i| launch.slabs.get(i).map_or_else(|| none.clone(), bound)))
        .collect();
    let queries = random.reals(rows * h.query * h.size, -3.0, 3.0);
    let capacity = pass.shape.rows;
    let q = lab.input("q", capacity, h.query * h.size, &queries)?;
    let stats = lab.scratch("stats", capacity, 2 * h.query)?;
    let out = lab.output("out", capacity, rows, h.query * h.size)?;
    let parts = splits_keys(device.caps(), dtype)
        .then(|| -> Result<_, BenchError> {
            let [out, stats] = [h.query * h.size, 2 * h.query].map(|cols| lab.scratch("parts", PART_ROWS, cols));
            Ok((out?, stats?))
        })
        .transpose()?;
    lab.record(&SpanAttention {
        tables: &tables,
        q: &q,
        stats: &stats,
        out: &out,
        heads: (h.query, h.kv),
        head: h.size,
        rot: h.rot,
        scale: (1.0 / f64::from(h.size).sqrt()) as f32,
        launches: &launches,
        dtype,
        tiles: pass.shape.tiles,
        parts: parts.as_ref().map(|(out, stats)| Parts { out, stats }),
    })?;

    let positions: Vec<(u32, u32)> =
        runs.iter().flat_map(|run| (0..run.rows).map(|i| (run.pos + i, run.spans))).collect();
    let seen = |&(pos, count): &(u32, u32)| -> u64 {
        spans.iter().take(count as usize).map(|s| u64::from((pos + 1).saturating_sub(s.pos).min(s.len))).sum()
    };
    let pairs: u64 = positions.iter().map(seen).sum();
    let keys: u64 = spans.iter().map(|s| u64::from(s.len)).sum();
    let cost = Cost {
        bytes: Some(
            2 * dtype.size() as u64 * keys * u64::from(width) + 8 * u64::from(rows) * u64::from(h.query * h.size),
        ),
        flops: Some(4 * pairs * u64::from(h.query) * u64::from(h.size)),
        tokens: None,
    };
    lab.finish(name, cost, move |outputs| {
        let row = |r: usize| {
            let (pos, count) = positions[r];
            let q = wide(&queries[r * (h.query * h.size) as usize..][..(h.query * h.size) as usize]);
            attend(h, &q, pos, spans.iter().zip(&contents).take(count as usize))
        };
        let width = (h.query * h.size) as usize;
        let (mut found, mut reference, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        for r in sampled(scale, rows) {
            found.extend_from_slice(part(output(outputs, 0), r * width, width));
            let (out, sizes) = row(r);
            reference.extend(out);
            scales.extend(sizes);
        }
        Ok(vec![groups(
            "out",
            &found,
            &reference,
            &scales,
            if dtype == DType::BF16 { ATTENTION_BF16 } else { ATTENTION },
        )])
    })
}

/// The slabs `[KV rows, 2, kv·size]` of f32, or of bf16 two to a word, with keys rotated by their offset inside their segment.
fn fill(
    lab: &Lab,
    h: Heads,
    dtype: DType,
    spans: &[SpanSpec],
    contents: &[Content],
) -> Result<Vec<(SlabId, BufferRange)>, BenchError> {
    let (size, width) = (h.size as usize, (h.kv * h.size) as usize);
    let mut slabs: Vec<(SlabId, Vec<f32>)> = Vec::new();
    for (span, content) in spans.iter().zip(contents) {
        let at = slabs.iter().position(|(id, _)| *id == span.slab).unwrap_or_else(|| {
            slabs.push((span.slab, Vec::new()));
            slabs.len() - 1
        });
        let words = &mut slabs[at].1;
        words.resize(words.len().max((span.row + span.len) as usize * 2 * width), f32::NAN);
        let tokens = content.keys.chunks_exact(width).zip(content.values.chunks_exact(width));
        for (j, (key, value)) in tokens.enumerate() {
            let offset = span.pos - span.origin + j as u32;
            let to = &mut words[(span.row as usize + j) * 2 * width..][..2 * width];
            for (to, head) in to.chunks_exact_mut(size).zip(key.chunks_exact(size)) {
                let turned = rotated(&wide(head), h.rot, THETA, offset);
                to.iter_mut().zip(turned).for_each(|(to, x)| *to = x as f32);
            }
            to[width..].copy_from_slice(value);
        }
    }
    let stored = |values: Vec<f32>| -> Vec<f32> {
        if dtype != DType::BF16 {
            return values;
        }
        let bits = |x: f32| u32::from(half::bf16::from_f32(x).to_bits());
        values.chunks_exact(2).map(|pair| f32::from_bits(bits(pair[0]) | bits(pair[1]) << 16)).collect()
    };
    slabs.into_iter().map(|(id, values)| Ok((id, lab.slab("KV", &stored(values))?.all()))).collect()
}

/// Attention by its definition: query and keys rotated by their positions in the prompt, softmax over all keys at once.
/// Returns the row's output, and for each head the weighted mean of `‖v‖`: what the output would be if nothing cancelled.
fn attend<'a>(
    h: Heads,
    q: &[f64],
    pos: u32,
    spans: impl Iterator<Item = (&'a SpanSpec, &'a Content)> + Clone,
) -> (Vec<f64>, Vec<f64>) {
    let (size, width) = (h.size as usize, (h.kv * h.size) as usize);
    let scale = 1.0 / (size as f64).sqrt();
    let (mut out, mut sizes) = (Vec::with_capacity(q.len()), Vec::new());
    for (head, q) in q.chunks_exact(size).enumerate() {
        let at = head / (h.query / h.kv) as usize * size;
        let q = rotated(q, h.rot, THETA, pos);
        let (mut logits, mut values) = (Vec::new(), Vec::new());
        for (span, content) in spans.clone() {
            for j in (0..span.len).filter(|j| span.pos + j <= pos) {
                let from = j as usize * width + at;
                let key = rotated(&wide(&content.keys[from..][..size]), h.rot, THETA, span.pos + j);
                logits.push(scale * dot(&q, &key));
                values.push(&content.values[from..][..size]);
            }
        }
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|l| (l - most).exp()).sum();
        let (mut mixed, mut mean) = (vec![0.0; size], 0.0);
        for (logit, value) in logits.iter().zip(values) {
            let weight = (logit - most).exp() / sum;
            mixed.iter_mut().zip(value).for_each(|(m, v)| *m += weight * f64::from(*v));
            mean += weight * dot(&wide(value), &wide(value)).sqrt();
        }
        out.extend(mixed);
        sizes.push(mean);
    }
    (out, sizes)
}
