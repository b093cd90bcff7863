//! The recurrence of every family over one pass, by every method, with and without an operator.
//!
//! The name of a bench says what it is: `recurrence/<family>/<method>`, and `/operator` behind it where the operator of
//! what follows a seam is built in the same pass.

use std::sync::Arc;

use seam_algebra::families::by_name;
use seam_algebra::strategy::{Case as Generated, Kind, Rounding};
use seam_algebra::{Family, Inputs, Operator, Sizes, Transition, frobenius};
use seam_conformance::Check;
use seam_conformance::recurrence::{Launch, Lowering, Machine, Method, Rows, runs};
use seam_conformance::tolerance::{CHAIN_OUTPUT, CHAIN_STATE, CHAIN_TRANSITION, TILE_OUTPUT, TILE_STATE, Tolerance};
use seam_device::{BufferRange, BufferUse, Caps, Device, align_up};
use seam_ops::{ChainSpec, Form, OpError, PassBuilder, PassTables, RunSpec, Step};

use super::chain::SEAM;
use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::reference::{groups, norms, output};
use crate::registry::Scale;

/// What the name of a bench says.
struct Parts {
    family: &'static dyn Family,
    method: Method,
    operator: bool,
}

fn parts(name: &'static str) -> Result<Parts, BenchError> {
    let mut words = name.split('/').skip(1);
    let (family, method, rest) = (words.next(), words.next(), words.next());
    let family = family.and_then(by_name).ok_or(BenchError::Unknown(name))?;
    let mut methods = Method::ALL.into_iter().chain([Method::Tile]);
    let method = methods.find(|m| Some(m.name()) == method).ok_or(BenchError::Unknown(name))?;
    Ok(Parts { family, method, operator: rest == Some("operator") })
}

/// Whether a device has the kernels of a bench.
pub(crate) fn available(name: &'static str, caps: &Caps) -> bool {
    parts(name).is_ok_and(|p| runs(caps, p.family, p.method))
}

/// Inputs as a trained model has them; heads and sizes are those that published models of the family have.
fn generated(family: &dyn Family, scale: Scale, method: Method) -> Generated {
    let (heads, ratio, key_dim, value_dim) = match (scale, family.name()) {
        (Scale::Small, _) if method == Method::Tile => (1, 2, 64, 64),
        (Scale::Small, "mamba1" | "rg_lru") => (1, 24, 16, 1),
        (Scale::Small, _) => (2, 2, 16, 12),
        (Scale::Real, "mamba1") => (1, 2048, 16, 1),
        (Scale::Real, "rg_lru") => (1, 2560, 1, 1),
        (Scale::Real, "mamba2") => (1, 64, 128, 64),
        (Scale::Real, "gla") => (4, 1, 256, 512),
        (Scale::Real, "retnet") => (8, 1, 256, 512),
        (Scale::Real, "delta_rule" | "gated_delta_rule" | "gated_delta_product_2" | "gated_delta_product_3") => {
            (16, 2, 128, 128)
        }
        (Scale::Real, _) => (16, 1, 128, 128),
    };
    let tokens = match scale {
        Scale::Small => 100,
        Scale::Real => 512,
    };
    Generated { seed: 7, kind: Kind::Typical, tokens, key_heads: heads, ratio, key_dim, value_dim }
}

/// What inputs are rounded to before anyone sees them.
pub(crate) fn rounding(method: Method) -> Rounding {
    if method == Method::Tile { Rounding::Bf16Keys } else { Rounding::F32 }
}

pub(crate) fn shape(name: &'static str, scale: Scale) -> String {
    let Ok(p) = parts(name) else { return String::new() };
    let s = p.family.sizes(&generated(p.family, scale, p.method));
    let seam = if p.operator { format!(", seam {SEAM}") } else { String::new() };
    format!("{}{seam}", super::chain::words(&s))
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let p = parts(name)?;
    let (mut x, _) = p.family.inputs(&generated(p.family, scale, p.method), rounding(p.method));
    // What skips the recurrence is another operation.
    x.skip.clear();
    let on = Lowering::new(p.family, &x.sizes, x.decay, p.method, None)?;
    let mut lab = Lab::new(device);
    let mut rows = Rows::default();
    on.push(&mut rows, &x);
    record(&mut lab, &on.machine, &rows, on.rows(SEAM as usize), p.operator)?;
    let s = x.sizes;
    let cost = cost(p.family, &s, &on.machine, p.operator);
    let tolerances = match p.method {
        Method::Tile => [TILE_OUTPUT, TILE_STATE, TILE_STATE],
        _ => [CHAIN_OUTPUT, CHAIN_STATE, CHAIN_TRANSITION],
    };
    lab.finish(name, cost, move |outputs| check(p.family, &on, &x, p.operator, tolerances, outputs))
}

/// Records one chain: from zero, the seam, with an operator `begin`, the other rows, and a store.
fn record(lab: &mut Lab, machine: &Machine, rows: &Rows, seam: u32, operator: bool) -> Result<(), BenchError> {
    let mut pass = PassBuilder::new(0, 0, 1.0);
    let tokens = vec![0; rows.count as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    let mut steps = vec![Step::Zero];
    if operator {
        steps.extend([Step::Run { first: 0, rows: seam }, Step::Begin]);
        steps.push(Step::Run { first: seam, rows: rows.count - seam });
    } else {
        steps.push(Step::Run { first: 0, rows: rows.count });
    }
    steps.push(Step::Store { base: 0, operator });
    pass.chain(ChainSpec { private: 0, base: 0, operator, steps });
    let pass = pass.finish()?;
    let none = lab.no_slab()?;
    let private = lab.slab("states", &vec![0.0; machine.slot() as usize])?;
    walk(lab, machine, rows, &pass, [private.all(), none.clone(), none.clone(), none])?;
    lab.written(&private, 0, machine.state())?;
    if operator {
        lab.written(&private, machine.state(), machine.state())?;
        let words = machine.form_words(machine.form());
        if words > 0 {
            lab.written(&private, 2 * machine.state(), words)?;
        }
    }
    Ok(())
}

/// Records the launches of a pass over rows; the outputs `o` are the first output.
pub(crate) fn walk(
    lab: &mut Lab,
    machine: &Machine,
    rows: &Rows,
    pass: &PassTables,
    slabs: [BufferRange; 4],
) -> Result<(), BenchError> {
    let tables = lab.tables(pass)?;
    let capacity = pass.shape.rows;
    let qkv = lab.input("q, k and v", capacity, machine.row(), &rows.qkv)?;
    let gates = lab.input("gates", if machine.fixed() { 1 } else { capacity }, machine.gate_row(), &rows.gates)?;
    let out = lab.output("o", capacity, rows.count, machine.out())?;
    let device = Arc::clone(lab.device());
    let scratch = match machine.scratch_words(capacity, pass.shape.chunks) {
        0 => None,
        words => Some(device.alloc("chunks", align_up(words * 4), BufferUse::Storage).map_err(OpError::from)?.all()),
    };
    if let Some(scratch) = &scratch {
        lab.commands(machine.prepare(&tables, (&qkv, &gates), scratch, pass.shape.chunks, device.caps())?);
    }
    for (i, launch) in pass.shape.chains.iter().enumerate() {
        let launch = Launch {
            tables: &tables,
            qkv: &qkv,
            gates: &gates,
            out: &out,
            scratch: scratch.as_ref(),
            launch: (i as u32, launch.chains, launch.operator),
            slabs: slabs.clone(),
        };
        lab.commands(machine.plan(&launch, device.caps())?);
    }
    Ok(())
}

/// Bytes of the rows, the outputs and what is stored; per element and token of the running state a decay and two
/// multiply-adds, one more for what a delta update reads; two or three without outputs beside it.
fn cost(family: &dyn Family, s: &Sizes, machine: &Machine, operator: bool) -> Cost {
    let rows = (s.tokens * family.writes()) as u64;
    let row = u64::from(machine.row() + machine.gate_row() + machine.out());
    let (state, dense) = (u64::from(machine.state()), machine.form() == Form::Dense);
    let reads = if dense { 2 } else { 0 };
    let interior = rows - u64::from(SEAM) * family.writes() as u64;
    let beside = state + if dense { u64::from(machine.form_words(Form::Dense)) } else { 0 };
    let (mut bytes, mut flops) = (4 * (rows * row + state), rows * state * (5 + reads));
    if operator {
        bytes += 4 * beside;
        flops += interior * beside * (3 + reads);
    }
    Cost { bytes: Some(bytes), flops: Some(flops), tokens: Some(s.tokens as u64) }
}

fn check(
    family: &'static dyn Family,
    on: &Lowering,
    x: &Inputs,
    operator: bool,
    [of_output, of_state, of_transition]: [Tolerance; 3],
    outputs: &[Vec<f32>],
) -> Result<Vec<Check>, BenchError> {
    let s = x.sizes;
    let run = family.run(x, &family.zero_state(&s))?;
    let wide = |x: Vec<f32>| x.into_iter().map(f64::from).collect::<Vec<_>>();
    let state = wide(on.state(&run.state));
    let heads = s.value_heads;
    let peaks = peaks(family, x)?;
    let end = |hv: usize| &run.state[hv * run.state.len() / heads..(hv + 1) * run.state.len() / heads];
    // Rows of a token's earlier writes have no queries: their outputs are 0.
    let (mut o, mut scales) = (Vec::new(), Vec::new());
    for (t, row) in run.o.chunks_exact(heads * s.value_dim).enumerate() {
        let scale = |hv: usize| {
            let most = 100.0 * (1.0 + frobenius(&row[hv * s.value_dim..][..s.value_dim]));
            family.output_scale(x, t, hv, peaks[hv], end(hv)).max(1e-3 * peaks[hv]).min(most)
        };
        let scale: Vec<f64> = (0..heads).map(scale).collect();
        for write in 0..x.writes {
            let last = write + 1 == x.writes;
            o.extend(row.iter().map(|o| if last { *o } else { 0.0 }));
            scales.extend(&scale);
        }
    }
    let mut checks = vec![
        groups("o", output(outputs, 0), &o, &scales, of_output),
        groups("state", output(outputs, 1), &state, &peaks, of_state),
    ];
    if operator {
        let operators = family.operator(x, SEAM as usize..s.tokens)?;
        let own: Vec<f64> = operators.iter().flat_map(|o| wide(on.state(o.state()))).collect();
        checks.push(groups("S", output(outputs, 2), &own, &peaks, of_state));
        let (transition, scales) = transitions(on, &operators)?;
        if !transition.is_empty() {
            checks.push(groups("T", output(outputs, 3), &transition, &scales, of_transition));
        }
    }
    Ok(checks)
}

/// The largest norm that each head's state has on the way, looked at after every eighth token.
fn peaks(family: &dyn Family, x: &Inputs) -> Result<Vec<f64>, BenchError> {
    let (heads, tokens) = (x.sizes.value_heads, x.sizes.tokens);
    let mut state = family.zero_state(&x.sizes);
    let mut peaks = vec![0.0f64; heads];
    for first in (0..tokens).step_by(8) {
        state = family.run(&x.slice(first..(first + 8).min(tokens))?, &state)?.state;
        let own = norms(&state, state.len() / heads);
        peaks.iter_mut().zip(own).for_each(|(peak, own)| *peak = peak.max(own));
    }
    Ok(peaks)
}

/// The transitions as a slot holds them, and what errors are relative to: matrices a head to `max(1, ‖T‖)`, log-sums one by
/// one to `max(1, |log|)`.
fn transitions(on: &Lowering, operators: &[Operator]) -> Result<(Vec<f64>, Vec<f64>), BenchError> {
    if on.machine.form() == Form::Dense {
        let all: Vec<Vec<f64>> = operators.iter().map(|o| o.transition().to_dense(o.key_dim())).collect();
        let scales = all.iter().map(|t| frobenius(t).max(1.0)).collect();
        return Ok((all.concat(), scales));
    }
    let identity = operators.iter().all(|o| *o.transition() == Transition::IDENTITY);
    let stored = if identity { Vec::new() } else { on.store(operators, 0)?.t };
    let logs: Vec<f64> = stored.into_iter().map(f64::from).collect();
    let scales = logs.iter().map(|l| l.abs().max(1.0)).collect();
    Ok((logs, scales))
}
