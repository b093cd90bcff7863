//! Matrix products: bf16 and FP8 weights are widened to f32 panel by panel, then handed to `matrixmultiply`.
//!
//! `matrixmultiply` runs one microkernel with a fixed order of sums over k, so a row has the same bits however many
//! rows the product has; sums into C are added afterwards, outside the library, for the same reason. On one core it was
//! measured faster than the `gemm` crate at the sizes that matter here.

use half::bf16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;
use seam_device::{DType, DeviceError, Gemm, Scales, e4m3};

use crate::memory::{read, write};

/// Elements of W that are widened at once: 1 MiB of f32, which stays in the second-level cache. A larger panel packs A
/// less often.
const PANEL: usize = 1 << 18;
/// Rows of A from which the rows are divided among threads; below, the panels are.
const MANY: usize = 32;

struct Weights<'a> {
    bytes: &'a [u8],
    dtype: DType,
    k: usize,
    /// FP8: scales of `2^shift` rows and 128 columns.
    scales: &'a [f32],
    shift: u32,
}

impl Weights<'_> {
    /// Rows `first..first+rows` as f32, into `out`.
    fn widen(&self, first: usize, rows: usize, out: &mut Vec<f32>) {
        let size = self.dtype.size();
        let bytes = &self.bytes[first * self.k * size..][..rows * self.k * size];
        out.clear();
        match self.dtype {
            DType::F32 => out.extend_from_slice(bytemuck::cast_slice(bytes)),
            DType::F8E4M3 => {
                let columns = Scales::COLUMNS as usize;
                for (row, bytes) in (first..).zip(bytes.chunks_exact(self.k)) {
                    let scales = &self.scales[(row >> self.shift) * self.k.div_ceil(columns)..];
                    for (bytes, scale) in bytes.chunks(columns).zip(scales) {
                        out.extend(bytes.iter().map(|byte| e4m3(*byte) * scale));
                    }
                }
            }
            _ => {
                out.resize(rows * self.k, 0.0);
                let halves: &[bf16] = bytemuck::cast_slice(bytes);
                halves.convert_to_f32_slice(out);
            }
        }
    }
}

/// `out[m, n] = a[m, k]·w[n, k]ᵀ` for contiguous `w` and `out`.
fn product(m: usize, n: usize, k: usize, a: &[f32], lda: usize, w: &[f32], out: &mut [f32]) {
    assert!(a.len() >= (m - 1) * lda + k && w.len() >= n * k && out.len() >= m * n, "operands cover the product");
    #[allow(unsafe_code, reason = "the library's only interface takes pointers")]
    // SAFETY: the assertion above shows that every element the strides reach lies inside the slices.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            lda as isize,
            1,
            w.as_ptr(),
            1,
            k as isize,
            0.0,
            out.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

fn store(g: &Gemm, column: usize, from: &[f32], to: &mut [f32]) {
    let to = &mut to[g.c_column as usize + column..][..from.len()];
    if g.accumulate {
        to.iter_mut().zip(from).for_each(|(t, f)| *t += f);
    } else {
        to.copy_from_slice(from);
    }
}

/// Runs a checked product.
pub(crate) fn run(g: &Gemm) -> Result<(), DeviceError> {
    let mut m = g.m as usize;
    if let Some((range, index)) = &g.rows {
        let count = read(&range.buffer)?.words()[range.offset as usize / 4 + *index as usize];
        m = m.min(count as usize);
    }
    if m == 0 {
        return Ok(());
    }
    let (n, k, lda, ldc) = (g.n as usize, g.k as usize, g.lda as usize, g.ldc as usize);
    let a = read(&g.a.buffer)?;
    let w = read(&g.w.buffer)?;
    let mut c = write(&g.c.buffer)?;
    let a: &[f32] = bytemuck::cast_slice(&a.words()[g.a.offset as usize / 4..]);
    let bytes: &[u8] = bytemuck::cast_slice(w.words());
    let held = g.scales.as_ref().map(|s| Ok::<_, DeviceError>((read(&s.range.buffer)?, s))).transpose()?;
    let scales: &[f32] =
        held.as_ref().map_or(&[], |(scales, s)| bytemuck::cast_slice(&scales.words()[s.range.offset as usize / 4..]));
    let shift = held.as_ref().map_or(0, |(_, s)| s.shift);
    let weights = Weights { bytes: &bytes[g.w.offset as usize..], dtype: g.weight, k, scales, shift };
    let c: &mut [f32] = bytemuck::cast_slice_mut(&mut c[g.c.offset as usize / 4..]);
    let panel_rows = (PANEL / k).clamp(16, 1024).min(n);
    if m >= MANY {
        let share = m.div_ceil(rayon::current_num_threads());
        c.par_chunks_mut(share * ldc).enumerate().for_each(|(i, c)| {
            let Some(rows) = m.checked_sub(i * share).map(|left| left.min(share)).filter(|&r| r > 0) else { return };
            let (mut panel, mut out) = (Vec::new(), vec![0.0; rows * panel_rows]);
            for first in (0..n).step_by(panel_rows) {
                let width = panel_rows.min(n - first);
                weights.widen(first, width, &mut panel);
                product(rows, width, k, &a[i * share * lda..], lda, &panel, &mut out);
                for (from, to) in out.chunks(width).take(rows).zip(c.chunks_mut(ldc)) {
                    store(g, first, from, to);
                }
            }
        });
    } else {
        let panel_rows = panel_rows.min(n.div_ceil(rayon::current_num_threads()));
        let results: Vec<(usize, usize, Vec<f32>)> = (0..n.div_ceil(panel_rows))
            .into_par_iter()
            .map(|i| {
                let (first, width) = (i * panel_rows, panel_rows.min(n - i * panel_rows));
                let (mut panel, mut out) = (Vec::new(), vec![0.0; m * width]);
                weights.widen(first, width, &mut panel);
                product(m, width, k, a, lda, &panel, &mut out);
                (first, width, out)
            })
            .collect();
        for (first, width, out) in results {
            for (from, to) in out.chunks(width).zip(c.chunks_mut(ldc)) {
                store(g, first, from, to);
            }
        }
    }
    Ok(())
}
