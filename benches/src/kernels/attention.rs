//! Attention over spans: passes and single rows.

use seam_device::DType;
use seam_ops::{PART_ROWS, Parts, PassBuilder, RunSpec, SlabId, SpanAttention, SpanSpec, kv_dtype, splits_keys};

use super::KernelCase;
use super::sizes::sizes;
use crate::case::Cost;
use crate::error::BenchError;
use crate::lab::{Lab, repeated};
use crate::random::Random;
use crate::registry::Scale;

const THETA: f64 = 1e7;

/// Requests, rows of each, keys that the last row of each sees.
type Shape = [u32; 3];

/// Passes: the last rows of a prompt, and whole prompts.
fn prefill(scale: Scale) -> &'static [Shape] {
    match scale {
        Scale::Small => &[[1, 40, 100]],
        Scale::Real => &[[1, 512, 512], [1, 4096, 4096], [1, 8192, 8192], [1, 512, 32768], [1, 32768, 32768]],
    }
}

/// One row of each request.
fn decode(scale: Scale) -> &'static [Shape] {
    match scale {
        Scale::Small => &[[3, 1, 50]],
        Scale::Real => &[[1, 1, 4096], [1, 1, 32768], [64, 1, 4096]],
    }
}

pub(super) fn cases(scale: Scale) -> Vec<KernelCase> {
    let (heads, kv, size, _) = sizes(scale).attention;
    let of = |group: &str, shapes: &'static [Shape]| -> Vec<KernelCase> {
        let one = |&[requests, rows, keys]: &Shape| KernelCase {
            group: group.to_owned(),
            variant: if requests == 1 { format!("{rows}x{keys}") } else { format!("{requests}x{rows}x{keys}") },
            bench: "attention/prefill",
            shape: format!("{requests} x {rows} rows, {keys} keys, {heads}/{kv} heads of {size}"),
            build: Box::new(move |lab, seed| record(lab, scale, [requests, rows, keys], seed)),
        };
        shapes.iter().map(one).collect()
    };
    let mut cases = of("attention/prefill", prefill(scale));
    cases.extend(of("attention/decode", decode(scale)));
    cases
}

fn record(lab: &mut Lab, scale: Scale, [requests, rows, keys]: Shape, seed: u64) -> Result<Cost, BenchError> {
    let (heads, kv, size, rot) = sizes(scale).attention;
    let (width, kv_width) = (heads * size, kv * size);
    let dtype = kv_dtype(lab.device().caps(), size);
    let mut pass = PassBuilder::new(0, rot, THETA);
    if dtype == DType::BF16 {
        pass = pass.with_tiles(heads / kv);
    }
    for i in 0..requests {
        let spans = [SpanSpec { slab: SlabId::Private(0), row: i * keys, len: keys, pos: 0, origin: 0 }];
        let span = pass.spans(&spans);
        let tokens = vec![0; rows as usize];
        let pos = keys - rows;
        pass.run(&RunSpec { tokens: &tokens, pos, origin: 0, kv: &[], spans: (span, 1), history: &[] })?;
    }
    let pass = pass.finish()?;
    let tables = lab.tables(&pass)?;
    let (all, capacity) = (requests * rows, pass.shape.rows);
    let block = Random::new(seed).signed(65_537);
    let values = repeated(&block, requests as usize * keys as usize * 2 * kv_width as usize);
    let slab = match dtype {
        DType::BF16 => lab.slab("KV", &packed(&values))?,
        _ => lab.slab("KV", &values)?,
    };
    let none = lab.no_slab()?;
    let launches: Vec<_> =
        pass.shape.attention.iter().map(|_| [slab.all(), none.clone(), none.clone(), none.clone()]).collect();
    let q = lab.noise("q", [capacity, all, width], (seed + 1, -3.0, 3.0))?;
    let stats = lab.scratch("stats", capacity, 2 * heads)?;
    let out = lab.output("out", capacity, all, width)?;
    let parts = splits_keys(lab.device().caps(), dtype)
        .then(|| -> Result<_, BenchError> {
            let [out, stats] = [width, 2 * heads].map(|cols| lab.scratch("parts", PART_ROWS, cols));
            Ok((out?, stats?))
        })
        .transpose()?;
    lab.record(&SpanAttention {
        tables: &tables,
        q: &q,
        stats: &stats,
        out: &out,
        heads: (heads, kv),
        head: size,
        rot,
        scale: (1.0 / f64::from(size).sqrt()) as f32,
        launches: &launches,
        dtype,
        tiles: pass.shape.tiles,
        parts: parts.as_ref().map(|(out, stats)| Parts { out, stats }),
    })?;
    let [requests, rows, keys] = [requests, rows, keys].map(u64::from);
    // Row i of a request sees keys − rows + i + 1 keys.
    let pairs = requests * (rows * (keys - rows) + rows * (rows + 1) / 2);
    Ok(Cost {
        bytes: Some(
            2 * dtype.size() as u64 * requests * keys * u64::from(kv_width) + 8 * requests * rows * u64::from(width),
        ),
        flops: Some(4 * pairs * u64::from(width)),
        tokens: Some(requests * rows),
    })
}

/// Pairs of values rounded to bf16, a word each: bf16 is the upper half of an f32.
fn packed(values: &[f32]) -> Vec<f32> {
    let half = |x: f32| u32::from(half::bf16::from_f32(x).to_bits());
    values.as_chunks::<2>().0.iter().map(|[low, high]| f32::from_bits(half(*low) | half(*high) << 16)).collect()
}
