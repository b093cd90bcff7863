//! Every WGSL kernel against its twin on random inputs, on a device with naga's checks and on a trusted one; the two
//! matrix products against a plain loop in f64. Grids are larger than the tables' counts, as in a recorded list.

use std::sync::Arc;

use bytemuck::bytes_of;
use half::bf16;
use seam_device::{DType, Device, Gemm, Lane};
use seam_kernels::blend::{BLEND, BlendParams};
use seam_kernels::conv::{CONV_SILU, CONV_TAIL, ConvParams};
use seam_kernels::elementwise::{ElementParams, GDN_GATE, SIGMOID_GATE, SWIGLU};
use seam_kernels::embed::{EMBED, EmbedParams};
use seam_kernels::gather::{GATHER_ROWS, GatherParams};
use seam_kernels::head_norm::{HEAD_NORM, HeadNormParams};
use seam_kernels::kv_write::{KV_WRITE, KvParams, NORM_CENTRED, NORM_NONE, NORM_PLAIN};
use seam_kernels::norm::{GATED_RMS_NORM, L2_NORM, L2Params, NormParams, RMS_NORM};
use seam_kernels::tables::{
    ANGLE_TABLE, CONV_LAUNCHES, HISTORY_TABLE, LOGIT_TABLE, LOGITS, ROW_TABLE, ROWS, RUN_TABLE, SOURCE_PRIVATE,
    SOURCE_ROW, SOURCE_SHARED, SOURCE_ZERO, TAIL_LAUNCHES, TAIL_TABLE,
};
use seam_wgpu::WgpuDevice;

use crate::harness::{Case, Random, Tables, compare, download, floats, gpus, to_words, upload, words};

/// Rounding of one or two f32 operations.
pub(crate) const ULPS: f32 = 4e-7;

/// Workgroups of `size` that cover `n`.
pub(crate) fn cover(n: usize, size: usize) -> u32 {
    n.div_ceil(size) as u32
}

#[test]
fn embed() {
    let mut random = Random::new(1);
    let (rows, capacity, width, first, count) = (5, 7, 71, 10, 20usize);
    for packed in [0, 1] {
        let mut tables = Tables::new(rows, 0);
        let tokens = [10, 29, 9, 30, 15, 11, 12];
        tables.put(ROW_TABLE, tokens.iter().flat_map(|&t| [0, 0, 0, 0, 0, 0, t, 0]));
        let table: Vec<u32> = match packed {
            1 => (0..(count * width).div_ceil(2)).map(|_| random.bits() & 0x3fff_3fff).collect(),
            _ => random.words(count * width),
        };
        let params = EmbedParams { width: width as u32, first, count: count as u32, pad: 0 };
        let case = Case {
            kernel: &EMBED,
            constants: vec![packed],
            params: bytes_of(&params).to_vec(),
            data: vec![tables.0, table, random.words(capacity * width)],
            grid: [cover(width, 64), capacity as u32, 1],
        };
        let out = case.check(0.0);
        let changed = |r: usize| out[2].as_ref().unwrap()[r * width..][..width] != case.data[2][r * width..][..width];
        assert_eq!((0..capacity).map(changed).collect::<Vec<_>>(), [true, true, false, false, true, false, false]);
    }
}

#[test]
fn norms() {
    let mut random = Random::new(2);
    for (groups, width, gap, centred, count, w_group) in
        [(1, 300, 0, 1, ROWS, 0), (3, 8, 5, 0, LOGITS, 8), (2, 128, 0, 0, ROWS, 128), (2, 1, 3, 1, ROWS, 0)]
    {
        let (rows, capacity) = (4, 6);
        let x_group = width + gap;
        let x_row = groups * x_group + 2;
        let params = NormParams {
            groups: groups as u32,
            width: width as u32,
            x_row: x_row as u32,
            x_group: x_group as u32,
            count: count as u32,
            centred,
            eps: 1e-6,
            w_group,
        };
        let size = capacity * groups * width;
        let (x, w, z) = (random.words(capacity * x_row), random.words(width * groups), random.words(size));
        let out = random.words(size);
        let tables = Tables::new(rows, 3).0;
        let grid = [groups as u32, capacity as u32, 1];
        let params = bytes_of(&params).to_vec();
        let data = vec![tables.clone(), x.clone(), w.clone(), out.clone()];
        Case { kernel: &RMS_NORM, constants: vec![], params: params.clone(), data, grid }.check(ULPS);
        let data = vec![tables, x, w, z, out];
        for constants in [[0, 0], [0, 1], [1, 0], [1, 1]].map(Vec::from) {
            let (params, data) = (params.clone(), data.clone());
            Case { kernel: &GATED_RMS_NORM, constants, params, data, grid }.check(ULPS);
        }
    }
}

#[test]
fn l2_norm() {
    let mut random = Random::new(3);
    for width in [4, 24, 128] {
        let (rows, capacity, groups, row) = (3, 4, 4, 4 * width + 10);
        let params = L2Params {
            row: row as u32,
            groups,
            width: width as u32,
            scaled: 2,
            eps: 1e-6,
            scale: (width as f32).powf(-0.5),
            pad: [0; 2],
        };
        let mut x = random.words(capacity * row);
        x[..width].fill(0);
        let data = vec![Tables::new(rows, 0).0, x];
        let params = bytes_of(&params).to_vec();
        let case = Case { kernel: &L2_NORM, constants: vec![], params, data, grid: [groups, capacity as u32, 1] };
        let out = case.check(ULPS);
        assert!(out[1].as_ref().unwrap()[..width].iter().all(|&w| w == 0), "a zero head stays zero");
    }
}

#[test]
fn head_norm() {
    let mut random = Random::new(13);
    for width in [4, 24, 128] {
        let (rows, capacity, groups, row) = (3, 4, 3, 4 * width + 10);
        let params = HeadNormParams { row: row as u32, groups: groups as u32, width: width as u32, eps: 1e-6 };
        let x = random.words(capacity * row);
        let data = vec![Tables::new(rows, 0).0, random.words(groups * width), x];
        let params = bytes_of(&params).to_vec();
        let grid = [groups as u32, capacity as u32, 1];
        Case { kernel: &HEAD_NORM, constants: vec![], params, data, grid }.check(ULPS);
    }
}

/// A factor of 0 leaves its operand unread, whatever its memory holds.
#[test]
fn blend() {
    let mut random = Random::new(14);
    let (rows, wanted, capacity, width) = (5, 3, 7, 130);
    for (silu, a, b, count) in
        [(0, 0.5, -1.25, ROWS), (1, 1.5, 1.0, ROWS), (1, 1.0, 0.0, LOGITS), (0, 0.0, 0.25, LOGITS)]
    {
        let params = BlendParams { width: width as u32, count: count as u32, a, b };
        let mut operand = |factor: f32| {
            let mut words = random.words(capacity * width);
            if factor == 0.0 {
                words.fill(f32::NAN.to_bits());
            }
            words
        };
        let data = vec![Tables::new(rows, wanted).0, operand(a), operand(b)];
        let params = bytes_of(&params).to_vec();
        let grid = [cover(width, 64), capacity as u32, 1];
        let case = Case { kernel: &BLEND, constants: vec![silu], params, data, grid };
        let out = case.check(ULPS);
        let done = if count == ROWS { rows } else { wanted } * width;
        assert!(floats(out[2].as_ref().unwrap())[..done].iter().all(|y| y.is_finite()), "{a} {b}");
    }
}

#[test]
fn gather_rows() {
    let mut random = Random::new(4);
    let (width, rows, capacity) = (130, 9, 5);
    let mut tables = Tables::new(rows, 3);
    tables.put(LOGIT_TABLE, [8, 0, 4, 1, 1]);
    let params = GatherParams { width: width as u32, pad: [0; 3] };
    let data = vec![tables.0, random.words(rows * width), random.words(capacity * width)];
    let grid = [cover(width, 64), capacity as u32, 1];
    Case { kernel: &GATHER_ROWS, constants: vec![], params: bytes_of(&params).to_vec(), data, grid }.check(0.0);
}

#[test]
fn gates() {
    let mut random = Random::new(5);
    let (rows, capacity, hv) = (40, 42, 66);
    // From slow heads (g down to e^-83, above the denormals that GPUs flush) to forgetting ones, and the border of the
    // identity.
    let mut a: Vec<f32> = (0..capacity * hv).map(|i| -75.0 + 0.06 * i as f32).collect();
    a[..4].copy_from_slice(&[20.0, 20.000_002, 19.999_998, 0.0]);
    let b: Vec<f32> = (0..capacity * hv).map(|i| -120.0 + 0.1 * i as f32).collect();
    let params = ElementParams { width: hv as u32, head: 0, pad: [0; 2] };
    let data = vec![
        Tables::new(rows, 0).0,
        words(&a),
        words(&b),
        words(&(0..hv).map(|_| random.real(-8.0, 2.0)).collect::<Vec<_>>()),
        words(&vec![0.0; hv]),
        random.words(capacity * 2 * hv),
    ];
    let a_log = floats(&data[3]);
    let grid = [cover(hv, 64), capacity as u32, 1];
    let case = Case { kernel: &GDN_GATE, constants: vec![], params: bytes_of(&params).to_vec(), data, grid };
    // exp of the driver may be off by 3 ulp, twice.
    case.check(1e-6);
    // The tolerance above is absolute for small values, so the relative accuracy of g is held against f64.
    for device in gpus().into_iter().flatten() {
        let out = floats(case.device(device)[5].as_ref().unwrap());
        for r in 0..rows {
            for h in 0..hv {
                let exact = -f64::from(a_log[h]).exp() * f64::from(a[r * hv + h]).exp().ln_1p();
                let error = (f64::from(out[r * 2 * hv + h]) / exact - 1.0).abs();
                // Two exp of 3 ulp, and the rounding of x·log2(e) inside exp, which grows with |x|.
                let x = a[r * hv + h];
                let bound = 2e-6 + 1.2e-7 * f64::from(x.abs());
                assert!(error < bound, "g of {x}: {error:e} > {bound:e}");
            }
        }
    }
}

#[test]
fn activations() {
    let mut random = Random::new(6);
    let (rows, capacity, heads, head) = (4, 5, 3, 24);
    let width = heads * head;
    let grid = [cover(width, 64), capacity as u32, 1];
    let mut spread = |n: usize| -> Vec<u32> {
        (0..n).map(|i| random.real(-1.0, 1.0) * [1.0, 30.0, 1e4, 1e-3][i % 4]).map(f32::to_bits).collect()
    };
    let params = ElementParams { width: width as u32, head: head as u32, pad: [0; 2] };
    let params = bytes_of(&params).to_vec();
    let data = vec![Tables::new(rows, 0).0, spread(capacity * 2 * width), spread(capacity * width)];
    Case { kernel: &SIGMOID_GATE, constants: vec![], params: params.clone(), data, grid }.check(ULPS);
    let data = vec![Tables::new(rows, 0).0, spread(capacity * width), spread(capacity * width)];
    Case { kernel: &SWIGLU, constants: vec![], params, data, grid }.check(ULPS);
}

/// Two conv launches over four runs: histories from nothing, rows, the private slab and all shared ones.
#[test]
fn convolution_and_tails() {
    let mut random = Random::new(7);
    for k in 2..=8usize {
        let (channels, rows) = (70, 24);
        // First rows and lengths, shorter and longer than the kernel.
        let runs = [(0usize, 1usize), (1, 9), (10, 2), (12, 12)];
        let tail = (k - 1) * channels;
        let mut source = |row: usize| match random.below(6) {
            0 => [SOURCE_ZERO, 0],
            1 if row > 0 => [SOURCE_ROW, random.below(row) as u32],
            kind @ (2..=5) => {
                let slab = [SOURCE_PRIVATE, SOURCE_SHARED, SOURCE_SHARED + 1, SOURCE_SHARED + 2][kind - 2];
                [slab, (random.below(2) * tail + random.below(k - 1) * channels + 3) as u32]
            }
            _ => [SOURCE_PRIVATE, 3],
        };
        let mut tables = Tables::new(rows, 0);
        let run_of = |row: usize| runs.iter().position(|r| row < r.0 + r.1).unwrap() as u32;
        tables.put(ROW_TABLE, (0..rows).flat_map(|r| [run_of(r), 0, 0, 0, 0, 0, 0, 0]));
        tables.put(
            RUN_TABLE,
            runs.iter().enumerate().flat_map(|(i, r)| [r.0 as u32, r.1 as u32, 0, 0, (i * (k - 1)) as u32, 0, 0, 0]),
        );
        let history: Vec<u32> =
            runs.iter().flat_map(|r| (0..k - 1).flat_map(|_| source(r.0)).collect::<Vec<_>>()).collect();
        tables.put(HISTORY_TABLE, history);
        tables.put(CONV_LAUNCHES, [0, 2, 0, 10, 2, 2, 10, 14]);
        // Tail 0 of the second launch shifts itself by one row; tail 1 is all rows; the first launch has tail 2.
        let own: Vec<u32> = (0..k - 1)
            .flat_map(|i| if i + 2 < k { [SOURCE_PRIVATE, (3 + (i + 1) * channels) as u32] } else { [SOURCE_ROW, 5] })
            .collect();
        let rows_only: Vec<u32> = (0..k - 1).flat_map(|i| [SOURCE_ROW, i as u32]).collect();
        let mixed: Vec<u32> = (0..k - 1).flat_map(|_| source(rows)).collect();
        let at = |slot: usize| (slot * tail + 3) as u32;
        tables.put(
            TAIL_TABLE,
            [at(2), 0].into_iter().chain(mixed).chain([at(0), 0]).chain(own).chain([at(1), 0]).chain(rows_only),
        );
        tables.put(TAIL_LAUNCHES, [0, 1, 1, 2]);

        let x = random.words(rows * channels);
        let mut slab = || random.words(3 * tail + 3);
        let (private, shared) = (slab(), [slab(), slab(), slab()]);
        let [w, w_bias] = [k, k + 1].map(|columns| random.words(channels * columns));
        let out = random.words(rows * channels);
        for (launch, bias) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let params = ConvParams { channels: channels as u32, launch, pad: [0; 2] };
            let params = bytes_of(&params).to_vec();
            let [s0, s1, s2] = shared.clone();
            let w = if bias == 1 { &w_bias } else { &w }.clone();
            let data = vec![tables.0.clone(), x.clone(), w, out.clone(), private.clone(), s0, s1, s2];
            let grid = [cover(channels, 64), 16, 1];
            // Up to 8 products and an exp of 3 ulp.
            let constants = vec![k as u32, bias];
            Case { kernel: &CONV_SILU, constants, params: params.clone(), data, grid }.check(1e-6);
            let [s0, s1, s2] = shared.clone();
            let data = vec![tables.0.clone(), x.clone(), private.clone(), s0, s1, s2];
            let constants = vec![k as u32];
            Case { kernel: &CONV_TAIL, constants, params, data, grid: [cover(channels, 64), 3, 1] }.check(0.0);
        }
    }
}

/// Cosines, then sines, of `half` angles.
pub(crate) fn angle(random: &mut Random, half: usize) -> Vec<u32> {
    let angles: Vec<f64> = (0..half).map(|_| f64::from(random.real(0.0, 6.3))).collect();
    angles.iter().map(|a| a.cos() as f32).chain(angles.iter().map(|a| a.sin() as f32)).map(f32::to_bits).collect()
}

#[test]
fn kv_write() {
    let mut random = Random::new(8);
    for (heads, head, rot) in [(2, 16, 8), (1, 256, 64), (3, 8, 8), (2, 100, 0)] {
        let (rows, capacity, kv_rows) = (6, 8, 10);
        let mut tables = Tables::new(rows, 0);
        // Row, its key angle, slab and KV row.
        let places = [(3, 7), (3, 0), (2, 5), (3, 9), (1, 1), (3, 4), (3, 2), (3, 3)];
        tables.put(
            ROW_TABLE,
            places.iter().enumerate().flat_map(|(i, &(slab, at))| [0, 0, 0, i as u32 % 3, slab, at, 0, 0]),
        );
        let angles: Vec<u32> = (0..3).flat_map(|_| angle(&mut random, rot / 2)).collect();
        tables.put(ANGLE_TABLE, angles);
        let width = heads * head;
        for norm in [NORM_NONE, NORM_PLAIN, NORM_CENTRED] {
            let [heads, head, rot] = [heads, head, rot].map(|n| n as u32);
            let params = KvParams { heads, head, rot, slab: 3, eps: 1e-6, norm, pad: [0; 2] };
            let data = vec![
                tables.0.clone(),
                random.words(capacity * width),
                random.words(capacity * width),
                random.words(head as usize),
                random.words(kv_rows * 2 * width),
            ];
            let params = bytes_of(&params).to_vec();
            let grid = [heads, capacity as u32, 1];
            Case { kernel: &KV_WRITE, constants: vec![], params, data, grid }.check(ULPS);
        }
    }
}

/// `C (+)= A·Wᵀ` with strides, a column offset and a row count from a buffer, against f64.
fn product(device: &Arc<WgpuDevice>, random: &mut Random, m: usize, n: usize, k: usize, bits: usize) {
    let (packed, accumulate, counted) = (bits & 1 == 1, bits & 2 == 2, bits & 4 == 4);
    let (lda, ldc, column) = (k + 8, n + 5, 3);
    let rows = if counted { m - m / 3 } else { m };
    let a = random.words(m * lda);
    let w: Vec<f32> = (0..n * k).map(|_| bf16::from_f32(random.real(-1.0, 1.0)).to_f32()).collect();
    let packed_w: Vec<u32> = match packed {
        true => w.chunks(2).map(|x| x[0].to_bits() >> 16 | x[1].to_bits()).collect(),
        false => words(&w),
    };
    let c = random.words(m * ldc);
    let [a_at, w_at, c_at, count] = [&a, &packed_w, &c, &vec![9, rows as u32]].map(|x| upload(device, x));
    let mut recorder = device.recorder();
    recorder
        .gemm(Gemm {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            lda: lda as u32,
            ldc: ldc as u32,
            c_column: column as u32,
            weight: if packed { DType::BF16 } else { DType::F32 },
            accumulate,
            a: a_at.all(),
            w: w_at.all(),
            c: c_at.all(),
            scales: None,
            rows: counted.then(|| (count.all(), 1)),
        })
        .unwrap();
    let list = recorder.finish().unwrap();
    device.submit(&list, Lane::Compute, &[]).unwrap();
    let got = floats(&download(device, &c_at.all()));
    let (a, c) = (floats(&a), floats(&c));
    let mut want = c.clone();
    for r in 0..rows {
        for j in 0..n {
            let sum: f64 = (0..k).map(|i| f64::from(a[r * lda + i]) * f64::from(w[j * k + i])).sum();
            let old = if accumulate { f64::from(c[r * ldc + column + j]) } else { 0.0 };
            want[r * ldc + column + j] = (sum + old) as f32;
        }
    }
    // k products below 1 in one f32 sum: each of k additions rounds a partial sum of up to about √k by 2^-25 on
    // average, with random sign.
    let margin = 3e-8 * (k as f32).max(16.0);
    compare(&format!("gemm {m}x{n}x{k} {bits:03b}"), &got, &want, margin);
}

#[test]
fn products() {
    let Some(devices) = gpus() else { return };
    let mut random = Random::new(9);
    let shapes = [(1, 1, 4), (1, 40, 64), (3, 17, 36), (8, 8, 100), (9, 33, 20), (33, 70, 64), (64, 32, 132)];
    for (m, n, k) in shapes {
        for bits in 0..8 {
            product(&devices[bits % 2], &mut random, m, n, k, bits);
        }
    }
}

/// A row's bits in the kernel for many rows do not depend on the other rows, nor on the bucket.
#[test]
fn a_row_of_a_large_product_has_the_same_bits_alone() {
    let Some(devices) = gpus() else { return };
    let device = &devices[1];
    let mut random = Random::new(10);
    let (m, n, k) = (40, 24, 96);
    let [a, w] = [m * k, n * k].map(|size| random.words(size));
    let run = |m: usize, a: &[u32]| {
        let [a, w, c] = [a, &w, &vec![0; m * n]].map(|x| upload(device, x));
        let mut recorder = device.recorder();
        let (m, n, k) = (m as u32, n as u32, k as u32);
        let (a, w, c_all) = (a.all(), w.all(), c.all());
        let gemm = Gemm {
            m,
            n,
            k,
            lda: k,
            ldc: n,
            c_column: 0,
            weight: DType::F32,
            accumulate: false,
            a,
            w,
            c: c_all,
            scales: None,
            rows: None,
        };
        recorder.gemm(gemm).unwrap();
        let list = recorder.finish().unwrap();
        let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
        to_words(&device.read(&c.all(), &[ticket]).unwrap().wait().unwrap())
    };
    let all = run(m, &a);
    let some = run(9, &a[7 * k..16 * k]);
    assert_eq!(all[7 * n..16 * n], some[..]);
}
