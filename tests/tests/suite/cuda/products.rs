//! Products on CUDA against f64: by the library and by own kernels, in both precisions.

use std::sync::Arc;

use half::bf16;
use seam_cuda::{CudaDevice, Options};
use seam_device::{Buffer, BufferUse, CommandList, DType, Device, Gemm, Lane, Precision};
use seam_tests::own_cuda;

/// `C[m, n] (+)= A·Wᵀ` with A and C in larger rows, and fewer rows than m if `rows` says so.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: u32,
    n: u32,
    k: u32,
    more: u32,
    column: u32,
    rows: Option<u32>,
    weight: DType,
    accumulate: bool,
}

const PLAIN: Case =
    Case { m: 64, n: 96, k: 128, more: 0, column: 0, rows: None, weight: DType::BF16, accumulate: false };

/// Values in about −1 … 1, determined by the seed.
fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

struct Work {
    case: Case,
    list: CommandList,
    a: Vec<f32>,
    w: Vec<f32>,
    /// C as it is before.
    before: Vec<f32>,
    c: Buffer,
    /// Keeps what the list reads.
    _operands: [Buffer; 3],
}

/// What stands in C beside what is written.
const BESIDE: f32 = 7.5;

impl Work {
    fn new(device: &CudaDevice, case: Case) -> Self {
        let Case { m, n, k, more, column, rows, weight, accumulate } = case;
        let (lda, ldc) = (k + 4 * more, column + n + more);
        let mut a = noise(1, ((m - 1) * lda + k) as usize);
        // What lies in rows that do not count must not reach the others.
        let counted = (rows.unwrap_or(m).min(m) * lda) as usize;
        a.iter_mut().skip(counted).for_each(|x| *x = f32::NAN);
        let mut w = noise(2, (n * k) as usize);
        if weight == DType::BF16 {
            w.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
        }
        let mut before = vec![BESIDE; ((m - 1) * ldc + column + n) as usize];
        for (row, values) in noise(3, (m * n) as usize).chunks(n as usize).enumerate() {
            let at = row * ldc as usize + column as usize;
            before[at..at + n as usize].copy_from_slice(values);
            if !accumulate {
                before[at..at + n as usize].fill(f32::NAN);
            }
        }
        let upload = |label: &str, bytes: &[u8]| {
            let buffer = device.alloc(label, bytes.len() as u64, BufferUse::Storage).expect("alloc");
            device.write(&buffer.all(), bytes).expect("write");
            buffer
        };
        let narrow: Vec<bf16> = w.iter().map(|x| bf16::from_f32(*x)).collect();
        let weights: &[u8] =
            if weight == DType::BF16 { bytemuck::cast_slice(&narrow) } else { bytemuck::cast_slice(&w) };
        let operands = [
            upload("a", bytemuck::cast_slice(&a)),
            upload("w", weights),
            upload("tables", bytemuck::cast_slice(&[0, rows.unwrap_or_default(), 0, 0])),
        ];
        let c = upload("c", bytemuck::cast_slice(&before));
        let mut recorder = device.recorder();
        let gemm = Gemm {
            m,
            n,
            k,
            lda,
            ldc,
            c_column: column,
            weight,
            accumulate,
            a: operands[0].all(),
            w: operands[1].all(),
            c: c.all(),
            scales: None,
            rows: rows.map(|_| (operands[2].all(), 1)),
        };
        recorder.gemm(gemm).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        let list = recorder.finish().expect("list");
        Self { case, list, a, w, before, c, _operands: operands }
    }

    fn reset(&self, device: &CudaDevice) {
        device.write(&self.c.all(), bytemuck::cast_slice(&self.before)).expect("write");
    }

    fn result(&self, device: &CudaDevice) -> Vec<f32> {
        let bytes = device.read(&self.c.all(), &[]).expect("read").wait().expect("wait");
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Every value within the rounding errors of a sum of k products, in whatever order (Higham, eq. 3.5), with a unit of
    /// 2⁻²³ because tensor cores cut off; in bf16, also of A rounded to 8 bits. Nothing else is touched.
    fn check(&self, found: &[f32], precision: Precision) {
        let Case { m, n, k, more, column, rows, weight, accumulate } = self.case;
        let (lda, ldc) = ((k + 4 * more) as usize, (column + n + more) as usize);
        let (n, k, column) = (n as usize, k as usize, column as usize);
        let few = m <= seam_kernels::gemm::FEW_ROWS || weight == DType::F32;
        let rounded = if precision == Precision::Bf16 && !few { 2f64.powi(-8) } else { 0.0 };
        let unit = f64::from(f32::EPSILON) * (k as f64 + 8.0) + rounded;
        for row in 0..rows.unwrap_or(m).min(m) as usize {
            for col in 0..n {
                let at = row * ldc + column + col;
                let start = if accumulate { f64::from(self.before[at]) } else { 0.0 };
                let (mut sum, mut size) = (start, start.abs());
                for i in 0..k {
                    let product = f64::from(self.a[row * lda + i]) * f64::from(self.w[col * k + i]);
                    (sum, size) = (sum + product, size + product.abs());
                }
                let error = (f64::from(found[at]) - sum).abs();
                assert!(error <= unit * size, "{:?} {precision}: row {row} col {col}: {error:e}", self.case);
            }
        }
        for (i, value) in found.iter().enumerate() {
            let inside = (column..column + n).contains(&(i % ldc));
            assert!(inside || *value == BESIDE, "{:?}: element {i} is beside the result and became {value}", self.case);
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for weight in [DType::BF16, DType::F32] {
        for accumulate in [false, true] {
            let base = Case { weight, accumulate, ..PLAIN };
            cases.extend([
                base,
                Case { m: 1, n: 1, k: 4, ..base },
                Case { m: 1, n: 515, k: 1032, ..base },
                Case { m: 3, n: 70, k: 1028, more: 1, ..base },
                Case { m: 8, n: 33, k: 2056, column: 5, more: 3, ..base },
                Case { m: 8, rows: Some(5), ..base },
                Case { m: 9, n: 40, k: 12, ..base },
                Case { m: 130, n: 257, k: 64, column: 3, more: 2, ..base },
                Case { m: 300, n: 128, k: 1028, ..base },
                Case { m: 200, n: 64, k: 256, rows: Some(77), more: 1, ..base },
                Case { m: 200, n: 64, k: 256, rows: Some(0), ..base },
                Case { m: 64, n: 64, k: 64, rows: Some(1000), ..base },
            ]);
        }
    }
    cases
}

#[test]
fn products_are_within_their_rounding_errors() {
    for (precision, library) in [(Precision::F32, true), (Precision::Bf16, true), (Precision::F32, false)] {
        let Some(device) = own_cuda(&Options { precision, library, ..Options::default() }) else { return };
        println!("products in {precision}: {}", device.caps().driver);
        assert_eq!(device.caps().precision, precision);
        if !library {
            assert!(device.caps().driver.contains("own kernels (as asked)"), "{}", device.caps().driver);
        }
        for case in cases() {
            let work = Work::new(&device, case);
            let mut first = None;
            // Plain, captured, and the graph again.
            for _ in 0..3 {
                work.reset(&device);
                let ticket = device.submit(&work.list, Lane::Compute, &[]).expect("submit");
                device.wait(ticket).expect("wait");
                let found = work.result(&device);
                work.check(&found, precision);
                let bits: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
                assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{case:?} again");
            }
        }
    }
}

/// Values that bf16 cannot hold: three parts keep 24 bits, and infinities stay what they are.
#[test]
fn three_parts_keep_the_bits_of_f32() {
    let Some(device) = own_cuda(&Options::default()) else { return };
    let (m, k) = (16u32, 64u32);
    let mut a = noise(9, (m * k) as usize);
    for (i, x) in a.iter_mut().enumerate() {
        *x *= 2f32.powi((i % 40) as i32 - 20);
    }
    a[5] = f32::INFINITY;
    let mut identity = vec![bf16::ZERO; (k * k) as usize];
    (0..k as usize).for_each(|i| identity[i * k as usize + i] = bf16::ONE);
    let upload = |label: &str, bytes: &[u8]| {
        let buffer = device.alloc(label, bytes.len() as u64, BufferUse::Storage).expect("alloc");
        device.write(&buffer.all(), bytes).expect("write");
        buffer.all()
    };
    let (x, w) = (upload("a", bytemuck::cast_slice(&a)), upload("w", bytemuck::cast_slice(&identity)));
    let c = device.alloc("c", u64::from(m * k) * 4, BufferUse::Storage).expect("alloc").all();
    let gemm = Gemm {
        m,
        n: k,
        k,
        lda: k,
        ldc: k,
        c_column: 0,
        weight: DType::BF16,
        accumulate: false,
        a: x,
        w,
        c: c.clone(),
        scales: None,
        rows: None,
    };
    let mut recorder = device.recorder();
    recorder.gemm(gemm).expect("gemm");
    let ticket = device.submit(&recorder.finish().expect("list"), Lane::Compute, &[]).expect("submit");
    let bytes = device.read(&c, &[ticket]).expect("read").wait().expect("wait");
    let found: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    // Infinity times zero is not a number: its row has no other values.
    assert_eq!(found[5].to_bits() & 0x7f80_0000, 0x7f80_0000, "{}", found[5]);
    for (i, (x, y)) in a.iter().zip(&found).enumerate().skip(k as usize) {
        let error = f64::from((x - y).abs());
        assert!(error <= f64::from(x.abs()) * 2f64.powi(-22), "element {i}: {x} became {y}");
    }
}

/// Products of two lanes share memory: submitted side by side without tickets, they wait for each other.
#[test]
fn products_on_two_lanes_do_not_mix() {
    for graphs in [false, true] {
        let Some(device) = own_cuda(&Options { graphs, ..Options::default() }) else { return };
        let works: Vec<Work> =
            [Case { m: 512, n: 256, k: 768, ..PLAIN }, Case { m: 384, n: 320, k: 640, column: 1, ..PLAIN }]
                .map(|case| Work::new(&device, case))
                .into();
        let solo: Vec<Vec<f32>> = works
            .iter()
            .map(|work| {
                device.submit(&work.list, Lane::Compute, &[]).expect("submit");
                work.result(&device)
            })
            .collect();
        for round in 0..20 {
            works.iter().for_each(|work| work.reset(&device));
            // The copy lane first: it waits for what the host has written, the lists after that for nobody.
            for _ in 0..3 {
                for (work, lane) in works.iter().zip([Lane::Copy, Lane::Compute]) {
                    device.submit(&work.list, lane, &[]).expect("submit");
                }
            }
            for (work, solo) in works.iter().zip(&solo) {
                let same = work.result(&device).iter().zip(solo).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "round {round}, graphs {graphs}: {:?}", work.case);
            }
        }
    }
}

/// A product that needs more scratch memory replaces it; lists recorded before keep theirs.
#[test]
fn growing_scratch_memory_leaves_earlier_lists_alone() {
    let Some(device) = own_cuda(&Options::default()) else { return };
    let device: Arc<CudaDevice> = device;
    let works: Vec<Work> = [16, 64, 512, 2048].map(|m| Work::new(&device, Case { m, n: 32, k: 512, ..PLAIN })).into();
    for _ in 0..3 {
        for work in &works {
            work.reset(&device);
            device.submit(&work.list, Lane::Compute, &[]).expect("submit");
        }
        works.iter().for_each(|work| work.check(&work.result(&device), Precision::F32));
    }
}
