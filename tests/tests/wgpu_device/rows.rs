//! The kernels of rows that chains read (gates, rotation, skip), routers and scans against their twins. Rows past the
//! tables' count and columns behind the written ones are held too: bindings are compared in full.

use bytemuck::bytes_of;
use seam_kernels::Kernel;
use seam_kernels::gate::{GLA_GATE, GlaGateParams, KDA_GATE, KdaGateParams, MAMBA_GATE, MambaGateParams};
use seam_kernels::rope::{ROPE, RopeParams};
use seam_kernels::router::{MODE_CHOSEN_SOFTMAX, MODE_SIGMOID, MODE_SOFTMAX, ROUTER, RouterParams};
use seam_kernels::scan::{CLEAN, SCAN, ScanParams, TEST_NON_FINITE, TEST_POSITIVE};
use seam_kernels::skip::{SKIP, SkipParams};
use seam_kernels::tables::{ANGLE_TABLE, LOGITS, ROW_TABLE, ROWS};

use crate::harness::{Case, Random, Tables, floats, gpus, words};
use crate::kernels::{ULPS, angle, cover};

fn case(kernel: &'static Kernel, constants: &[u32], params: &[u8], data: Vec<Vec<u32>>, grid: [u32; 3]) -> Case {
    Case { kernel, constants: constants.to_vec(), params: params.to_vec(), data, grid }
}

/// Numbers from −75 up in equal steps: gates from slow ones (down to e^-83, above the denormals that GPUs flush) to
/// forgetting ones.
fn spread(n: usize) -> Vec<f32> {
    (0..n).map(|i| -75.0 + 150.0 * i as f32 / n as f32).collect()
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The relative accuracy of gates against f64, on every device: what `check` allows small ones is absolute.
fn hold(case: &Case, out: usize, exact: impl Fn(usize) -> Option<(f64, f64)>) {
    for device in gpus().into_iter().flatten() {
        let found = floats(case.device(device)[out].as_ref().unwrap());
        for (i, found) in found.iter().enumerate() {
            // Two exp of 3 ulp, and the rounding of x·log2(e) inside exp, which grows with |x|.
            let Some((want, x)) = exact(i) else { continue };
            let error = (f64::from(*found) / want - 1.0).abs();
            let bound = 2e-6 + 1.2e-7 * x.abs();
            assert!(error < bound, "{} {i}: {found:e}, not {want:e}: {error:e} > {bound:e}", case.kernel.name);
        }
    }
}

#[test]
fn gates_of_gated_linear_attention() {
    let mut random = Random::new(20);
    let (rows, capacity, width, row) = (5, 7, 70, 73);
    let x = spread(capacity * width);
    let params = GlaGateParams { width: width as u32, row: row as u32, normaliser: 16.0, pad: 0 };
    let data = vec![Tables::new(rows, 0).0, words(&x), random.words(capacity * row)];
    let grid = [cover(width, 64), capacity as u32, 1];
    let gla = case(&GLA_GATE, &[], bytes_of(&params), data, grid);
    let out = gla.check(1e-6)[2].clone().unwrap();
    let kept = |r: usize, c: usize| r >= rows || c >= width;
    for (i, (new, old)) in out.iter().zip(&gla.data[2]).enumerate() {
        assert_eq!(new == old, kept(i / row, i % row), "element {i}");
    }
    hold(&gla, 2, |i| {
        let x = (!kept(i / row, i % row)).then(|| f64::from(x[i / row * width + i % row]))?;
        Some((-softplus(-x) / 16.0, x))
    });
}

#[test]
fn gates_of_kimi_delta_attention() {
    let mut random = Random::new(21);
    let (rows, capacity, heads, key) = (5, 6, 5, 24);
    let width = heads * key;
    let row = width + heads + 2;
    let (f, b) = (spread(capacity * width), spread(capacity * heads));
    let a_log: Vec<f32> = (0..heads).map(|_| random.real(-3.0, 2.0)).collect();
    let dt_bias: Vec<f32> = (0..width).map(|_| random.real(-1.0, 1.0)).collect();
    let tables = Tables::new(rows, 0).0;
    let out = random.words(capacity * row);
    for (bounded, beta) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let params = KdaGateParams { width: width as u32, head: key as u32, row: row as u32, bound: -5.0 };
        let data = vec![tables.clone(), words(&f), words(&b), words(&a_log), words(&dt_bias), out.clone()];
        let grid = [cover(width + heads, 64), capacity as u32, 1];
        let kda = case(&KDA_GATE, &[bounded, beta], bytes_of(&params), data, grid);
        // Arguments of up to 75·e² may be off by 3 ulp of exp(A_log), where the sigmoid is steepest for small ones.
        let changed = kda.check(3e-6)[5].clone().unwrap();
        let written = width + heads * beta as usize;
        let kept = |i: usize| i / row >= rows || i % row >= written;
        for (i, (new, old)) in changed.iter().zip(&out).enumerate() {
            assert_eq!(new == old, kept(i), "element {i}");
        }
        if bounded == 0 {
            hold(&kda, 5, |i| {
                let (r, c) = (!kept(i) && i % row < width).then_some((i / row, i % row))?;
                let x = f64::from(f[r * width + c] + dt_bias[c]);
                Some((-f64::from(a_log[c / key]).exp() * softplus(x), x))
            });
        }
    }
}

#[test]
fn gates_of_mamba() {
    let mut random = Random::new(22);
    let (rows, capacity, heads) = (9, 11, 66);
    let row = 2 * heads + 1;
    let x = spread(capacity * heads);
    let a_log: Vec<f32> = (0..heads).map(|_| random.real(-3.0, 3.0)).collect();
    let dt_bias: Vec<f32> = (0..heads).map(|_| random.real(-1.0, 1.0)).collect();
    let out = random.words(capacity * row);
    for (low, high) in [(0.0, f32::MAX), (0.01, 2.0)] {
        let params = MambaGateParams { heads: heads as u32, row: row as u32, low, high };
        let data = vec![Tables::new(rows, 0).0, words(&x), words(&a_log), words(&dt_bias), out.clone()];
        let mamba = case(&MAMBA_GATE, &[], bytes_of(&params), data, [cover(heads, 64), capacity as u32, 1]);
        let changed = floats(mamba.check(1e-6)[4].as_ref().unwrap());
        let step = |r: usize, h: usize| changed[r * row + heads + h];
        let steps = (0..rows * heads).map(|i| step(i / heads, i % heads));
        assert!(steps.clone().all(|dt| dt >= low && dt <= high));
        assert!(low == 0.0 || steps.clone().any(|dt| dt == low) && steps.clone().any(|dt| dt == high));
        hold(&mamba, 4, |i| {
            let (r, c) = (i / row < rows && i % row < 2 * heads).then_some((i / row, i % row))?;
            let h = c % heads;
            let x = f64::from(x[r * heads + h] + dt_bias[h]);
            let dt = softplus(x).max(f64::from(low)).min(f64::from(high));
            Some((if c < heads { -f64::from(a_log[h]).exp() * dt } else { dt }, x))
        });
    }
}

#[test]
fn rotation_in_rows() {
    let mut random = Random::new(23);
    for (heads, head, rot) in [(2, 16, 8), (4, 128, 64), (6, 10, 10)] {
        let (rows, capacity) = (5, 7);
        let row = heads * head + 9;
        let mut tables = Tables::new(rows, 0);
        // The query angle counts, not the key angle.
        tables.put(ROW_TABLE, (0..capacity as u32).flat_map(|r| [0, 0, (r + 1) % 3, r % 2, 0, 0, 0, 0]));
        let angles: Vec<u32> = (0..3).flat_map(|_| angle(&mut random, rot / 2)).collect();
        tables.put(ANGLE_TABLE, angles);
        let x = random.words(capacity * row);
        let params = RopeParams { row: row as u32, heads: heads as u32, head: head as u32, rot: rot as u32 };
        let grid = [cover(heads * rot / 2, 64) + 1, capacity as u32, 1];
        let mut results = Vec::new();
        for pairing in [0, 1] {
            let data = vec![tables.0.clone(), x.clone()];
            results.push(case(&ROPE, &[pairing], bytes_of(&params), data, grid).check(ULPS)[1].clone().unwrap());
        }
        for (i, old) in x.iter().enumerate() {
            let kept = i / row >= rows || i % row >= heads * head || i % row % head >= rot;
            assert!(results.iter().all(|new| (new[i] == *old) == kept), "element {i}");
        }
        assert_ne!(results[0], results[1]);
    }
}

#[test]
fn skip() {
    let mut random = Random::new(24);
    let (rows, capacity, heads, head, offset) = (4, 5, 5, 24, 37);
    let width = heads * head;
    let row = offset + width + 4;
    let params = SkipParams { width: width as u32, head: head as u32, row: row as u32, offset: offset as u32 };
    let data =
        vec![Tables::new(rows, 0).0, random.words(capacity * row), random.words(heads), random.words(capacity * width)];
    case(&SKIP, &[], bytes_of(&params), data, [cover(width, 64), capacity as u32, 1]).check(ULPS);
}

/// Runs a router everywhere; indices must be those of the twin, which a comparison of floats would not say. Returns them.
fn routed(mode: u32, params: RouterParams, logits: &[f32], bias: &[f32], rows: usize) -> (Vec<u32>, Vec<f32>) {
    let (experts, top) = (params.experts as usize, params.top as usize);
    let capacity = logits.len() / experts;
    let old = vec![7; capacity * top];
    let data = vec![Tables::new(rows, 0).0, words(logits), words(bias), old.clone(), old.clone()];
    let router = case(&ROUTER, &[mode], bytes_of(&params), data, [capacity as u32, 1, 1]);
    let twin = router.check(2e-6);
    let index = twin[3].clone().unwrap();
    for device in gpus().into_iter().flatten() {
        assert_eq!(router.device(device)[3].as_ref(), Some(&index), "mode {mode}");
    }
    assert_eq!(index[rows * top..], old[rows * top..]);
    (index, floats(twin[4].as_ref().unwrap()))
}

const PLAIN: RouterParams =
    RouterParams { experts: 0, top: 0, groups: 1, keep: 1, renormalise: 1, scale: 1.0, pad: [0; 2] };

#[test]
fn routers() {
    let mut random = Random::new(25);
    let (rows, capacity) = (6, 8);
    for (experts, top, groups, keep) in [(16, 3, 4, 2), (256, 8, 8, 4), (130, 10, 1, 1), (3, 3, 1, 1)] {
        // Steps of 2^-4: many are equal. Sigmoids are not equal by chance, so their order is the same everywhere.
        let logits: Vec<f32> =
            (0..capacity * experts).map(|_| (random.real(-8.0, 8.0) * 16.0).round() / 16.0).collect();
        let bias: Vec<f32> = (0..experts).map(|_| random.real(-0.3, 0.3)).collect();
        let sized = RouterParams { experts: experts as u32, top: top as u32, ..PLAIN };
        for mode in [MODE_SOFTMAX, MODE_CHOSEN_SOFTMAX] {
            for renormalise in [0, 1] {
                let (index, weight) = routed(mode, RouterParams { renormalise, ..sized }, &logits, &bias, rows);
                for (r, (chosen, weights)) in index.chunks(top).zip(weight.chunks(top)).take(rows).enumerate() {
                    let row = &logits[r * experts..][..experts];
                    let mut order: Vec<u32> = (0..experts as u32).collect();
                    order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
                    assert_eq!(chosen, &order[..top]);
                    let e = |i: &u32| f64::from(row[*i as usize]).exp();
                    let among = if mode == MODE_SOFTMAX && renormalise == 0 { &order[..] } else { chosen };
                    let total: f64 = among.iter().map(e).sum();
                    let off = |(i, w): (&u32, &f32)| (f64::from(*w) - e(i) / total).abs();
                    assert!(chosen.iter().zip(weights).map(off).all(|off| off < 1e-6));
                }
            }
        }
        for renormalise in [0, 1] {
            let grouped = RouterParams { groups: groups as u32, keep: keep as u32, renormalise, scale: 2.5, ..sized };
            let (index, weight) = routed(MODE_SIGMOID, grouped, &logits, &bias, rows);
            for (chosen, weights) in index.chunks(top).zip(weight.chunks(top)).take(rows) {
                let mut used: Vec<usize> = chosen.iter().map(|i| *i as usize / (experts / groups)).collect();
                used.sort_unstable();
                used.dedup();
                assert!(used.len() <= keep, "{used:?}");
                let total: f32 = weights.iter().sum();
                assert_eq!((total - 2.5).abs() < 1e-5, renormalise == 1);
            }
        }
    }
}

/// Equal choices go to the lower index, in a group and among groups; what is no number still gives different experts.
#[test]
fn ties_and_no_numbers_in_a_router() {
    let sized = RouterParams { experts: 8, top: 4, ..PLAIN };
    let logits = [0.0, -0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0];
    for mode in [MODE_SOFTMAX, MODE_CHOSEN_SOFTMAX] {
        assert_eq!(routed(mode, sized, &logits, &[0.0; 8], 1).0, [2, 3, 4, 6]);
    }
    assert_eq!(
        routed(MODE_CHOSEN_SOFTMAX, sized, &[0.0, -0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0], &[0.0; 8], 1).0,
        [0, 1, 2, 4]
    );
    let grouped = RouterParams { groups: 4, keep: 2, ..sized };
    // Groups of two: the first, third and fourth are equal.
    let even = [1.0, 0.5, 0.0, 0.0, 0.5, 1.0, 1.0, 0.5];
    assert_eq!(routed(MODE_SIGMOID, grouped, &even, &[0.0; 8], 1).0, [0, 5, 1, 4]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let data = |x: f32| vec![Tables::new(1, 0).0, words(&[x; 8]), words(&[0.0; 8]), vec![9; 4], vec![9; 4]];
        for mode in [MODE_SOFTMAX, MODE_CHOSEN_SOFTMAX] {
            let router = case(&ROUTER, &[mode], bytes_of(&sized), data(bad), [1; 3]);
            assert_eq!(router.twin()[3].as_deref(), Some(&[0, 1, 2, 3][..]));
            for device in gpus().into_iter().flatten() {
                assert_eq!(router.device(device)[3].as_deref(), Some(&[0, 1, 2, 3][..]), "{bad}");
            }
        }
    }
}

#[test]
fn scans() {
    let mut random = Random::new(26);
    let (rows, capacity, cols, offset) = (6, 8, 70, 5);
    let row = offset + cols + 4;
    let clean: Vec<u32> = random.words(capacity * row).iter().map(|x| x | 1 << 31).collect();
    let infinite = [f32::NAN.to_bits(), 0xffc0_0001, 0x7f80_0001, f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits()];
    let positive = [f32::INFINITY.to_bits(), f32::MAX.to_bits(), f32::MIN_POSITIVE.to_bits(), 1, 1e-30f32.to_bits()];
    let harmless = [0, 1 << 31, f32::MIN.to_bits(), (-1e-30f32).to_bits(), 0x8000_0001];
    let (inside, behind) = (|r: usize, c: usize| r * row + offset + c, cols as u32);
    for (test, count, bad, others) in [
        (TEST_NON_FINITE, ROWS, infinite, positive[1..].to_vec()),
        (TEST_POSITIVE, LOGITS, positive, infinite[..1].to_vec()),
    ] {
        let params = ScanParams {
            offset: offset as u32,
            cols: behind,
            row: row as u32,
            count: count as u32,
            tag: 2,
            pad: [0; 3],
        };
        let run = |x: &[u32], flag: u32| {
            let data = vec![Tables::new(rows, rows).0, x.to_vec(), vec![3, 4, flag, 5]];
            let scan = case(&SCAN, &[test], bytes_of(&params), data, [cover(cols, 64), capacity as u32, 1]);
            let found = scan.twin()[2].clone().unwrap();
            for device in gpus().into_iter().flatten() {
                assert_eq!(scan.device(device)[2].as_ref(), Some(&found), "test {test}");
            }
            assert_eq!((found[0], found[1], found[3]), (3, 4, 5));
            found[2]
        };
        assert_eq!(run(&clean, CLEAN), CLEAN);
        // Outside of the columns, and past the rows.
        let mut outside = clean.clone();
        for at in [inside(0, 0) - 1, inside(2, cols - 1) + 1, inside(rows, 3)] {
            outside[at] = bad[0];
        }
        for (i, word) in harmless.iter().chain(&others).enumerate() {
            outside[inside(i % rows, i)] = *word;
        }
        assert_eq!(run(&outside, CLEAN), CLEAN);
        for word in bad {
            let mut spoiled = clean.clone();
            for (r, c) in [(5, 69), (3, 2), (4, 0), (3, 69)] {
                spoiled[inside(r, c)] = word;
            }
            assert_eq!(run(&spoiled, CLEAN), 3 * behind + 2, "{word:x}");
            // An earlier finding stays.
            assert_eq!(run(&spoiled, 17), 17);
        }
    }
}
