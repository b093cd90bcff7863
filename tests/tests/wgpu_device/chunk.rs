//! The chunk kernels against their twins: every decay, update and rotation, every step, runs that end inside a chunk.

use bytemuck::bytes_of;
use seam_kernels::chain::{
    ChainParams, DECAY_DIAGONAL, DECAY_NONE, DECAY_SCALAR, ROTATION_HALVES, ROTATION_INTERLEAVED, ROTATION_NONE,
    UPDATE_ADD, UPDATE_DELTA, UPDATE_STRENGTH,
};
use seam_kernels::chunk::{CHUNK_CHAIN, CHUNK_PREPARE, Layout};
use seam_kernels::tables::{
    ANGLE_TABLE, CHAIN_LAUNCHES, CHAIN_OPERATOR, CHAIN_TABLE, CHUNK_TABLE, CHUNK_TOKENS, CHUNKS, FORM_DENSE,
    FORM_DIAGONAL, FORM_IDENTITY, FORM_SCALAR, FORM_ZERO, STEP_APPLY, STEP_BEGIN, STEP_LOAD, STEP_RUN, STEP_SNAPSHOT,
    STEP_STORE, STEP_TABLE, STEP_ZERO,
};

use crate::harness::{Case, Random, Tables, floats, gpus, words};

#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    value_heads: usize,
    key: usize,
    value: usize,
    decay: u32,
    update: u32,
    rotation: u32,
    /// Rotated key dims.
    rot: usize,
    /// One row of gates for all rows.
    fixed: bool,
    /// Entries start at an odd word.
    misaligned: bool,
}

/// A shape with one key head for two value heads.
fn shape(key: usize, value: usize, decay: u32, update: u32) -> Shape {
    let (rotation, rot, fixed, misaligned) = (ROTATION_NONE, 0, false, false);
    Shape { heads: 1, value_heads: 2, key, value, decay, update, rotation, rot, fixed, misaligned }
}

impl Shape {
    fn row(&self) -> usize {
        (2 * self.heads * self.key + self.value_heads * self.value).next_multiple_of(4)
    }

    fn state(&self) -> usize {
        self.value_heads * self.key * self.value
    }

    /// Words of the transition in a slot.
    fn transition(&self) -> usize {
        self.value_heads
            * match (self.update, self.decay) {
                (UPDATE_DELTA, _) => self.key * self.key,
                (_, DECAY_NONE) => 0,
                (_, DECAY_SCALAR) => 1,
                _ => self.key,
            }
    }

    fn slot(&self) -> usize {
        2 * self.state() + self.transition()
    }

    /// Words of an entry: S, a dense T, logs a head and key dim.
    fn entry(&self) -> usize {
        self.state() + self.value_heads * self.key * (self.key + 1) + usize::from(self.misaligned)
    }

    /// Gates in a row before the write strengths.
    fn gates(&self) -> usize {
        match self.decay {
            DECAY_NONE => 0,
            DECAY_SCALAR => self.value_heads,
            _ => self.value_heads * self.key,
        }
    }
}

/// Rows of q, k (of length 1, every third key that of the row before) and v.
fn inputs(random: &mut Random, shape: &Shape, rows: usize) -> Vec<u32> {
    let mut qkv = floats(&random.words(rows * shape.row()));
    let (row, keys) = (shape.row(), shape.heads * shape.key);
    for row in qkv.chunks_mut(row) {
        for head in row[..2 * keys].chunks_mut(shape.key) {
            let norm = head.iter().map(|x| x * x).sum::<f32>().sqrt();
            head.iter_mut().for_each(|x| *x /= norm);
        }
    }
    for i in (3..rows).step_by(3) {
        qkv.copy_within((i - 1) * row + keys..(i - 1) * row + 2 * keys, i * row + keys);
    }
    words(&qkv)
}

/// Gates from resets to none at all, and write strengths up to 2.
fn gates(random: &mut Random, shape: &Shape, rows: usize) -> Vec<u32> {
    let mut all = Vec::new();
    for _ in 0..if shape.fixed { 1 } else { rows } {
        all.extend((0..shape.gates()).map(|_| match random.below(8) {
            0 => -90.0,
            1 => 0.0,
            2 => -1e-6,
            3 => random.real(-8.0, 0.0),
            _ => random.real(-0.5, 0.0),
        }));
        if shape.update != UPDATE_ADD {
            all.extend((0..shape.value_heads).map(|_| [0.0, 1.0, 2.0, random.real(0.0, 2.0)][random.below(4)]));
        }
    }
    // A device binds at least one word.
    all.push(7.0);
    words(&all)
}

/// A step whose rows are not yet placed.
type Draft = (u32, [usize; 5]);

/// Chains over every kind of step. `apply(binding, form, moved)`.
fn chains(shape: &Shape) -> [(Vec<Draft>, u32); 5] {
    let slot = shape.slot();
    // The forms of T that an entry of these recurrences may have: its own first.
    let own = match (shape.update, shape.decay) {
        (UPDATE_DELTA, _) => FORM_DENSE,
        (_, DECAY_NONE) => FORM_IDENTITY,
        (_, DECAY_SCALAR) => FORM_SCALAR,
        _ => FORM_DIAGONAL,
    };
    let other = match (shape.update, shape.decay) {
        (UPDATE_DELTA, _) => FORM_DIAGONAL,
        (_, DECAY_NONE) => FORM_ZERO,
        _ => FORM_SCALAR,
    };
    let step = |op: u32, a: usize, b: usize| (op, [a, b, 0, 0, 0]);
    let run = |rows: usize| (STEP_RUN, [rows, 0, 0, 0, 0]);
    let apply = |binding: usize, form: u32, angle: usize| (STEP_APPLY, [binding, form as usize, angle, 0, 0]);
    let (zero, begin) = (step(STEP_ZERO, 0, 0), step(STEP_BEGIN, 0, 0));
    [
        (
            vec![
                zero,
                run(33),
                apply(0, own, 2),
                step(STEP_SNAPSHOT, 0, 1),
                run(1),
                apply(3, own, 1),
                run(1),
                step(STEP_STORE, slot, 0),
            ],
            0,
        ),
        (
            vec![
                apply(1, own, 0),
                run(15),
                apply(2, FORM_IDENTITY, 1),
                run(17),
                apply(2, other, 0),
                run(3),
                step(STEP_SNAPSHOT, 2 * slot, 0),
            ],
            0,
        ),
        (vec![step(STEP_LOAD, 3 * slot, 0), run(16), apply(1, FORM_ZERO, 2), run(2), step(STEP_STORE, 3 * slot, 0)], 0),
        // A cold segment: a seam, then the operator; an apply before it starts leaves S and the transition alone.
        (
            vec![
                zero,
                run(3),
                apply(2, own, 1),
                begin,
                run(17),
                step(STEP_SNAPSHOT, 4 * slot, 1),
                apply(0, own, 1),
                run(1),
                apply(1, other, 0),
                run(4),
                apply(3, own, 0),
                step(STEP_STORE, 5 * slot, 1),
            ],
            CHAIN_OPERATOR,
        ),
        // The next chunk of a segment; at its end the running state alone starts anew.
        (
            vec![
                step(STEP_LOAD, 6 * slot, 1),
                run(16),
                apply(2, FORM_IDENTITY, 2),
                run(16),
                step(STEP_STORE, 7 * slot, 1),
                apply(0, FORM_ZERO, 0),
                zero,
                run(1),
                apply(1, own, 2),
                step(STEP_STORE, 6 * slot, 1),
            ],
            CHAIN_OPERATOR,
        ),
    ]
}

const SLOTS: usize = 8;

/// The two launches over all the chains, which are those of the second chain launch. The work of the second is what the twin
/// of the first leaves.
fn cases(random: &mut Random, shape: &Shape) -> [Case; 2] {
    let chains = chains(shape);
    let (k, v, hv) = (shape.key, shape.value, shape.value_heads);
    let entry_base = SLOTS * shape.slot();
    let (mut rows, mut count) = (2, 0);
    let (mut chunks, mut records, mut steps) = (Vec::<[u32; 4]>::new(), vec![9, 9, 9, 9], vec![9u32; 16]);
    for (chain, flags) in &chains {
        records.extend([steps.len() as u32 / 8, chain.len() as u32, *flags, 0]);
        for (op, [a, b, c, ..]) in chain {
            let mut step = [*op, *a as u32, *b as u32, 0, 0, 0, 0, 0];
            if *op == STEP_RUN {
                step[1..4].copy_from_slice(&[rows as u32, *a as u32, chunks.len() as u32]);
                for at in (0..*a).step_by(CHUNK_TOKENS) {
                    let number = (at / CHUNK_TOKENS) as u32;
                    chunks.push([(rows + at) as u32, CHUNK_TOKENS.min(a - at) as u32, (a - at) as u32, number]);
                }
                rows += a;
            }
            if *op == STEP_APPLY {
                let base = if *a == 3 { entry_base } else { 0 } + usize::from(shape.misaligned);
                let t = base + shape.state() + if *b as u32 == FORM_DENSE { 0 } else { hv * k * k };
                step[2..6].copy_from_slice(&[base as u32, t as u32, *b as u32, *c as u32]);
                count += 1;
            }
            steps.extend(step);
        }
    }
    assert!(count > 10);
    let mut tables = Tables::new(rows, 0);
    tables.0[CHUNKS] = chunks.len() as u32;
    tables.put(CHAIN_LAUNCHES, [0, 1, 1, chains.len() as u32]);
    tables.put(CHAIN_TABLE, records);
    tables.put(STEP_TABLE, steps);
    tables.put(CHUNK_TABLE, chunks.concat());
    let angles = (0..2).flat_map(|_| {
        let angles: Vec<f32> = (0..shape.rot / 2).map(|_| random.real(-3.0, 3.0)).collect();
        let (cos, sin) = (angles.iter().map(|a| a.cos()), angles.iter().map(|a| a.sin()));
        cos.chain(sin).map(f32::to_bits).collect::<Vec<_>>()
    });
    let angles: Vec<u32> = angles.collect();
    tables.put(ANGLE_TABLE, angles);

    let gates = gates(random, shape, rows);
    let gate_row = if shape.fixed { 0 } else { (gates.len() - 1) / rows };
    let params = ChainParams {
        heads: shape.heads as u32,
        value_heads: hv as u32,
        value: v as u32,
        row: shape.row() as u32,
        gate_row: gate_row as u32,
        launch: 1,
        rot: shape.rot as u32,
        strength: shape.gates() as u32,
    };
    let layout = Layout::new(k, v, hv, shape.decay, shape.update);
    let prepare = Case {
        kernel: &CHUNK_PREPARE,
        constants: vec![k as u32, shape.decay, shape.update],
        params: bytes_of(&params).to_vec(),
        data: vec![
            tables.0.clone(),
            inputs(random, shape, rows),
            gates,
            vec![0.25f32.to_bits(); layout.words(rows, chunks.len())],
        ],
        grid: [chunks.len() as u32 + 1, hv as u32, 1],
    };

    // Rows of T of about length 1, so that states stay of order 1; logs behind S and T of entries and slots.
    let scale = (3.0 / k as f32).sqrt();
    let mut fill = |words: usize, logs: usize| -> Vec<u32> {
        let dense: Vec<u32> = (0..words - logs).map(|_| (scale * random.real(-1.0, 1.0)).to_bits()).collect();
        dense.into_iter().chain((0..logs).map(|_| random.real(-2.0, 0.0).to_bits())).collect()
    };
    let logs = if shape.update == UPDATE_DELTA { 0 } else { shape.transition() };
    let mut private: Vec<u32> = (0..SLOTS).flat_map(|_| fill(shape.slot(), logs)).collect();
    private.extend(fill(shape.entry(), hv * k));
    let shared: [Vec<u32>; 3] = std::array::from_fn(|_| {
        let mut slab = fill(shape.entry(), hv * k);
        slab.resize(slab.len().next_multiple_of(4), 0);
        slab
    });
    let [s0, s1, s2] = shared;
    let out = vec![0.5f32.to_bits(); rows * hv * v];
    let work = prepare.twin()[3].clone().unwrap();
    let columns = 2 * v + if shape.update == UPDATE_DELTA { k } else { 1 };
    let chain = Case {
        kernel: &CHUNK_CHAIN,
        constants: vec![k as u32, shape.decay, shape.update, shape.rotation],
        params: bytes_of(&params).to_vec(),
        data: vec![tables.0, work, out, private, s0, s1, s2],
        grid: [columns.div_ceil(32) as u32, hv as u32, 7],
    };
    [prepare, chain]
}

/// Sums over K in f32, through some chunks and applies that each add their rounding.
fn margin(key: usize) -> f32 {
    3e-7 * (key as f32).sqrt().max(4.0)
}

/// A solved write is a sum over the 15 before it, with products of keys up to 1 and strengths up to 2, and without a decay
/// none of their roundings is forgotten.
const SOLVED: f32 = 2.0;

fn check(random: &mut Random, shape: &Shape, devices: &[&str]) {
    let [prepare, chain] = cases(random, shape);
    prepare.check_on(devices, if shape.update == UPDATE_DELTA { SOLVED } else { 1.0 } * margin(shape.key));
    chain.check_on(devices, margin(shape.key));
}

const DECAYS: [u32; 3] = [DECAY_NONE, DECAY_SCALAR, DECAY_DIAGONAL];
const UPDATES: [u32; 3] = [UPDATE_ADD, UPDATE_STRENGTH, UPDATE_DELTA];

#[test]
fn every_decay_and_update() {
    let mut random = Random::new(40);
    for key in [4, 8, 16] {
        for (decay, update) in DECAYS.into_iter().flat_map(|decay| UPDATES.map(|update| (decay, update))) {
            // Naga's checks change nothing that depends on the key size.
            let devices: &[&str] = if key == 8 { &["checked", "trusted"] } else { &["trusted"] };
            check(&mut random, &shape(key, 12, decay, update), devices);
        }
    }
    check(&mut random, &shape(32, 24, DECAY_DIAGONAL, UPDATE_DELTA), &["trusted"]);
}

#[test]
fn fixed_decay() {
    let mut random = Random::new(41);
    check(&mut random, &Shape { fixed: true, ..shape(8, 8, DECAY_SCALAR, UPDATE_ADD) }, &["trusted"]);
}

#[test]
fn moved_entries() {
    let mut random = Random::new(42);
    for (key, rot, rotation) in [(8, 8, ROTATION_HALVES), (12, 6, ROTATION_HALVES), (8, 4, ROTATION_INTERLEAVED)] {
        for (decay, update) in [(DECAY_SCALAR, UPDATE_ADD), (DECAY_SCALAR, UPDATE_DELTA)] {
            check(&mut random, &Shape { rotation, rot, ..shape(key, 8, decay, update) }, &["trusted"]);
        }
    }
}

/// Groups of heads, values wider than a workgroup, and rows and entries that start at any word.
#[test]
fn grouped_heads_and_filled_rows() {
    let mut random = Random::new(43);
    let wide = Shape { heads: 2, value_heads: 6, ..shape(8, 33, DECAY_SCALAR, UPDATE_DELTA) };
    check(&mut random, &wide, &["trusted"]);
    for (decay, update) in [(DECAY_DIAGONAL, UPDATE_DELTA), (DECAY_DIAGONAL, UPDATE_STRENGTH)] {
        let odd = Shape { value_heads: 1, misaligned: true, ..shape(12, 3, decay, update) };
        check(&mut random, &odd, &["checked", "trusted"]);
    }
}

/// Outputs and running states have the same bits whether or not an operator is built beside them, and those of a chain
/// whatever chains are in the launch.
#[test]
fn columns_do_not_see_each_other() {
    let Some(devices) = gpus() else { return };
    let mut random = Random::new(44);
    for (decay, update) in [(DECAY_SCALAR, UPDATE_DELTA), (DECAY_DIAGONAL, UPDATE_ADD)] {
        let shape = shape(16, 16, decay, update);
        let [_, mut case] = cases(&mut random, &shape);
        for run in [&|case: &Case| case.twin(), &|case: &Case| case.device(&devices[1])] as [&dyn Fn(&Case) -> _; 2] {
            let together = run(&case);
            let (launches, table) = (case.data[0][CHAIN_LAUNCHES] as usize, case.data[0][CHAIN_TABLE] as usize);
            let before = case.data[0].clone();
            // One chain a launch: what it did not write is as it was.
            let mut out = case.data[2].clone();
            for chain in 1..6 {
                case.data[0][launches + 2..launches + 4].copy_from_slice(&[chain, 1]);
                let alone = run(&case)[2].clone().unwrap();
                let written = out.iter_mut().zip(&alone).zip(&case.data[2]);
                written.filter(|((_, alone), old)| alone != old).for_each(|((out, alone), _)| *out = *alone);
            }
            assert_eq!(together[2].as_ref(), Some(&out), "outputs of chains alone");
            case.data[0] = before.clone();
            // The same chains without the columns of the operator, which then neither load nor store them.
            for chain in 1..6 {
                case.data[0][table + 4 * chain + 2] = 0;
            }
            let plain = run(&case);
            case.data[0] = before;
            assert_eq!(together[2], plain[2], "outputs");
            assert_ne!(together[3], plain[3], "S and the transition were stored");
            let running = |words: &Option<Vec<u32>>| -> Vec<u32> {
                let slots = words.as_ref().unwrap().chunks(shape.slot()).take(SLOTS);
                slots.flat_map(|slot| slot[..shape.state()].to_vec()).collect()
            };
            assert_eq!(running(&together[3]), running(&plain[3]));
        }
    }
}
