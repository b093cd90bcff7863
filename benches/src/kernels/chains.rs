//! Recurrences: every family by every method, with and without an operator; long chains of entries; decoding.

use seam_algebra::Family;
use seam_algebra::families::{all, by_name};
use seam_algebra::strategy::{Case as Generated, Kind};
use seam_conformance::recurrence::{Lowering, Machine, Method, Rows};
use seam_ops::{ChainSpec, Form, PassBuilder, PassTables, RunSpec, SlabId, Step};

use super::KernelCase;
use crate::case::Cost;
use crate::cases::chain::SEAM;
use crate::cases::recurrence::{rounding, walk};
use crate::error::BenchError;
use crate::lab::{Lab, repeated};
use crate::random::Random;
use crate::registry::{BENCHES, Scale};

/// Tokens whose inputs are made as a trained model has them; longer sequences repeat them.
const BLOCK: u32 = 64;

/// Entries, and seams, of the long chain; rows of its query.
const ENTRIES: u32 = 64;
const QUERY: u32 = 32;

/// Tokens of one chain in one launch, as a multiple of the rows that a pass should have: as the engine cuts chains.
const CHAIN_ROWS: u32 = 16;

/// Every form of a chain.
const METHODS: [Method; 3] = [Method::Recurrent, Method::Chunk, Method::Tile];

/// A family by a method, and how many sequences of how many tokens.
#[derive(Clone, Copy)]
struct Sizes {
    family: &'static dyn Family,
    method: Method,
    /// Key heads, value heads a key head, K, V.
    heads: (usize, usize, usize, usize),
    sequences: u32,
    tokens: u32,
}

/// Heads as published models of the family have them.
fn heads(family: &dyn Family, scale: Scale, method: Method) -> (usize, usize, usize, usize) {
    match (scale, family.name()) {
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
    }
}

/// Sequences and tokens.
fn shapes(family: &str, scale: Scale) -> &'static [(u32, u32)] {
    match (scale, family) {
        (Scale::Small, _) => &[(3, 40)],
        (Scale::Real, "gated_delta_rule") => &[(1, 32768), (64, 512), (32, 1024), (1, 8192), (16, 512)],
        (Scale::Real, "lightning" | "mamba2") => &[(64, 512)],
        (Scale::Real, _) => &[(16, 512)],
    }
}

pub(super) fn cases(scale: Scale) -> Vec<KernelCase> {
    let mut cases = Vec::new();
    for &family in all() {
        for method in METHODS {
            for operator in [false, true] {
                let group = group(family.name(), method, operator);
                let name = format!("recurrence/{group}");
                let Some(bench) = BENCHES.iter().find(|b| b.name == name) else { continue };
                for &(sequences, tokens) in shapes(family.name(), scale) {
                    let s = Sizes { family, method, heads: heads(family, scale, method), sequences, tokens };
                    cases.push(KernelCase {
                        group: group.clone(),
                        variant: format!("{sequences}x{tokens}"),
                        bench: bench.name,
                        shape: words(&s, operator),
                        build: Box::new(move |lab, seed| forward(lab, s, operator, seed)),
                    });
                }
            }
        }
    }
    for method in METHODS {
        cases.extend(entries(scale, method));
    }
    for method in Method::ALL {
        cases.extend(decodes(scale, method));
    }
    cases
}

fn group(family: &str, method: Method, operator: bool) -> String {
    format!("{family}/{}{}", method.name(), if operator { "/operator" } else { "" })
}

fn words(s: &Sizes, operator: bool) -> String {
    let (heads, ratio, key, value) = s.heads;
    let seam = if operator { format!(", seam {SEAM}") } else { String::new() };
    format!("{} x {} tokens, H {heads} HV {} K {key} V {value}{seam}", s.sequences, s.tokens, heads * ratio)
}

/// The chain of a warm request: as many seams as entries between them, then the query.
fn entries(scale: Scale, method: Method) -> Option<KernelCase> {
    let family = by_name("gated_delta_rule")?;
    let (count, tokens) = match scale {
        Scale::Small => (4, 4 * SEAM + 12),
        Scale::Real => (ENTRIES, ENTRIES * SEAM + QUERY),
    };
    let s = Sizes { family, method, heads: heads(family, scale, method), sequences: 1, tokens };
    Some(KernelCase {
        group: format!("chain/{}", method.name()),
        variant: format!("{count}x{SEAM}"),
        bench: if method == Method::Tile { "recurrence/gated_delta_rule/tile" } else { "chain/warm" },
        shape: format!("{count} entries, {count} seams, {}", words(&s, false)),
        build: Box::new(move |lab, seed| warm(lab, s, count, seed)),
    })
}

/// One token of each of some requests, from and to their slots.
fn decodes(scale: Scale, method: Method) -> Vec<KernelCase> {
    let Some(family) = by_name("gated_delta_rule") else { return Vec::new() };
    let requests: &[u32] = match scale {
        Scale::Small => &[3],
        Scale::Real => &[1, 64],
    };
    let bench = match method {
        Method::Recurrent => "recurrence/gated_delta_rule/recurrent",
        Method::Chunk => "recurrence/gated_delta_rule/chunk",
        Method::Tile => "recurrence/gated_delta_rule/tile",
    };
    let one = |&sequences: &u32| {
        let s = Sizes { family, method, heads: heads(family, scale, method), sequences, tokens: 1 };
        KernelCase {
            group: format!("decode/{}", method.name()),
            variant: sequences.to_string(),
            bench,
            shape: words(&s, false),
            build: Box::new(move |lab, seed| decode(lab, s, seed)),
        }
    };
    requests.iter().map(one).collect()
}

/// The kernels of a shape, and its rows.
fn lowered(s: &Sizes, seed: u64) -> Result<(Lowering, Rows), BenchError> {
    let (key_heads, ratio, key_dim, value_dim) = s.heads;
    let tokens = s.tokens.min(BLOCK) as usize;
    let generated = Generated { seed, kind: Kind::Typical, tokens, key_heads, ratio, key_dim, value_dim };
    let (mut x, _) = s.family.inputs(&generated, rounding(s.method));
    // What skips the recurrence is another operation.
    x.skip.clear();
    let on = Lowering::new(s.family, &x.sizes, x.decay, s.method, None)?;
    let mut rows = Rows::default();
    on.push(&mut rows, &x);
    rows.count = s.sequences * on.rows(s.tokens as usize);
    rows.qkv = repeated(&rows.qkv, rows.count as usize * on.machine.row() as usize);
    if !on.machine.fixed() {
        let gates = rows.gates.len() / on.rows(tokens) as usize;
        rows.gates = repeated(&rows.gates, rows.count as usize * gates);
    }
    Ok((on, rows))
}

/// Tables of a pass whose chains are cut as the engine cuts them.
fn pass(lab: &Lab, rows: u32, chains: impl IntoIterator<Item = ChainSpec>) -> Result<PassTables, BenchError> {
    let budget = lab.device().caps().rows_hint.saturating_mul(CHAIN_ROWS);
    let mut pass = PassBuilder::new(0, 0, 1.0).with_budget(budget);
    let tokens = vec![0; rows as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    chains.into_iter().for_each(|chain| pass.chain(chain));
    Ok(pass.finish()?)
}

/// Bytes of rows, outputs and what is stored; per element and token of the running state a decay and two multiply-adds,
/// one more for what a delta update reads, two or three without outputs beside it. The same for every method, so that
/// methods compare by time.
fn cost(machine: &Machine, rows: &Rows, interior: u64, states: u64) -> Cost {
    let (state, dense) = (u64::from(machine.state()), machine.form() == Form::Dense);
    let reads = if dense { 2 } else { 0 };
    let count = u64::from(rows.count);
    let gates = if machine.fixed() { 0 } else { machine.gate_row() };
    let row = u64::from(machine.row() + gates + machine.out());
    let beside = state + if dense { u64::from(machine.form_words(Form::Dense)) } else { 0 };
    Cost {
        bytes: Some(4 * (count * row + states)),
        flops: Some(count * state * (5 + reads) + interior * beside * (3 + reads)),
        tokens: Some(count),
    }
}

/// Words between slots: slabs are addressed in words, and slots begin where a binding could.
fn stride(words: u32) -> u32 {
    words.next_multiple_of(64)
}

/// Each sequence from zero: with an operator a seam, `begin` and the other rows; then a store.
fn forward(lab: &mut Lab, s: Sizes, operator: bool, seed: u64) -> Result<Cost, BenchError> {
    let (on, rows) = lowered(&s, seed)?;
    let machine = on.machine;
    let (each, seam) = (rows.count / s.sequences, on.rows(SEAM as usize));
    let slot = stride(if operator { machine.slot() } else { machine.state() });
    let chain = |i: u32| {
        let (first, base) = (i * each, i * slot);
        let mut steps = vec![Step::Zero];
        if operator {
            steps.extend([Step::Run { first, rows: seam }, Step::Begin]);
            steps.push(Step::Run { first: first + seam, rows: each - seam });
        } else {
            steps.push(Step::Run { first, rows: each });
        }
        steps.push(Step::Store { base, operator });
        ChainSpec { private: 0, base, operator, steps }
    };
    let pass = pass(lab, rows.count, (0..s.sequences).map(chain))?;
    let private = lab.slab("states", &vec![0.0; s.sequences as usize * slot as usize])?;
    let none = lab.no_slab()?;
    walk(lab, &machine, &rows, &pass, [private.all(), none.clone(), none.clone(), none])?;
    let stored = match (operator, machine.form_words(machine.form())) {
        (false, _) => machine.state(),
        (true, transition) => 2 * machine.state() + transition,
    };
    for i in 0..s.sequences {
        lab.written(&private, i * slot, stored)?;
    }
    let interior = if operator { u64::from(rows.count - s.sequences * seam) } else { 0 };
    Ok(cost(&machine, &rows, interior, u64::from(s.sequences) * u64::from(stored)))
}

/// Head, then a seam and an operator for each entry, then the query.
fn warm(lab: &mut Lab, s: Sizes, count: u32, seed: u64) -> Result<Cost, BenchError> {
    let (on, rows) = lowered(&s, seed)?;
    let machine = on.machine;
    let (state, transition) = (machine.state(), machine.form_words(Form::Dense));
    let entry = stride(state + transition);
    let mut random = Random::new(seed + 1);
    // Uniform K×K matrices of this size have norms near 0.8: contractions, as those of segments are.
    let size = 0.4 * (3.0 / s.heads.2 as f32).sqrt();
    let mut operator = random.signed(state);
    operator.extend(random.reals(transition, -size, size));
    operator.resize(entry as usize, 0.0);
    let shared = lab.slab("operators", &repeated(&operator, count as usize * entry as usize))?;
    let mut steps = vec![Step::Zero];
    for i in 0..count {
        let form = if i == 0 { Form::Zero } else { Form::Dense };
        let (slab, s) = (SlabId::Shared(0), i * entry);
        steps.push(Step::Apply { slab, s, t: s + state, form, moved: None });
        steps.push(Step::Run { first: i * SEAM, rows: SEAM });
    }
    let done = count * SEAM;
    steps.extend([Step::Run { first: done, rows: rows.count - done }, Step::Store { base: 0, operator: false }]);
    let pass = pass(lab, rows.count, [ChainSpec { private: 0, base: 0, operator: false, steps }])?;
    let private = lab.slab("states", &vec![0.0; state as usize])?;
    let none = lab.no_slab()?;
    walk(lab, &machine, &rows, &pass, [private.all(), shared.all(), none.clone(), none])?;
    lab.written(&private, 0, state)?;
    let applied = u64::from(count - 1);
    let read = u64::from(count) * u64::from(state) + applied * u64::from(transition);
    let mut cost = cost(&machine, &rows, 0, u64::from(state) + read);
    let products = applied * u64::from(state) * (2 * s.heads.2 as u64 + 1);
    cost.flops = cost.flops.map(|flops| flops + products);
    Ok(cost)
}

/// Load, one row, store.
fn decode(lab: &mut Lab, s: Sizes, seed: u64) -> Result<Cost, BenchError> {
    let (on, rows) = lowered(&s, seed)?;
    let machine = on.machine;
    let slot = stride(machine.state());
    let chain = |i: u32| {
        let base = i * slot;
        let steps = vec![
            Step::Load { base, operator: false },
            Step::Run { first: i, rows: 1 },
            Step::Store { base, operator: false },
        ];
        ChainSpec { private: 0, base, operator: false, steps }
    };
    let pass = pass(lab, rows.count, (0..s.sequences).map(chain))?;
    let block = Random::new(seed + 1).signed(65_537);
    let states = lab.slab_in_place("states", &repeated(&block, s.sequences as usize * slot as usize))?;
    let none = lab.no_slab()?;
    walk(lab, &machine, &rows, &pass, [states.all(), none.clone(), none.clone(), none])?;
    Ok(cost(&machine, &rows, 0, 2 * u64::from(s.sequences) * u64::from(machine.state())))
}
