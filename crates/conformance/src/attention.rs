//! Attention over spans against its definition in f64, on random requests.

use std::sync::Arc;

use seam_device::{BufferRange, BufferUse, DType, Device, Lane, align_up};
use seam_ops::{
    OpError, Operation, PART_ROWS, Parts, PassBuilder, PassTables, RunSpec, SlabId, SpanAttention, SpanSpec, Tensor,
    kv_dtype, splits_keys,
};

use crate::kernels::measure::{groups, norm};
use crate::report::Check;
use crate::tolerance::{ATTENTION, ATTENTION_BF16};

/// Base of the rotary frequencies.
const THETA: f64 = 1e4;

/// Sizes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Head size.
    pub head: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Query heads of a KV head.
    pub group: u32,
    /// Rotated dimensions.
    pub rot: u32,
    /// KV slabs; more than four take more than one launch.
    pub slabs: u32,
    /// Whether the keys of few rows may be cut into parts, where the device does that.
    pub parts: bool,
}

/// Numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n.max(1))) as u32
    }

    fn pick(&mut self, choices: &[u32]) -> u32 {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// bf16 values in −size..size, so that both dtypes hold them exactly.
    fn values(&mut self, count: usize, size: f32) -> Vec<f32> {
        let one = |_| half::bf16::from_f32(size * ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0)).to_f32();
        (0..count).map(one).collect()
    }
}

#[derive(Clone, Copy)]
struct Run {
    pos: u32,
    rows: u32,
    spans: (u32, u32),
}

struct Case {
    sizes: Sizes,
    spans: Vec<SpanSpec>,
    runs: Vec<Run>,
    /// `[KV rows, 2, kv_heads·head]` of each slab; what no span covers is not a number.
    slabs: Vec<Vec<f32>>,
    /// `[rows, heads·head]`.
    queries: Vec<f32>,
}

/// The number of a slab as the tables name it: private and shared ones in turn.
fn slab_id(i: u32) -> SlabId {
    if i.is_multiple_of(2) { SlabId::Private(i) } else { SlabId::Shared(i) }
}

impl Case {
    /// Up to three requests of up to nine spans of 1 to 300 keys, from position 0 or a late one, with rows at the ends of
    /// some spans and of all, and now and then rows that see nothing.
    fn new(sizes: Sizes, seed: u64) -> Self {
        let mut random = Random(seed);
        let (mut spans, mut runs) = (Vec::new(), Vec::new());
        let mut used = vec![0; sizes.slabs as usize];
        for _ in 0..1 + random.below(3) {
            let first = spans.len() as u32;
            let mut pos = random.pick(&[0, 0, 100_000]);
            let mut origin = pos;
            let begin = pos;
            for i in 0..random.pick(&[1, 2, 5, 9]) {
                let len = random.pick(&[1, 8, 16, 63, 64, 65, 300]);
                if random.below(3) > 0 {
                    origin = pos;
                }
                let slab = random.below(sizes.slabs);
                let row = &mut used[slab as usize];
                *row += random.below(3);
                spans.push(SpanSpec { slab: slab_id(slab), row: *row, len, pos, origin });
                *row += len;
                pos += len;
                if random.below(4) == 0 {
                    let rows = random.pick(&[1, 2, 8, 9, 40]).min(len);
                    runs.push(Run { pos: pos - rows, rows, spans: (first, i + 1) });
                }
            }
            let count = spans.len() as u32 - first;
            let rows = random.pick(&[1, 1, 3, 20, 70]).min(pos - begin);
            runs.push(Run { pos: pos - rows, rows, spans: (first, count) });
            if random.below(4) == 0 {
                runs.push(Run { pos: 0, rows: 2, spans: (first, count * random.below(2)) });
            }
        }
        let width = (sizes.kv_heads * sizes.head) as usize;
        let mut slabs: Vec<Vec<f32>> = used.iter().map(|&n| vec![f32::NAN; (n + 1) as usize * 2 * width]).collect();
        for span in &spans {
            let (SlabId::Private(slab) | SlabId::Shared(slab)) = span.slab;
            let values = random.values(span.len as usize * 2 * width, 1.0);
            slabs[slab as usize][span.row as usize * 2 * width..][..values.len()].copy_from_slice(&values);
        }
        let rows: u32 = runs.iter().map(|run| run.rows).sum();
        let queries = random.values((rows * sizes.group) as usize * width, 3.0);
        Self { sizes, spans, runs, slabs, queries }
    }

    fn pass(&self) -> Result<PassTables, OpError> {
        let mut pass = PassBuilder::new(0, self.sizes.rot, THETA).with_tiles(self.sizes.group);
        pass.spans(&self.spans);
        for run in &self.runs {
            let (tokens, pos, spans) = (vec![0; run.rows as usize], run.pos, run.spans);
            pass.run(&RunSpec { tokens: &tokens, pos, origin: pos, kv: &[], spans, history: &[] })?;
        }
        pass.finish()
    }

    /// The output of one head of a row in f64, and the weighted mean of `‖v‖`: what it would be if nothing cancelled.
    fn attend(&self, run: Run, pos: u32, q: &[f32], kv_head: usize) -> (Vec<f64>, f64) {
        let (head, width) = (self.sizes.head as usize, (self.sizes.kv_heads * self.sizes.head) as usize);
        let half = self.sizes.rot as usize / 2;
        let (mut logits, mut values) = (Vec::new(), Vec::new());
        for span in &self.spans[run.spans.0 as usize..][..run.spans.1 as usize] {
            let mut turned: Vec<f64> = q.iter().map(|&x| f64::from(x)).collect();
            for i in 0..half {
                let angle = (f64::from(pos) - f64::from(span.origin)) * THETA.powf(-(i as f64) / half as f64);
                let ((sin, cos), a, b) = (angle.sin_cos(), turned[i], turned[i + half]);
                (turned[i], turned[i + half]) = (a * cos - b * sin, b * cos + a * sin);
            }
            let (SlabId::Private(slab) | SlabId::Shared(slab)) = span.slab;
            for j in (0..span.len).filter(|j| span.pos + j <= pos) {
                let at = (span.row + j) as usize * 2 * width + kv_head * head;
                let (key, value) = (&self.slabs[slab as usize][at..][..head], &self.slabs[slab as usize][at + width..]);
                let dot: f64 = turned.iter().zip(key).map(|(q, k)| q * f64::from(*k)).sum();
                logits.push(dot / f64::from(self.sizes.head).sqrt());
                values.push(&value[..head]);
            }
        }
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|l| (l - most).exp()).sum();
        let (mut out, mut mean) = (vec![0.0; head], 0.0);
        for (logit, value) in logits.iter().zip(values) {
            let weight = (logit - most).exp() / sum;
            out.iter_mut().zip(value).for_each(|(o, v)| *o += weight * f64::from(*v));
            mean += weight * norm(&value.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
        }
        (out, mean)
    }

    fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let head = self.sizes.head as usize;
        let mut queries = self.queries.chunks_exact(head);
        let (mut out, mut means) = (Vec::new(), Vec::new());
        for run in &self.runs {
            for pos in run.pos..run.pos + run.rows {
                for kv_head in 0..self.sizes.kv_heads as usize {
                    for q in queries.by_ref().take(self.sizes.group as usize) {
                        let (values, mean) = self.attend(*run, pos, q, kv_head);
                        out.extend(values);
                        means.push(mean);
                    }
                }
            }
        }
        (out, means)
    }

    fn upload(&self, device: &dyn Device, dtype: DType) -> Result<Vec<BufferRange>, OpError> {
        let one = |values: &Vec<f32>| {
            let mut bytes: Vec<u8> = match dtype {
                DType::BF16 => values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect(),
                _ => bytemuck::cast_slice(values).to_vec(),
            };
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let buffer = device.alloc("KV", align_up(bytes.len() as u64), BufferUse::Storage)?;
            device.write(&buffer.range(0, bytes.len() as u64)?, &bytes)?;
            Ok(buffer.all())
        };
        self.slabs.iter().map(one).collect()
    }
}

/// One random request batch on a device, in the dtype that the device stores keys in.
///
/// In f32 errors count against the weighted mean of `‖v‖`, in bf16 against the output itself, per row and head. Rows that
/// see no key must be exactly zero, and rows behind the last one are not written.
///
/// # Errors
/// What the device says.
pub fn check(device: &Arc<dyn Device>, sizes: Sizes, seed: u64) -> Result<Check, OpError> {
    let case = Case::new(sizes, seed);
    let pass = case.pass()?;
    let dtype = kv_dtype(device.caps(), sizes.head);
    let slabs = case.upload(&**device, dtype)?;
    let none = device.alloc("no slab", 256, BufferUse::Storage)?.all();
    let launches: Vec<[BufferRange; 4]> = pass
        .shape
        .attention
        .iter()
        .map(|launch| {
            let range = |slab: &SlabId| {
                let (SlabId::Private(i) | SlabId::Shared(i)) = slab;
                slabs[*i as usize].clone()
            };
            std::array::from_fn(|i| launch.slabs.get(i).map_or_else(|| none.clone(), range))
        })
        .collect();
    let heads = sizes.kv_heads * sizes.group;
    let width = heads * sizes.head;
    let tables = device.alloc("tables", u64::from(pass.shape.words) * 4, BufferUse::Storage)?.all();
    device.write(&tables, bytemuck::cast_slice(&pass.words))?;
    let poisoned = |label: &str, rows: u32, cols: u32| -> Result<Tensor, OpError> {
        let tensor = Tensor::new(&**device, label, rows, cols)?;
        device.write(&tensor.range(), bytemuck::cast_slice(&vec![f32::NAN; (rows * cols) as usize]))?;
        Ok(tensor)
    };
    let rows = pass.shape.rows + 1;
    let [q, out] = [poisoned("q", rows, width)?, poisoned("out", rows, width)?];
    let stats = poisoned("stats", rows, 2 * heads)?;
    device.write(&q.first(case.queries.len() as u32 / width).range(), bytemuck::cast_slice(&case.queries))?;
    let parts = (sizes.parts && splits_keys(device.caps(), dtype))
        .then(|| -> Result<_, OpError> {
            Ok((poisoned("parts", PART_ROWS, width)?, poisoned("part statistics", PART_ROWS, 2 * heads)?))
        })
        .transpose()?;
    let mut recorder = device.recorder();
    SpanAttention {
        tables: &tables,
        q: &q,
        stats: &stats,
        out: &out,
        heads: (heads, sizes.kv_heads),
        head: sizes.head,
        rot: sizes.rot,
        scale: (1.0 / f64::from(sizes.head).sqrt()) as f32,
        launches: &launches,
        dtype,
        tiles: pass.shape.tiles,
        parts: parts.as_ref().map(|(out, stats)| Parts { out, stats }),
    }
    .record(&mut *recorder, device.caps())?;
    let ticket = device.submit(&recorder.finish()?, Lane::Compute, &[])?;
    let bytes = device.read(&out.range(), &[ticket])?.wait()?;
    let all: Vec<f64> =
        bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect();
    let (found, behind) = all.split_at(case.queries.len());
    let (reference, means) = case.reference();
    let name = format!("attention, {sizes:?}, seed {seed}");
    let mut check = if dtype == DType::BF16 {
        let own: Vec<f64> = reference.chunks_exact(sizes.head as usize).map(norm).collect();
        groups(&name, found, &reference, &own, ATTENTION_BF16)
    } else {
        groups(&name, found, &reference, &means, ATTENTION)
    };
    if behind.iter().any(|x| !x.is_nan()) {
        (check.error, check.at) = (f64::INFINITY, found.len());
    }
    Ok(check)
}
