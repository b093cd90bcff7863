//! The chain kernel of the gated delta rule against its twin: every key size, every step, every form of T.

use bytemuck::bytes_of;
use seam_kernels::chain::{CHAIN, ChainParams, KEY_SIZES};
use seam_kernels::tables::{
    CHAIN_LAUNCHES, CHAIN_OPERATOR, CHAIN_TABLE, FORM_DENSE, FORM_IDENTITY, FORM_ZERO, STEP_APPLY, STEP_BEGIN,
    STEP_LOAD, STEP_RUN, STEP_STORE, STEP_TABLE, STEP_ZERO,
};

use crate::harness::{Case, Random, Tables, floats, gpus, words};

struct Shape {
    heads: usize,
    value_heads: usize,
    key: usize,
    value: usize,
}

impl Shape {
    fn row(&self) -> usize {
        (2 * self.heads * self.key + self.value_heads * self.value).next_multiple_of(4)
    }

    fn state(&self) -> usize {
        self.value_heads * self.key * self.value
    }

    fn transition(&self) -> usize {
        self.value_heads * self.key * self.key
    }
}

/// Rows of q, k (of length 1) and v.
fn inputs(random: &mut Random, shape: &Shape, rows: usize) -> Vec<u32> {
    let mut qkv = floats(&random.words(rows * shape.row()));
    for row in qkv.chunks_mut(shape.row()) {
        for head in row[..2 * shape.heads * shape.key].chunks_mut(shape.key) {
            let norm = head.iter().map(|x| x * x).sum::<f32>().sqrt();
            head.iter_mut().for_each(|x| *x /= norm);
        }
    }
    words(&qkv)
}

/// Whether the largest key takes T from the private slab too. It does not on lavapipe: there an invocation stops looping
/// after 65535 iterations in all, and the slow path for 256 rows that are not unrolled takes a million.
fn dense_private(shape: &Shape) -> u32 {
    if shape.key < 256 { FORM_DENSE } else { FORM_IDENTITY }
}

/// Chains over every kind of step; the second launch holds them, so that offsets count.
fn case(random: &mut Random, shape: &Shape, misaligned: bool) -> Case {
    let hv = shape.value_heads;
    let slot = 2 * shape.state() + shape.transition();
    // Entries in the slabs: S, then T, from the first word or one further on.
    let shift = u32::from(misaligned);
    let entry = |base: usize| [base as u32, base as u32 + shape.state() as u32 + shift];
    // The private slab: four slots that chains own, then one entry that is only read.
    let private_entry = 4 * slot;
    let apply = |binding: u32, form: u32| {
        let [s, t] = entry(if binding == 3 { private_entry } else { 0 });
        [STEP_APPLY, binding, s, t, form, 0, 0, 0]
    };
    let step = |op: u32, a: usize, b: usize| [op, a as u32, b as u32, 0, 0, 0, 0, 0];
    let plain = [
        vec![step(STEP_ZERO, 0, 0), step(STEP_RUN, 0, 3), apply(0, FORM_DENSE), step(STEP_RUN, 3, 2)],
        vec![
            apply(1, FORM_DENSE),
            apply(2, FORM_IDENTITY),
            step(STEP_RUN, 5, 1),
            apply(3, dense_private(shape)),
            step(STEP_RUN, 19, 1),
        ],
        vec![step(STEP_LOAD, 0, 0), step(STEP_RUN, 6, 2), apply(2, FORM_DENSE), step(STEP_STORE, 0, 0)],
        vec![step(STEP_LOAD, slot, 0), apply(0, FORM_ZERO), step(STEP_RUN, 8, 1), step(STEP_STORE, slot, 0)],
    ];
    let built = [
        // A cold segment: a seam, then the operator; an apply before it starts leaves S and T alone.
        vec![
            step(STEP_ZERO, 0, 0),
            step(STEP_RUN, 9, 2),
            apply(1, FORM_DENSE),
            step(STEP_BEGIN, 0, 0),
            step(STEP_RUN, 11, 4),
            apply(0, FORM_DENSE),
            step(STEP_RUN, 15, 1),
            step(STEP_STORE, 2 * slot, 1),
        ],
        // The next chunk of a segment, over every form of an inner operator, then the running state alone anew.
        vec![
            step(STEP_LOAD, 3 * slot, 1),
            step(STEP_RUN, 16, 2),
            apply(2, FORM_IDENTITY),
            apply(3, dense_private(shape)),
            step(STEP_ZERO, 0, 0),
            step(STEP_RUN, 18, 1),
            step(STEP_STORE, 3 * slot, 1),
        ],
    ];
    let rows = 20;
    let chains = plain.iter().map(|steps| (steps, 0)).chain(built.iter().map(|steps| (steps, CHAIN_OPERATOR)));
    let mut tables = Tables::new(rows, 0);
    tables.put(CHAIN_LAUNCHES, [0, 1, 1, 6]);
    let mut records = vec![0, 0, 0, 0];
    let mut steps: Vec<u32> = vec![7; 16];
    for (chain, flags) in chains {
        records.extend([steps.len() as u32 / 8, chain.len() as u32, flags, 0]);
        steps.extend(chain.iter().flatten());
    }
    tables.put(CHAIN_TABLE, records);
    tables.put(STEP_TABLE, steps);

    let gates: Vec<f32> = (0..rows * 2 * hv)
        .map(|i| if (i / hv).is_multiple_of(2) { random.real(-3.0, 0.0) } else { random.real(0.0, 1.0) })
        .collect();
    let mut slab = |n: usize| -> Vec<u32> {
        // Rows of T of about length 1, so that states stay of order 1.
        let scale = (3.0 / shape.key as f32).sqrt();
        (0..n).map(|_| (scale * random.real(-1.0, 1.0)).to_bits()).collect()
    };
    let private = slab(private_entry + slot + 1);
    let shared: [Vec<u32>; 3] = std::array::from_fn(|_| slab(shape.state() + shape.transition() + 1));
    let out = slab(rows * hv * shape.value);
    let [s0, s1, s2] = shared;
    let params = ChainParams {
        heads: shape.heads as u32,
        value_heads: hv as u32,
        value: shape.value as u32,
        row: shape.row() as u32,
        gate_row: 2 * hv as u32,
        strength: hv as u32,
        launch: 1,
        rot: 0,
    };
    Case {
        kernel: &CHAIN,
        constants: vec![shape.key as u32, 1, 2, 0],
        params: bytes_of(&params).to_vec(),
        data: vec![tables.0, inputs(random, shape, rows), words(&gates), out, private, s0, s1, s2],
        grid: [(2 * shape.value + shape.key).div_ceil(32) as u32, hv as u32, 8],
    }
}

/// Sums over K in f32, through a few tokens and applies that each add their rounding.
fn margin(key: usize) -> f32 {
    3e-7 * (key as f32).sqrt().max(4.0)
}

#[test]
fn every_key_size() {
    let mut random = Random::new(20);
    for &key in KEY_SIZES {
        let key = key as usize;
        let shape = Shape { heads: 1, value_heads: 2, key, value: key.min(40) };
        // A software driver takes a minute to compile the checked form of the two largest.
        let devices: &[&str] = if key < 128 { &["checked", "trusted"] } else { &["trusted"] };
        case(&mut random, &shape, false).check_on(devices, margin(key));
    }
}

#[test]
fn grouped_heads_and_wide_values() {
    let mut random = Random::new(21);
    for (heads, value_heads, key, value) in [(2, 2, 16, 16), (2, 6, 8, 33), (1, 1, 32, 70)] {
        let shape = Shape { heads, value_heads, key, value };
        case(&mut random, &shape, false).check(margin(key));
    }
}

/// S and T that start at any word, and rows that are filled up: the loads of single words.
#[test]
fn filled_rows_and_unaligned_operators() {
    let mut random = Random::new(22);
    for (key, value) in [(4, 1), (12, 3), (24, 6), (64, 5)] {
        let shape = Shape { heads: 1, value_heads: 1, key, value };
        case(&mut random, &shape, true).check(margin(key));
    }
}

/// Outputs and the running state have the same bits whether or not the operator is built beside them.
#[test]
fn building_an_operator_does_not_change_the_running_columns() {
    let Some(devices) = gpus() else { return };
    let mut random = Random::new(23);
    let shape = Shape { heads: 1, value_heads: 2, key: 16, value: 16 };
    let mut built = case(&mut random, &shape, false);
    let operator = built.device(&devices[1]);
    // The same chains without the operator's columns: begin does nothing to the running ones.
    let chains = built.data[0][CHAIN_TABLE] as usize;
    for flags in built.data[0][chains..].iter_mut().skip(2).step_by(4).take(7) {
        *flags = 0;
    }
    let plain = built.device(&devices[1]);
    assert_eq!(operator[3], plain[3], "outputs");
    assert_ne!(operator[4], plain[4], "S and T were stored");
    let slot = 2 * shape.state() + shape.transition();
    let running =
        |words: &[u32]| -> Vec<u32> { words.chunks(slot).take(4).flat_map(|s| s[..shape.state()].to_vec()).collect() };
    assert_eq!(running(operator[4].as_ref().unwrap()), running(plain[4].as_ref().unwrap()));
}
