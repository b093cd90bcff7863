//! Experts of a layer: pairs sorted, two products with an activation between them, and the weighted sum.

use std::sync::Arc;

use seam_conformance::tolerance::EXPERTS;
use seam_device::{BufferUse, DType, Device, HostBytes, e4m3};
use seam_ops::{
    Activation, ActivationKind, BlockScales, ExpertBytes, ExpertCombine, ExpertProduct, ExpertSort, ExpertWeight,
    Shared, Tensor, expert_words,
};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass, repeated};
use crate::random::Random;
use crate::reference::{compare, dot, output, sampled, silu, wide};
use crate::registry::Scale;

/// Sizes of a layer of experts and of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rows: u32,
    pub(crate) experts: u32,
    pub(crate) top: u32,
    pub(crate) hidden: u32,
    /// Inner width of an expert.
    pub(crate) inner: u32,
}

/// So few rows that pairs stay alone, some, and many.
fn sizes(scale: Scale) -> [Sizes; 3] {
    match scale {
        Scale::Small => [2, 16, 80].map(|rows| Sizes { rows, experts: 32, top: 4, hidden: 160, inner: 48 }),
        Scale::Real => [1, 64, 1024].map(|rows| Sizes { rows, experts: 256, top: 8, hidden: 2048, inner: 512 }),
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let all = sizes(scale);
    let Sizes { experts, top, hidden, inner, .. } = all[0];
    let rows = all.map(|s| s.rows);
    format!("{rows:?} rows, {top} of {experts} experts [{inner}, {hidden}], bf16 and FP8")
}

/// Numbers of a sequence before it repeats: a prime, so that no two rows are alike.
const NOISE: usize = 65_537;
/// Rows for which a scale of FP8 weights holds: `2^SHIFT`.
const SHIFT: u32 = 4;

/// Weights `[experts, n, k]` as the reference reads them.
struct Values {
    n: usize,
    k: usize,
    block: Vec<f64>,
    scales: Vec<f32>,
}

impl Values {
    fn row(&self, expert: usize, row: usize) -> Vec<f64> {
        let (rows, cols) = (self.n.div_ceil(1 << SHIFT), self.k.div_ceil(128));
        let at = (expert * self.n + row) * self.k;
        let scale = |i: usize| {
            let of = (expert * rows + (row >> SHIFT)) * cols + i / 128;
            self.scales.get(of).map_or(1.0, |s| f64::from(*s))
        };
        (0..self.k).map(|i| self.block[(at + i) % self.block.len()] * scale(i)).collect()
    }
}

fn weights(
    lab: &Lab,
    label: &str,
    dims: [u32; 3],
    dtype: DType,
    seed: u64,
) -> Result<(ExpertWeight, Values), BenchError> {
    let [experts, n, k] = dims.map(|x| x as usize);
    let len = experts * n * k;
    let mut random = Random::new(seed);
    let size = len.min(NOISE) as u32;
    let (bytes, block, scales) = if dtype == DType::F8E4M3 {
        // All but the two that are no numbers.
        let bytes: Vec<u8> = (0..size).map(|_| (random.below(0x7f) | random.below(2) << 7) as u8).collect();
        let blocks = experts * n.div_ceil(1 << SHIFT) * k.div_ceil(128);
        let values = random.reals(blocks as u32, 0.002, 0.004);
        let block = bytes.iter().map(|b| f64::from(e4m3(*b))).collect();
        (repeated(&bytes, len), block, Some(BlockScales { shift: SHIFT, values }))
    } else {
        let values: Vec<half::bf16> = random.signed(size).into_iter().map(half::bf16::from_f32).collect();
        let block = values.iter().map(|x| x.to_f64()).collect();
        (bytemuck::cast_slice(&repeated(&values, len)).to_vec(), block, None)
    };
    let bytes = HostBytes::from_vec(bytes);
    let weight = ExpertWeight::load(&**lab.device(), label, dtype, dims, ExpertBytes::Whole(&bytes), scales.as_ref())?;
    Ok((weight, Values { n, k, block, scales: scales.map(|s| s.values).unwrap_or_default() }))
}

/// What the reference of a recorded layer needs.
pub(crate) struct Inputs {
    s: Sizes,
    x: Vec<f32>,
    index: Vec<u32>,
    weight: Vec<f32>,
    first: Values,
    down: Values,
}

impl Inputs {
    /// Row r of the result.
    fn row(&self, r: usize) -> Vec<f64> {
        let Sizes { top, hidden, inner, .. } = self.s;
        let [top, hidden, inner] = [top, hidden, inner].map(|n| n as usize);
        let x = wide(&self.x[r * hidden..][..hidden]);
        let mut out = vec![0.0; hidden];
        for j in 0..top {
            let expert = self.index[r * top + j] as usize;
            let first = |i: usize| dot(&self.first.row(expert, i), &x);
            let act: Vec<f64> = (0..inner).map(|i| silu(first(i)) * first(inner + i)).collect();
            for (i, out) in out.iter_mut().enumerate() {
                *out += f64::from(self.weight[r * top + j]) * dot(&self.down.row(expert, i), &act);
            }
        }
        out
    }
}

/// Records a layer of experts behind its router; its result is an output.
pub(crate) fn record(lab: &mut Lab, s: Sizes, dtype: DType, seed: u64) -> Result<(Inputs, Cost), BenchError> {
    let Sizes { rows, experts, top, hidden, inner } = s;
    let pass = plain_pass(rows)?;
    let (tables, capacity) = (lab.tables(&pass)?, pass.shape.rows);
    let mut random = Random::new(seed);
    let x = repeated(&random.signed((rows * hidden).min(NOISE as u32)), (rows * hidden) as usize);
    // Different experts of a row: steps from a random one.
    let mut index = Vec::new();
    for _ in 0..rows {
        let (start, step) = (random.below(experts), 1 + random.below(experts / top));
        index.extend((0..top).map(|j| (start + j * step) % experts));
    }
    let weight = random.reals(rows * top, 0.1, 0.3);
    let words: Vec<f32> = index.iter().map(|e| f32::from_bits(*e)).collect();
    let on_device = (
        lab.input("x", capacity, hidden, &x)?,
        lab.input("index", capacity, top, &words)?,
        lab.input("weight", capacity, top, &weight)?,
    );
    let (first_weight, first) = weights(lab, "gate and up", [experts, 2 * inner, hidden], dtype, seed + 1)?;
    let (down_weight, down) = weights(lab, "down", [experts, hidden, inner], dtype, seed + 2)?;
    let pairs = capacity * top;
    let groups = lab.device().alloc("groups", expert_words(pairs, experts) * 4, BufferUse::Storage)?.all();
    let [up, act, y] = [2 * inner, inner, hidden].map(|cols| lab.scratch("pairs", pairs, cols));
    let (up, act, y) = (up?, act?, y?);
    let out = lab.output("out", capacity, rows, hidden)?;
    let (x_device, index_device, weight_device) = &on_device;
    let (tables, groups) = (&tables, &groups);
    let product = |x, weight, out| ExpertProduct { tables, index: index_device, groups, x, weight, out, column: 0 };
    lab.record(&ExpertSort { tables, index: index_device, experts, groups })?;
    lab.record(&product(x_device, &first_weight, &up))?;
    lab.record(&Activation { tables, x: &up, out: &act, top, kind: ActivationKind::SwiGlu })?;
    lab.record(&product(&act, &down_weight, &y))?;
    let weight_device: &Tensor = weight_device;
    lab.record(&ExpertCombine {
        tables,
        weight: weight_device,
        y: &y,
        shared: Shared::None,
        out: &out,
        scale: 1.0,
        accumulate: false,
    })?;
    let [rows64, pairs, used] = [rows, rows * top, experts.min(rows * top)].map(u64::from);
    let [hidden64, inner64] = [hidden, inner].map(u64::from);
    let elements = 3 * hidden64 * inner64;
    let cost = Cost {
        bytes: Some(used * elements * dtype.size() as u64 + 4 * 2 * rows64 * hidden64),
        flops: Some(2 * pairs * elements),
        tokens: Some(rows64),
    };
    Ok((Inputs { s, x, index, weight, first, down }, cost))
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let mut lab = Lab::new(device);
    let mut all = Vec::new();
    let mut bytes = 0;
    for dtype in [DType::BF16, DType::F8E4M3] {
        for s in sizes(scale) {
            let (inputs, cost) = record(&mut lab, s, dtype, 21 + u64::from(s.rows))?;
            bytes += cost.bytes.unwrap_or_default();
            all.push((format!("{dtype}, {} rows", s.rows), inputs));
        }
    }
    lab.finish(name, Cost { bytes: Some(bytes), ..Cost::default() }, move |outputs| {
        let check = |(i, (name, inputs)): (usize, &(String, Inputs))| {
            let (hidden, some) = (inputs.s.hidden, sampled(scale, inputs.s.rows));
            compare(name, output(outputs, i), (hidden, hidden), &some, EXPERTS, |r| inputs.row(r))
        };
        Ok(all.iter().enumerate().map(check).collect())
    })
}
