//! What chains of the gated delta rule need: inputs, tables and slabs.

use seam_algebra::{DecayKind, Inputs, Sizes};
use seam_conformance::Check;
use seam_conformance::tolerance::Tolerance;
use seam_device::{Buffer, BufferRange};
use seam_ops::{Chain, ChainSpec, Decay, PassBuilder, Recurrence, RunSpec, Step, Update};

use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{dot, groups, output};
use crate::registry::Scale;

/// Rows of a seam.
pub(crate) const SEAM: u32 = 8;

/// Heads and sizes: the fixture model's, and those of Qwen3.5-9B.
pub(crate) fn sizes(scale: Scale, tokens: u32) -> Sizes {
    let (key_heads, value_heads, dim) = match scale {
        Scale::Small => (2, 4, 64),
        Scale::Real => (16, 32, 128),
    };
    Sizes { tokens: tokens as usize, key_heads, value_heads, key_dim: dim, value_dim: dim }
}

pub(crate) fn words(s: &Sizes) -> String {
    format!("{} rows, H {} HV {} K {} V {}", s.tokens, s.key_heads, s.value_heads, s.key_dim, s.value_dim)
}

/// Random inputs that f32 holds exactly: keys and queries of norm 1, the queries scaled as the kernel expects them; time
/// scales of the heads from 2 to 1000 tokens.
pub(crate) fn inputs(random: &mut Random, sizes: Sizes) -> Inputs {
    let Sizes { tokens, key_heads, value_heads, key_dim, value_dim } = sizes;
    let mut unit = |scale: f64| -> Vec<f64> {
        let mut row: Vec<f64> = random.signed(key_dim as u32).into_iter().map(f64::from).collect();
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x = f64::from((*x * scale / norm) as f32));
        row
    };
    let scale = 1.0 / (key_dim as f64).sqrt();
    let q = (0..tokens * key_heads).flat_map(|_| unit(scale)).collect();
    let k = (0..tokens * key_heads).flat_map(|_| unit(1.0)).collect();
    let v = (0..tokens * value_heads * value_dim).map(|_| f64::from(random.real(-1.0, 1.0))).collect();
    let rates: Vec<f64> = (0..value_heads).map(|_| 10f64.powf(f64::from(random.real(-3.0, -0.3)))).collect();
    let gate = |i: usize| f64::from((-rates[i % value_heads] * f64::from(random.real(0.3, 1.7))) as f32);
    let g = (0..tokens * value_heads).map(gate).collect();
    let beta = (0..tokens * value_heads).map(|_| f64::from(random.real(0.05, 0.95))).collect();
    Inputs { g, beta, decay: DecayKind::Scalar, ..Inputs::new(sizes, q, k, v, 1.0) }
}

/// Rows as the kernel reads them: `[T, 2·H·K + HV·V]` and `[T, 2·HV]`.
fn rows(x: &Inputs) -> (Vec<f32>, Vec<f32>) {
    let Sizes { key_heads, value_heads, key_dim, value_dim, .. } = x.sizes;
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let qk = x.q.chunks_exact(keys).zip(x.k.chunks_exact(keys));
    let qkv = qk.zip(x.v.chunks_exact(values)).flat_map(|((q, k), v)| q.iter().chain(k).chain(v));
    let gates = x.g.chunks_exact(value_heads).zip(x.beta.chunks_exact(value_heads));
    let gates = gates.flat_map(|(g, beta)| g.iter().chain(beta));
    (qkv.map(|x| *x as f32).collect(), gates.map(|x| *x as f32).collect())
}

/// What the outputs of each row and head are relative to: `‖S‖·‖q‖`, with the norm of each head's state.
pub(crate) fn output_scales(x: &Inputs, states: &[f64]) -> Vec<f64> {
    let heads = x.sizes.value_heads;
    let query = |t: usize, hv: usize| dot(x.query(t, hv), x.query(t, hv)).sqrt();
    (0..x.sizes.tokens * heads).map(|i| states[i % heads] * query(i / heads, i % heads)).collect()
}

/// Checks of the outputs and of the end state, given the state norm of each head.
pub(crate) fn checks(
    x: &Inputs,
    outputs: &[Vec<f32>],
    o: &[f64],
    state: &[f64],
    states: &[f64],
    [of_output, of_state]: [Tolerance; 2],
) -> Vec<Check> {
    vec![
        groups("o", output(outputs, 0), o, &output_scales(x, states), of_output),
        groups("state", output(outputs, 1), state, states, of_state),
    ]
}

/// Words of a state `[HV, K, V]` and of a transition `[HV, K, K]`.
pub(crate) fn words_of(s: &Sizes) -> (u32, u32) {
    (s.state_len() as u32, (s.value_heads * s.key_dim * s.key_dim) as u32)
}

/// Records one chain over the rows of `x`: from zero, `steps`, a store at word 0 of a new private slab, which is
/// returned. The first output is `o` `[T, HV·V]`.
pub(crate) fn record(
    lab: &mut Lab,
    x: &Inputs,
    steps: Vec<Step>,
    operator: bool,
    shared: [BufferRange; 3],
) -> Result<Buffer, BenchError> {
    let s = x.sizes;
    let (rows_count, heads) = (s.tokens as u32, (s.key_heads as u32, s.value_heads as u32));
    let (key, value) = (s.key_dim as u32, s.value_dim as u32);
    let recurrence = Recurrence {
        decay: Decay::Scalar,
        update: Update::Delta,
        heads: heads.0,
        value_heads: heads.1,
        key,
        value,
        rotation: None,
    };
    let mut pass = PassBuilder::new(0, 0, 1.0);
    pass.run(&RunSpec { tokens: &vec![0; s.tokens], pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    let mut all = vec![Step::Zero];
    all.extend(steps);
    all.push(Step::Store { base: 0, operator });
    pass.chain(ChainSpec { private: 0, base: 0, operator, steps: all });
    let pass = pass.finish()?;
    let tables = lab.tables(&pass)?;
    let (qkv, gates) = rows(x);
    let capacity = pass.shape.rows;
    let qkv = lab.input("q, k and v", capacity, 2 * heads.0 * key + heads.1 * value, &qkv)?;
    let gates = lab.input("gates", capacity, 2 * heads.1, &gates)?;
    let out = lab.output("o", capacity, rows_count, heads.1 * value)?;
    let (state, transition) = words_of(&s);
    let slot = if operator { 2 * state + transition } else { state };
    let private = lab.slab("states", &vec![0.0; slot as usize])?;
    let [a, b, c] = shared;
    for (i, launch) in pass.shape.chains.iter().enumerate() {
        lab.record(&Chain {
            tables: &tables,
            recurrence,
            qkv: &qkv,
            gates: &gates,
            out: &out,
            launch: (i as u32, launch.chains, launch.operator),
            slabs: [private.all(), a.clone(), b.clone(), c.clone()],
        })?;
    }
    Ok(private)
}

/// Bytes of the rows' inputs and outputs.
pub(crate) fn row_bytes(s: &Sizes) -> u64 {
    let row = 2 * s.key_heads * s.key_dim + 2 * s.value_heads * s.value_dim + 2 * s.value_heads;
    4 * (s.tokens * row) as u64
}

/// Operations of the running columns over `tokens` tokens: per state element a decay, and three multiply-adds for
/// `Sᵀk`, `k uᵀ` and `Sᵀq`.
pub(crate) fn run_flops(s: &Sizes, tokens: u64) -> u64 {
    7 * s.state_len() as u64 * tokens
}
