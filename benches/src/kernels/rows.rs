//! Operations that see an ordinary batch of rows, and products.

use seam_device::BufferRange;
use seam_kernels::scan::CLEAN;
use seam_kernels::tables::ROWS;
use seam_ops::{
    Blend, Choice, ConvSilu, ConvTail, Embed, GatedRmsNorm, GatherRows, GdnGate, GlaGate, HeadNorm, KdaGate, KeyNorm,
    KvWrite, L2Norm, Linear, MambaGate, OutputGate, Pairing, PassBuilder, PassTables, RmsNorm, Rope, Router, RunSpec,
    Scan, Scoring, SigmoidGate, Skip, Source, SwiGlu, Test, kv_dtype,
};

use super::KernelCase;
use super::sizes::{Sizes, sizes};
use crate::case::Cost;
use crate::cases::sample;
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::registry::Scale;

const EPS: f32 = 1e-6;
const THETA: f64 = 1e7;
/// Taps of the convolution, and inputs that a run's first row sees from before.
const TAPS: u32 = 4;
const HISTORY: u32 = TAPS - 1;
/// Rows of a run whose tail is kept: a seam and what a document has at least.
const TAIL_EVERY: u32 = 64;
/// One row in so many wants logits.
const LOGITS_EVERY: u32 = 4;

/// What a recording sees: the sizes, its rows, and the seed of its inputs.
struct On {
    s: Sizes,
    rows: u32,
    seed: u64,
}

impl On {
    /// Tables of a pass that has nothing but rows, and the rows that its tensors have room for.
    fn plain(&self, lab: &Lab) -> Result<(BufferRange, u32), BenchError> {
        let pass = plain_pass(self.rows)?;
        Ok((lab.tables(&pass)?, pass.shape.rows))
    }

    /// A cost by elements of f32 and by operations, each for one row, and by elements once.
    fn cost(&self, elements: u32, flops: u32, once: u32) -> Cost {
        let rows = u64::from(self.rows);
        Cost {
            bytes: Some(4 * (rows * u64::from(elements) + u64::from(once))),
            flops: Some(rows * u64::from(flops)),
            tokens: Some(rows),
        }
    }
}

type Record = fn(&mut Lab, &On) -> Result<Cost, BenchError>;

/// Sizes of an operation beside its rows.
type Words = fn(&Sizes) -> String;

/// The operations over rows: group, bench of the registry, sizes in words, recording.
const OPERATIONS: &[(&str, &str, Words, Record)] = &[
    ("embed", "embed", |s| format!("[{}, {}] bf16", s.vocab, s.hidden), embed),
    ("gather_rows", "embed", |s| format!("every {LOGITS_EVERY}th of {}", s.hidden), gather),
    ("rms_norm", "norm", |s| format!("of {}", s.hidden), rms_norm),
    ("gated_rms_norm", "norm", |s| format!("{} heads of {}", s.linear.1, s.linear.2), gated_rms_norm),
    ("l2_norm", "norm", |s| format!("{} heads of {}", 2 * s.linear.0, s.linear.2), l2_norm),
    ("head_norm", "norm", |s| format!("{} heads of {}", 2 * s.lightning.0, s.lightning.1), head_norm),
    ("blend", "elementwise", |s| format!("of {}", s.hidden), blend),
    ("gdn_gate", "elementwise", |s| format!("{} heads", s.linear.1), gdn_gate),
    ("gla_gate", "log_gate", |s| format!("{} heads of {}", s.linear.1, s.linear.2), gla_gate),
    ("kda_gate", "log_gate", |s| format!("{} heads of {}", s.linear.1, s.linear.2), kda_gate),
    ("mamba_gate", "log_gate", |s| format!("{} heads", s.mamba.0), mamba_gate),
    ("conv_silu", "conv_silu", |s| format!("{} channels, {TAPS} taps", s.channels), conv_silu),
    ("conv_tail", "conv_silu", |s| format!("{} channels, every {TAIL_EVERY} rows", s.channels), conv_tail),
    ("rope", "rope", |s| format!("{} heads of {}, {} rotated", s.lightning.0, s.lightning.1, s.lightning.2), rope),
    ("skip", "rope", |s| format!("{} heads of {}", s.mamba.0, s.mamba.1), skip),
    ("kv_write", "kv_write", |s| format!("{} heads of {}", s.attention.1, s.attention.2), kv_write),
    ("sigmoid_gate", "elementwise", |s| format!("{} heads of {}", s.attention.0, s.attention.2), sigmoid_gate),
    ("swiglu", "elementwise", |s| format!("of {}", s.experts_width), swiglu),
    ("router/softmax", "router", |s| format!("{} of {} experts", s.experts.1, s.experts.0), router_softmax),
    (
        "router/groups",
        "router",
        |s| format!("{} of {}, {} groups", s.experts.1, s.experts.0, s.experts.2),
        router_groups,
    ),
    ("scan", "scan", |s| format!("of {}", s.hidden), scan),
];

pub(super) fn cases(scale: Scale) -> Vec<KernelCase> {
    let s = sizes(scale);
    let mut cases = Vec::new();
    for &(group, bench, words, record) in OPERATIONS {
        cases.extend(s.rows.iter().map(|&rows| KernelCase {
            group: group.to_owned(),
            variant: rows.to_string(),
            bench,
            shape: format!("{rows} rows, {}", words(&s)),
            build: Box::new(move |lab, seed| record(lab, &On { s, rows, seed })),
        }));
    }
    let (few, many) = s.products;
    for (group, bench, rows) in [("gemm/few", "gemm/decode", few), ("gemm/many", "gemm/prefill", many)] {
        cases.extend(rows.iter().map(|&m| {
            let (n, k) = s.projection;
            KernelCase {
                group: group.to_owned(),
                variant: m.to_string(),
                bench,
                shape: format!("[{m}, {k}] x [{n}, {k}] bf16"),
                build: Box::new(move |lab, seed| product(lab, [m, n, k], seed)),
            }
        }));
    }
    // Greedy; draws; draws under all filters.
    let kinds = [("greedy", (0.0, 0, 1.0)), ("draw", (1.0, 0, 1.0)), ("filtered", (0.8, 50, 0.95))];
    for (kind, filters) in kinds {
        let rows: &[u32] = if scale == Scale::Small { &[3] } else { &[1, 64] };
        cases.extend(rows.iter().map(|&rows| KernelCase {
            group: format!("sample/{kind}"),
            variant: rows.to_string(),
            bench: "sample",
            shape: format!("{rows} rows of {}", s.logits),
            build: Box::new(move |lab, seed| choose(lab, &On { s, rows, seed }, filters)),
        }));
    }
    cases
}

/// Tokens of rows of logits, by temperature, top-k and top-p.
fn choose(lab: &mut Lab, on: &On, (temperature, top_k, top_p): (f32, u32, f32)) -> Result<Cost, BenchError> {
    let (rows, vocab) = (on.rows, on.s.logits);
    let block = Random::new(on.seed).reals(65_537, -12.0, 6.0);
    let values = crate::lab::repeated(&block, rows as usize * vocab as usize);
    let choices: Vec<Choice> =
        (0..u64::from(rows)).map(|r| Choice::new(temperature, top_k, top_p, 0.0, r << 58 | 1 << 57)).collect();
    sample::record(lab, (rows, vocab), &values, &choices)?;
    // What every row needs at least: a comparison, an exp, a sum and, for a draw, as much of its weights.
    Ok(on.cost(vocab, if temperature > 0.0 { 8 * vocab } else { 4 * vocab }, 0))
}

/// A product of `m` rows.
pub(super) fn product(lab: &mut Lab, [m, n, k]: [u32; 3], seed: u64) -> Result<Cost, BenchError> {
    let pass = plain_pass(m)?;
    let tables = lab.tables(&pass)?;
    let x = lab.noise("A", [pass.shape.rows, m, k], (seed, -1.0, 1.0))?;
    let weight = lab.noise_weight("W", n, k, seed + 1)?;
    let out = lab.output("C", pass.shape.rows, m, n)?;
    lab.record(&Linear { rows: (&tables, ROWS), x: &x, weight: &weight, out: &out, accumulate: false })?;
    let [m, n, k] = [m, n, k].map(u64::from);
    Ok(Cost { bytes: Some(4 * m * k + 2 * n * k + 4 * m * n), flops: Some(2 * m * n * k), tokens: Some(m) })
}

fn tokens(on: &On) -> Vec<u32> {
    let mut random = Random::new(on.seed);
    (0..on.rows).map(|_| random.below(on.s.vocab)).collect()
}

fn pass_of(tokens: &[u32], wanted: impl Iterator<Item = u32>) -> Result<PassTables, BenchError> {
    let mut pass = PassBuilder::new(0, 0, 1.0);
    pass.run(&RunSpec { tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    wanted.for_each(|row| {
        pass.logit(row);
    });
    Ok(pass.finish()?)
}

fn embed(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let pass = pass_of(&tokens(on), std::iter::empty())?;
    let tables = lab.tables(&pass)?;
    let table = lab.noise_weight("embedding", on.s.vocab, on.s.hidden, on.seed)?;
    let out = lab.output("rows", pass.shape.rows, on.rows, on.s.hidden)?;
    lab.record(&Embed { tables: &tables, table: &table, out: &out })?;
    let values = u64::from(on.rows) * u64::from(on.s.hidden);
    Ok(Cost { bytes: Some(6 * values), flops: Some(0), tokens: Some(u64::from(on.rows)) })
}

fn gather(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let wanted = on.rows.div_ceil(LOGITS_EVERY);
    let pass = pass_of(&vec![0; on.rows as usize], (0..wanted).map(|i| on.rows - 1 - i * LOGITS_EVERY))?;
    let tables = lab.tables(&pass)?;
    let x = lab.noise("rows", [pass.shape.rows, on.rows, on.s.hidden], (on.seed, -1.0, 1.0))?;
    let out = lab.output("gathered", pass.shape.logits, wanted, on.s.hidden)?;
    lab.record(&GatherRows { tables: &tables, x: &x, out: &out })?;
    let values = u64::from(wanted) * u64::from(on.s.hidden);
    Ok(Cost { bytes: Some(8 * values), flops: Some(0), tokens: Some(u64::from(on.rows)) })
}

fn rms_norm(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let hidden = on.s.hidden;
    let x = lab.noise("h", [capacity, on.rows, hidden], (on.seed, -1.0, 1.0))?;
    let weight = lab.noise("norm", [1, 1, hidden], (on.seed + 1, -1.0, 1.0))?;
    let out = lab.output("normed", capacity, on.rows, hidden)?;
    lab.record(&RmsNorm {
        rows: (&tables, ROWS),
        x: &x,
        weight: &weight,
        out: &out,
        groups: 1,
        stride: hidden,
        centred: true,
        eps: EPS,
    })?;
    Ok(on.cost(2 * hidden, 5 * hidden, hidden))
}

fn gated_rms_norm(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (_, heads, size) = on.s.linear;
    let width = heads * size;
    let x = lab.noise("o", [capacity, on.rows, width], (on.seed, -1.0, 1.0))?;
    let z = lab.noise("z", [capacity, on.rows, width], (on.seed + 1, -4.0, 4.0))?;
    let weight = lab.noise("norm", [1, 1, size], (on.seed + 2, 0.5, 1.5))?;
    let out = lab.output("gated", capacity, on.rows, width)?;
    lab.record(&GatedRmsNorm {
        tables: &tables,
        x: &x,
        weight: &weight,
        z: &z,
        out: &out,
        groups: heads,
        gate: OutputGate::Silu,
        gate_first: false,
        eps: EPS,
    })?;
    Ok(on.cost(3 * width, 9 * width, size))
}

fn l2_norm(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (heads, _, key) = on.s.linear;
    let width = 2 * heads * key;
    let x = lab.noise_in_place("q and k", [capacity, on.rows, width], (on.seed, -1.0, 1.0))?;
    lab.record(&L2Norm { tables: &tables, x: &x, heads, key, eps: EPS })?;
    Ok(on.cost(2 * width, 3 * width, 0))
}

fn head_norm(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (groups, width) = (2 * on.s.lightning.0, 2 * on.s.lightning.0 * on.s.lightning.1);
    let x = lab.noise_in_place("q and k", [capacity, on.rows, width], (on.seed, -1.0, 1.0))?;
    let weight = lab.noise("q and k norm", [1, 1, width], (on.seed + 1, -1.0, 1.0))?;
    lab.record(&HeadNorm { tables: &tables, x: &x, weight: &weight, groups, eps: EPS })?;
    Ok(on.cost(2 * width, 4 * width, width))
}

fn blend(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let width = on.s.hidden;
    let x = lab.noise("branch", [capacity, on.rows, width], (on.seed, -1.0, 1.0))?;
    let y = lab.noise_in_place("h", [capacity, on.rows, width], (on.seed + 1, -1.0, 1.0))?;
    lab.record(&Blend { rows: (&tables, ROWS), x: Some(&x), y: &y, a: 0.22, b: 1.0, silu: false })?;
    Ok(on.cost(3 * width, 3 * width, 0))
}

fn gdn_gate(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let heads = on.s.linear.1;
    let a = lab.noise("a", [capacity, on.rows, heads], (on.seed, -8.0, 4.0))?;
    let b = lab.noise("b", [capacity, on.rows, heads], (on.seed + 1, -8.0, 4.0))?;
    let a_log = lab.noise("A_log", [1, 1, heads], (on.seed + 2, -4.0, 2.0))?;
    let dt_bias = lab.noise("dt_bias", [1, 1, heads], (on.seed + 3, -4.0, 2.0))?;
    let out = lab.output("gates", capacity, on.rows, 2 * heads)?;
    lab.record(&GdnGate { tables: &tables, a: &a, b: &b, a_log: &a_log, dt_bias: &dt_bias, out: &out })?;
    Ok(on.cost(4 * heads, 10 * heads, 2 * heads))
}

fn gla_gate(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let width = on.s.linear.1 * on.s.linear.2;
    let x = lab.noise("f", [capacity, on.rows, width], (on.seed, -8.0, 4.0))?;
    let out = lab.output("gates", capacity, on.rows, width)?;
    lab.record(&GlaGate { tables: &tables, x: &x, normaliser: 16.0, out: &out })?;
    Ok(on.cost(2 * width, 5 * width, 0))
}

fn kda_gate(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (heads, width) = (on.s.linear.1, on.s.linear.1 * on.s.linear.2);
    let f = lab.noise("f", [capacity, on.rows, width], (on.seed, -8.0, 4.0))?;
    let b = lab.noise("b", [capacity, on.rows, heads], (on.seed + 1, -8.0, 4.0))?;
    let a_log = lab.noise("A_log", [1, 1, heads], (on.seed + 2, -2.0, 2.0))?;
    let dt_bias = lab.noise("dt_bias", [1, 1, width], (on.seed + 3, -2.0, 2.0))?;
    let out = lab.output("gates", capacity, on.rows, width + heads)?;
    lab.record(&KdaGate {
        tables: &tables,
        f: &f,
        b: Some(&b),
        a_log: &a_log,
        dt_bias: &dt_bias,
        bound: None,
        out: &out,
    })?;
    Ok(on.cost(2 * (width + heads), 6 * width + 4 * heads, width + heads))
}

fn mamba_gate(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let heads = on.s.mamba.0;
    let x = lab.noise("dt", [capacity, on.rows, heads], (on.seed, -8.0, 4.0))?;
    let a_log = lab.noise("A_log", [1, 1, heads], (on.seed + 1, -2.0, 2.0))?;
    let dt_bias = lab.noise("dt_bias", [1, 1, heads], (on.seed + 2, -2.0, 2.0))?;
    let out = lab.output("gates", capacity, on.rows, 2 * heads)?;
    lab.record(&MambaGate {
        tables: &tables,
        x: &x,
        a_log: &a_log,
        dt_bias: &dt_bias,
        limits: (0.01, 2.0),
        out: &out,
    })?;
    Ok(on.cost(3 * heads, 9 * heads, 2 * heads))
}

/// A pass with a convolution: one run that begins with zeros, and `tails` tails of evenly spread rows.
fn conv_pass(on: &On, tails: u32) -> Result<PassTables, BenchError> {
    let mut pass = PassBuilder::new(TAPS, 0, 1.0);
    let (tokens, history) = (vec![0; on.rows as usize], vec![Source::Zero; HISTORY as usize]);
    pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &history })?;
    for tail in 0..tails {
        let end = on.rows - tail * TAIL_EVERY;
        let sources: Vec<Source> = (end - HISTORY..end).map(Source::Row).collect();
        pass.tail(0, tail * HISTORY * on.s.channels, &sources)?;
    }
    Ok(pass.finish()?)
}

fn conv_silu(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let channels = on.s.channels;
    let pass = conv_pass(on, 0)?;
    let tables = lab.tables(&pass)?;
    let x = lab.noise("x", [pass.shape.rows, on.rows, channels], (on.seed, -1.0, 1.0))?;
    let weight = lab.noise("w", [channels, channels, TAPS], (on.seed + 1, -1.0, 1.0))?;
    let out = lab.output("y", pass.shape.rows, on.rows, channels)?;
    let none = lab.no_slab()?;
    for (i, launch) in pass.shape.conv.iter().enumerate() {
        lab.record(&ConvSilu {
            tables: &tables,
            x: &x,
            weight: &weight,
            bias: false,
            out: &out,
            launch: (i as u32, launch.rows),
            slabs: [lab.slab("states", &[])?.all(), none.clone(), none.clone(), none.clone()],
        })?;
    }
    Ok(on.cost(2 * channels, (2 * TAPS + 4) * channels, TAPS * channels))
}

fn conv_tail(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let channels = on.s.channels;
    let tails = (on.rows / TAIL_EVERY).max(1);
    let pass = conv_pass(on, tails)?;
    let tables = lab.tables(&pass)?;
    let x = lab.noise("x", [pass.shape.rows, on.rows, channels], (on.seed, -1.0, 1.0))?;
    let words = tails * HISTORY * channels;
    let private = lab.slab("states", &vec![0.0; words as usize])?;
    lab.written(&private, 0, words)?;
    let none = lab.no_slab()?;
    for (i, launch) in pass.shape.tails.iter().enumerate() {
        lab.record(&ConvTail {
            tables: &tables,
            x: &x,
            kernel: TAPS,
            launch: (i as u32, launch.tails),
            slabs: [private.all(), none.clone(), none.clone(), none.clone()],
        })?;
    }
    Ok(Cost { bytes: Some(8 * u64::from(words)), flops: Some(0), tokens: Some(u64::from(on.rows)) })
}

fn rope(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (heads, key, rot) = on.s.lightning;
    let mut pass = PassBuilder::new(0, rot, THETA);
    let tokens = vec![0; on.rows as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: 1000, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    let pass = pass.finish()?;
    let tables = lab.tables(&pass)?;
    let x = lab.noise_in_place("qkv", [pass.shape.rows, on.rows, 3 * heads * key], (on.seed, -1.0, 1.0))?;
    lab.record(&Rope { tables: &tables, x: &x, heads, key, rot, pairing: Pairing::Halves })?;
    Ok(on.cost(4 * heads * rot + rot, 6 * heads * rot, 0))
}

fn skip(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (heads, size) = on.s.mamba;
    // In front of the values stand q and k of one head of 128.
    let (width, offset) = (heads * size, 256);
    let qkv = lab.noise("qkv", [capacity, on.rows, offset + width], (on.seed, -1.0, 1.0))?;
    let d = lab.noise("D", [1, 1, heads], (on.seed + 1, -1.0, 1.0))?;
    let out = lab.noise_in_place("o", [capacity, on.rows, width], (on.seed + 2, -1.0, 1.0))?;
    lab.record(&Skip { tables: &tables, qkv: &qkv, offset, d: &d, out: &out })?;
    Ok(on.cost(3 * width, 2 * width, heads))
}

fn kv_write(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (_, heads, size, rot) = on.s.attention;
    let width = heads * size;
    let mut pass = PassBuilder::new(0, rot, THETA);
    let (tokens, places): (Vec<u32>, Vec<(u32, u32)>) = (0..on.rows).map(|row| (0, (0, row))).unzip();
    pass.run(&RunSpec { tokens: &tokens, pos: 1000, origin: 1000, kv: &places, spans: (0, 0), history: &[] })?;
    let pass = pass.finish()?;
    let tables = lab.tables(&pass)?;
    let k = lab.noise("k", [pass.shape.rows, on.rows, width], (on.seed, -1.0, 1.0))?;
    let v = lab.noise("v", [pass.shape.rows, on.rows, width], (on.seed + 1, -1.0, 1.0))?;
    let weight = lab.noise("key norm", [1, 1, size], (on.seed + 2, -1.0, 1.0))?;
    let dtype = kv_dtype(lab.device().caps(), size);
    let words = on.rows * 2 * width * dtype.size() as u32 / 4;
    let slab = lab.slab("KV", &vec![0.0; words as usize])?;
    lab.written(&slab, 0, words)?;
    let range = slab.range(0, u64::from(words) * 4)?;
    lab.record(&KvWrite {
        tables: &tables,
        k: &k,
        v: &v,
        norm: KeyNorm::Centred(&weight),
        head: size,
        rot,
        eps: EPS,
        slab: (0, range),
        dtype,
    })?;
    Ok(on.cost(2 * width + words / on.rows + rot, 5 * width + 3 * heads * rot, size))
}

fn sigmoid_gate(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (heads, _, head, _) = on.s.attention;
    let width = heads * head;
    let qg = lab.noise("q and gate", [capacity, on.rows, 2 * width], (on.seed, -8.0, 8.0))?;
    let x = lab.noise_in_place("attended", [capacity, on.rows, width], (on.seed + 1, -1.0, 1.0))?;
    lab.record(&SigmoidGate { tables: &tables, qg: &qg, x: &x, head })?;
    Ok(on.cost(3 * width, 5 * width, 0))
}

fn swiglu(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let width = on.s.experts_width;
    let up = lab.noise("up", [capacity, on.rows, width], (on.seed, -1.0, 1.0))?;
    let x = lab.noise_in_place("gate", [capacity, on.rows, width], (on.seed + 1, -8.0, 8.0))?;
    lab.record(&SwiGlu { tables: &tables, up: &up, x: &x })?;
    Ok(on.cost(3 * width, 6 * width, 0))
}

fn router(lab: &mut Lab, on: &On, grouped: bool) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let (experts, top, groups, keep) = on.s.experts;
    let logits = lab.noise("logits", [capacity, on.rows, experts], (on.seed, -4.0, 4.0))?;
    let bias = lab.noise("bias", [1, 1, experts], (on.seed + 1, -0.3, 0.3))?;
    let index = lab.output("index", capacity, on.rows, top)?;
    let weight = lab.output("weight", capacity, on.rows, top)?;
    let scoring = if grouped {
        Scoring::Sigmoid { bias: &bias, groups, keep, renormalise: true, scale: 2.5 }
    } else {
        Scoring::Softmax { renormalise: true }
    };
    lab.record(&Router { tables: &tables, logits: &logits, index: &index, weight: &weight, scoring })?;
    Ok(on.cost(experts + 2 * top, (3 + top) * experts, if grouped { experts } else { 0 }))
}

fn router_softmax(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    router(lab, on, false)
}

fn router_groups(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    router(lab, on, true)
}

/// The last value is bad, so that all are looked at and what is found is known.
fn scan(lab: &mut Lab, on: &On) -> Result<Cost, BenchError> {
    let (tables, capacity) = on.plain(lab)?;
    let hidden = on.s.hidden;
    let len = on.rows as usize * hidden as usize;
    let mut values = crate::lab::repeated(&Random::new(on.seed).signed(65_537), len);
    values.iter_mut().last().into_iter().for_each(|x| *x = f32::NAN);
    let x = lab.input("h", capacity, hidden, &values)?;
    let flag = lab.in_place("flag", 1, 1, &[f32::from_bits(CLEAN)])?;
    lab.record(&Scan {
        rows: (&tables, ROWS),
        x: &x,
        part: (0, hidden),
        test: Test::NonFinite,
        flag: (&flag.range(), 0),
    })?;
    Ok(on.cost(hidden, hidden, 0))
}
