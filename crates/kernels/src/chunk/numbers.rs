//! The inner loops of the twins: plain loops in shapes that compilers turn into vector instructions.

/// Columns of a tile: two vectors of the smallest instruction set.
const COLUMNS: usize = 8;
/// Rows of a tile: as many as their sums fit in registers.
const ROWS: usize = 4;

/// A matrix in a slice: element (i, j) is at `i·stride + j`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub(super) data: &'a [f32],
    pub(super) stride: usize,
}

/// `c ← keep·c + a·b` with a `[m, k]`, b `[k, n]` and c `[m, n]` of row stride `c_stride`; `keep` has a factor a row. Each
/// element is one sum over k in order, whatever `n` is: a column has the same bits beside any others.
pub(super) fn multiply(c: &mut [f32], c_stride: usize, a: Matrix<'_>, b: Matrix<'_>, keep: &[f32], k: usize, n: usize) {
    let m = keep.len();
    let mut i = 0;
    while i < m {
        let rows = if m - i >= ROWS { ROWS } else { 1 };
        let mut j = 0;
        while j < n {
            let columns = if n - j >= COLUMNS { COLUMNS } else { 1 };
            match (rows, columns) {
                (ROWS, COLUMNS) => tile::<ROWS, COLUMNS>(c, c_stride, a, b, keep, [i, j, k]),
                (ROWS, _) => tile::<ROWS, 1>(c, c_stride, a, b, keep, [i, j, k]),
                (_, COLUMNS) => tile::<1, COLUMNS>(c, c_stride, a, b, keep, [i, j, k]),
                _ => tile::<1, 1>(c, c_stride, a, b, keep, [i, j, k]),
            }
            j += columns;
        }
        i += rows;
    }
}

#[inline(always)]
fn tile<const M: usize, const N: usize>(
    c: &mut [f32],
    c_stride: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    keep: &[f32],
    [i, j, k]: [usize; 3],
) {
    let rows: [&[f32]; M] = std::array::from_fn(|r| &a.data[(i + r) * a.stride..][..k]);
    let mut sums = [[0.0f32; N]; M];
    for (r, sums) in sums.iter_mut().enumerate() {
        let keep = keep[i + r];
        for (s, c) in sums.iter_mut().zip(&c[(i + r) * c_stride + j..][..N]) {
            *s = keep * c;
        }
    }
    for l in 0..k {
        if let Some(b) = b.data[l * b.stride + j..].first_chunk::<N>() {
            for r in 0..M {
                let x = rows[r][l];
                for col in 0..N {
                    sums[r][col] += x * b[col];
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        c[(i + r) * c_stride + j..][..N].copy_from_slice(sums);
    }
}

/// e^x for x <= 0, within 2 ulp; what is not a normal number becomes 0.
///
/// `e^x = 2^n·e^r` with n the integer nearest to x·log2 e, and e^r from its series: |r| <= ln 2 / 2, so the first term left
/// out is below 1e-8 of the sum. Written without branches and tables, so that loops over it become vector instructions.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    // Adding and taking away 1.5·2^23 rounds to an integer, whose bits are then the low ones of the sum.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = x.max(-87.0);
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN2_HIGH) - n * LN2_LOW;
    let mut s = 1.0 / 5040.0;
    s = s * r + 1.0 / 720.0;
    s = s * r + 1.0 / 120.0;
    s = s * r + 1.0 / 24.0;
    s = s * r + 1.0 / 6.0;
    s = s * r + 0.5;
    s = s * r * r + r + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { s * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_that_of_f64() {
        assert_eq!((exp(0.0), exp(-0.0), exp(-90.0), exp(f32::MIN)), (1.0, 1.0, 0.0, 0.0));
        let mut worst = 0.0f64;
        for i in 0..2_000_000 {
            // Dense near 0, where gates of slow decays are, and down to the last normal result.
            let x = -87.0 * (i as f32 / 2e6).powi(4);
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 1.2e-7, "{worst:e}");
    }

    #[test]
    fn products_of_every_shape() {
        let mut n = 0u32;
        let mut next = || {
            n += 1;
            (n * 7919 % 23) as f32 - 11.0
        };
        for (m, k, n) in [(1, 1, 1), (4, 3, 8), (5, 16, 9), (16, 5, 23), (7, 2, 17)] {
            let a: Vec<f32> = (0..m * (k + 1)).map(|_| next()).collect();
            let b: Vec<f32> = (0..k * (n + 3)).map(|_| next()).collect();
            let old: Vec<f32> = (0..m * (n + 2)).map(|_| next()).collect();
            let keep: Vec<f32> = (0..m).map(|i| i as f32).collect();
            let mut c = old.clone();
            let (a, b) = (Matrix { data: &a, stride: k + 1 }, Matrix { data: &b, stride: n + 3 });
            multiply(&mut c, n + 2, a, b, &keep, k, n);
            for (i, row) in c.chunks(n + 2).enumerate() {
                for (j, c) in row.iter().enumerate() {
                    let sum: f32 = (0..k).map(|l| a.data[i * a.stride + l] * b.data[l * b.stride + j.min(n)]).sum();
                    let old = old[i * (n + 2) + j];
                    // Small integers: sums are exact.
                    assert_eq!(*c, if j < n { keep[i] * old + sum } else { old });
                }
            }
        }
    }
}
