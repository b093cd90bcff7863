//! The kernels of experts against their twins, and those against f64: sorting, products in every form of weights, the weighted
//! sum, activations. Rows past the tables' count are held too: bindings are compared in full.

use bytemuck::bytes_of;
use seam_device::e4m3;
use seam_kernels::activation::{ACTIVATION, ActivationParams, KIND_RELU2, KIND_SWIGLU};
use seam_kernels::experts::{
    CombineParams, EXPERT_COMBINE, EXPERT_FEW, EXPERT_SORT, EXPERT_TILES, FEW_PAIRS, ProductParams, SHARED_GATED,
    SHARED_NONE, SHARED_PLAIN, SortParams, TILE_PAIRS, group_words,
};
use seam_kernels::twin::{bf16, silu};
use seam_kernels::weights::{WEIGHT_BF16, WEIGHT_F32, WEIGHT_FP8};

use crate::harness::{Case, Random, Tables, floats, gpus, words};
use crate::kernels::{ULPS, cover};

/// `rows` rows that go to `top` different experts each, out of a few (so that some have many rows and some none).
fn index(random: &mut Random, rows: usize, top: usize, experts: usize) -> Vec<u32> {
    let few = (2 * top).clamp(top, experts);
    let mut all = Vec::new();
    for _ in 0..rows {
        let mut chosen: Vec<u32> = Vec::new();
        while chosen.len() < top {
            let below = if random.below(4) == 0 { experts } else { few };
            let expert = random.below(below) as u32;
            if !chosen.contains(&expert) {
                chosen.push(expert);
            }
        }
        all.extend(chosen);
    }
    all
}

/// What the sort writes for these rows, the same everywhere.
fn sorted(index: &[u32], rows: usize, [top, experts]: [usize; 2], tile: u32) -> Vec<u32> {
    let (pairs, experts) = (index.len() as u32, experts as u32);
    let params = SortParams { experts, top: top as u32, tile, pairs };
    let nothing = vec![u32::MAX; group_words(pairs, experts, tile) as usize];
    let case = Case {
        kernel: &EXPERT_SORT,
        constants: Vec::new(),
        params: bytes_of(&params).to_vec(),
        data: vec![Tables::new(rows, 0).0, index.to_vec(), nothing],
        grid: [experts, 1, 1],
    };
    let twin = case.twin()[2].clone().unwrap();
    for device in gpus().into_iter().flatten() {
        assert_eq!(case.device(device)[2].as_ref(), Some(&twin), "{rows} rows, {top} of {experts}, tiles of {tile}");
    }
    twin
}

#[test]
fn every_pair_stands_in_one_tile_of_its_expert() {
    let mut random = Random::new(40);
    for (rows, capacity, top, experts) in [(9, 12, 2, 5), (70, 80, 8, 33), (300, 300, 4, 7), (0, 3, 2, 4), (1, 1, 1, 1)]
    {
        let index = index(&mut random, capacity, top, experts);
        for tile in [FEW_PAIRS, TILE_PAIRS] {
            let groups = sorted(&index, rows, [top, experts], tile);
            let (order, tiles) = groups.split_at(index.len());
            let used = rows * top / tile as usize + experts;
            let mut seen = Vec::new();
            for t in tiles.chunks(3).take(used).filter(|t| t[2] > 0) {
                assert!(t[2] <= tile, "{t:?}");
                let pairs = &order[t[1] as usize..][..t[2] as usize];
                assert!(pairs.iter().all(|&p| index[p as usize] == t[0]), "{t:?} {pairs:?}");
                assert!(pairs.is_sorted());
                seen.extend_from_slice(pairs);
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..(rows * top) as u32).collect::<Vec<_>>());
            assert!(tiles[3 * used..].iter().all(|&word| word == u32::MAX), "nothing behind the tiles in use");
        }
    }
}

struct Weights {
    kind: u32,
    words: Vec<u32>,
    scales: Vec<f32>,
    /// What they stand for.
    values: Vec<f64>,
}

/// Weights `[matrices, n, k]`, with scales for 2^shift rows and 128 columns where they are FP8.
fn weights(random: &mut Random, kind: u32, [matrices, n, k]: [usize; 3], shift: u32) -> Weights {
    let len = matrices * n * k;
    let (rows, cols) = (n.div_ceil(1 << shift), k.div_ceil(128));
    let scales: Vec<f32> = (0..matrices * rows * cols).map(|_| random.real(0.001, 0.01)).collect();
    let (words, values): (Vec<u32>, Vec<f64>) = match kind {
        WEIGHT_F32 => {
            let words = random.words(len);
            let values = floats(&words).into_iter().map(f64::from).collect();
            (words, values)
        }
        WEIGHT_BF16 => {
            let words: Vec<u32> = (0..len / 2).map(|_| random.bits() & 0xbf7f_bf7f).collect();
            let values = (0..len).map(|i| f64::from(bf16(&words, i))).collect();
            (words, values)
        }
        _ => {
            // Every bit pattern but the two that are no numbers.
            let byte = |random: &mut Random| match random.bits() as u8 {
                0x7f | 0xff => 0x01,
                byte => byte,
            };
            let bytes: Vec<u8> = (0..len).map(|_| byte(random)).collect();
            let scale = |i: usize| scales[(i / (n * k) * rows + ((i / k % n) >> shift)) * cols + i % k / 128];
            let values = bytes.iter().enumerate().map(|(i, b)| f64::from(e4m3(*b)) * f64::from(scale(i))).collect();
            (bytes.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(), values)
        }
    };
    Weights { kind, words, scales, values }
}

/// A product of some rows by a shard of experts, in one of the three ways, against f64.
fn product(way: usize, kind: u32, [rows, top, experts, n, k]: [usize; 5], per_pair: bool, seed: u64) {
    let mut random = Random::new(seed);
    let capacity = rows + 2;
    let index = index(&mut random, capacity, top, experts);
    let pairs = index.len();
    let (column, ldc, lda, shift) = (3, n + 5, k + 4, 3);
    // All but the first expert, unless there is only one.
    let first = usize::from(experts > 1);
    let count = experts - first;
    let w = weights(&mut random, kind, [count, n, k], shift);
    let a_rows = if per_pair { pairs } else { capacity };
    let a = random.words(a_rows * lda);
    let (kernel, tile, columns) = match way {
        0 => (&EXPERT_FEW, 1, 8),
        1 => (&EXPERT_FEW, FEW_PAIRS, 8),
        _ => (&EXPERT_TILES, TILE_PAIRS, 32),
    };
    let [groups, constants] = match way {
        0 => [index.clone(), vec![w.kind, 0]],
        1 => [sorted(&index, rows, [top, experts], tile), vec![w.kind, 1]],
        _ => [sorted(&index, rows, [top, experts], tile), vec![w.kind]],
    };
    let share = if per_pair { 1 } else { top };
    let [n32, k32, lda32, ldc32, experts32] = [n, k, lda, ldc, experts].map(|x| x as u32);
    let params = ProductParams {
        n: n32,
        k: k32,
        lda: lda32,
        ldc: ldc32,
        column: column as u32,
        top: top as u32,
        share: share as u32,
        experts: experts32,
        first: first as u32,
        count: count as u32,
        tile,
        pairs: pairs as u32,
        shift,
        pad: [0; 3],
    };
    let tiles = if way == 0 { pairs } else { pairs / tile as usize + experts };
    let old = random.words(pairs * ldc);
    let case = Case {
        kernel,
        constants,
        params: bytes_of(&params).to_vec(),
        data: vec![Tables::new(rows, 0).0, groups, a.clone(), w.words, words(&w.scales), old.clone()],
        grid: [cover(n, columns), tiles as u32, 1],
    };
    // Sums of k terms below 1.
    let margin = 2e-6 * (k as f32).sqrt();
    let c = case.check(margin)[5].clone().unwrap();
    let (a, c, old) = (floats(&a), floats(&c), floats(&old));
    for pair in 0..pairs {
        let local = (index[pair] as usize).checked_sub(first).filter(|_| pair < rows * top);
        for col in 0..ldc {
            let found = c[pair * ldc + col];
            let Some((local, j)) = local.zip(col.checked_sub(column).filter(|j| *j < n)) else {
                assert_eq!(found, old[pair * ldc + col], "pair {pair} column {col} was not to be written");
                continue;
            };
            let row = &a[pair / share * lda..][..k];
            let weights = &w.values[(local * n + j) * k..][..k];
            let exact: f64 = row.iter().zip(weights).map(|(a, w)| f64::from(*a) * w).sum();
            let scale: f64 = row.iter().zip(weights).map(|(a, w)| (f64::from(*a) * w).abs()).sum();
            let error = (f64::from(found) - exact).abs();
            assert!(error <= 3e-7 * scale + 1e-7, "pair {pair} column {j}: {found} for {exact}: {error:e} of {scale}");
        }
    }
}

#[test]
fn products_of_experts() {
    for kind in [WEIGHT_F32, WEIGHT_BF16, WEIGHT_FP8] {
        for way in 0..3 {
            product(way, kind, [5, 2, 6, 13, 140], false, 41);
            product(way, kind, [5, 2, 6, 13, 140], true, 42);
            product(way, kind, [21, 3, 4, 34, 16], false, 43);
            product(way, kind, [1, 1, 1, 1, 4], true, 44);
        }
    }
}

#[test]
fn weighted_sums() {
    let mut random = Random::new(45);
    for (kind, accumulate) in
        [(SHARED_NONE, 0), (SHARED_NONE, 1), (SHARED_PLAIN, 1), (SHARED_GATED, 0), (SHARED_GATED, 1)]
    {
        let (rows, capacity, top, width, scale) = (4usize, 6usize, 3usize, 70usize, 0.5);
        let params = CombineParams { width: width as u32, top: top as u32, accumulate, scale };
        let mut old = random.words(capacity * width);
        if accumulate == 0 {
            // What is overwritten is not read.
            old[..rows * width].fill(f32::NAN.to_bits());
        }
        let [weight, y, shared, gate] =
            [capacity * top, capacity * top * width, capacity * width, capacity].map(|n| random.words(n));
        let case = Case {
            kernel: &EXPERT_COMBINE,
            constants: vec![kind],
            params: bytes_of(&params).to_vec(),
            data: vec![Tables::new(rows, 0).0, weight.clone(), y.clone(), shared.clone(), gate.clone(), old.clone()],
            grid: [cover(width, 64), capacity as u32, 1],
        };
        let out = case.check(ULPS)[5].clone().unwrap();
        assert_eq!(out[rows * width..], old[rows * width..]);
        let [weight, y, shared, gate, old] = [&weight, &y, &shared, &gate, &old].map(|w| floats(w));
        for (i, found) in floats(&out[..rows * width]).into_iter().enumerate() {
            let (r, c) = (i / width, i % width);
            let term = |j: usize| f64::from(weight[r * top + j]) * f64::from(y[(r * top + j) * width + c]);
            let g = [0.0, 1.0, 1.0 / (1.0 + (-f64::from(gate[r])).exp())][kind as usize];
            let sum = (0..top).map(term).sum::<f64>() + g * f64::from(shared[i]);
            let exact = f64::from(scale) * sum + if accumulate == 1 { f64::from(old[i]) } else { 0.0 };
            assert!((f64::from(found) - exact).abs() < 6e-7, "{kind} {accumulate} {i}: {found} for {exact}");
        }
    }
}

#[test]
fn activations() {
    let mut random = Random::new(46);
    let (rows, capacity, top, width) = (3, 5, 2, 67);
    for kind in [KIND_SWIGLU, KIND_RELU2] {
        let row = if kind == KIND_SWIGLU { 2 * width } else { width };
        let x: Vec<f32> = (0..capacity * top * row).map(|_| random.real(-90.0, 90.0)).collect();
        let params = ActivationParams { width: width as u32, top: top as u32, pad: [0; 2] };
        let old = random.words(capacity * top * width);
        let case = Case {
            kernel: &ACTIVATION,
            constants: vec![kind],
            params: bytes_of(&params).to_vec(),
            data: vec![Tables::new(rows, 0).0, words(&x), old.clone()],
            grid: [cover(width, 64), capacity as u32, top as u32],
        };
        let out = case.check(2e-5)[2].clone().unwrap();
        assert_eq!(out[rows * top * width..], old[rows * top * width..]);
        for (i, found) in floats(&out[..rows * top * width]).into_iter().enumerate() {
            let x = &x[i / width * row + i % width..];
            let want = if kind == KIND_SWIGLU { silu(x[0]) * x[width] } else { x[0].max(0.0).powi(2) };
            assert_eq!(found, want);
        }
    }
}
