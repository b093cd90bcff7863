//! Products and norms of small row-major f64 matrices.

/// `a · b` with a `[m, n]` and b `[n, p]`; the result is `[m, p]`. The caller guarantees the lengths.
pub(crate) fn matmul(a: &[f64], b: &[f64], m: usize, n: usize, p: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * p];
    for (a_row, c_row) in a.chunks_exact(n).zip(c.chunks_exact_mut(p)) {
        for (&x, b_row) in a_row.iter().zip(b.chunks_exact(p)) {
            for (c, &b) in c_row.iter_mut().zip(b_row) {
                *c += x * b;
            }
        }
    }
    c
}

/// Transpose of an `[n, n]` matrix.
pub(crate) fn transpose(a: &[f64], n: usize) -> Vec<f64> {
    let mut t = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            t[j * n + i] = a[i * n + j];
        }
    }
    t
}

/// Largest magnitude; NaN entries are passed over, so check for them first.
fn largest(a: &[f64]) -> f64 {
    a.iter().fold(0.0, |m, x| x.abs().max(m))
}

/// Frobenius norm. Entries are divided by the largest one first, so neither 1e200 overflows nor 1e-200 vanishes.
///
/// ```
/// let norm = seam_algebra::frobenius(&[3e200, 4e200]);
/// assert!((norm / 5e200 - 1.0).abs() < 1e-15);
/// ```
pub fn frobenius(a: &[f64]) -> f64 {
    let top = largest(a);
    if top == 0.0 || !top.is_finite() {
        return top;
    }
    top * a.iter().map(|x| (x / top) * (x / top)).sum::<f64>().sqrt()
}

/// Frobenius norm of `a - b`; the slices have one length.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    let difference: Vec<f64> = a.iter().zip(b).map(|(x, y)| x - y).collect();
    // `largest` passes over NaN; a NaN in a result must never look like agreement.
    if difference.iter().any(|x| x.is_nan()) {
        return f64::NAN;
    }
    frobenius(&difference)
}

/// Spectral norm `‖a‖₂` of an `[n, n]` matrix by power iteration on `aᵀa`.
///
/// The value approaches the norm from below and stops when a round changes it by less than 1e-14 of itself, or after
/// 1000 rounds. With a relative gap `d` between the two largest singular values that leaves at most
/// `min(d, 1e-14 / 4d)`, so the value is within about 1e-7 of the norm at worst and within 1e-13 when the gap is clear.
pub fn spectral_norm(a: &[f64], n: usize) -> f64 {
    const ROUNDS: usize = 1000;
    let top = largest(a);
    if top == 0.0 || !top.is_finite() || n == 0 || a.len() != n * n {
        return top;
    }
    let a: Vec<f64> = a.iter().map(|x| x / top).collect();
    // A start with irregular entries is not orthogonal to the leading direction of any matrix that has a structure.
    let mut x: Vec<f64> = (0..n).map(|i| 1.0 + 0.5 * (((i as f64) * 0.618_033_988_749_895).fract() - 0.5)).collect();
    let mut sigma = 0.0;
    for _ in 0..ROUNDS {
        let norm = frobenius(&x);
        if norm == 0.0 {
            break;
        }
        x.iter_mut().for_each(|e| *e /= norm);
        let y = matmul(&a, &x, n, n, 1);
        let next = frobenius(&y);
        x.fill(0.0);
        for (row, &y) in a.chunks_exact(n).zip(&y) {
            for (x, &a) in x.iter_mut().zip(row) {
                *x += a * y;
            }
        }
        let settled = (next - sigma).abs() <= 1e-14 * next;
        sigma = next;
        if settled {
            break;
        }
    }
    // If the start was orthogonal to every row after all, fall back on the largest row or entry: a lower bound too.
    top * sigma.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_transposes() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert_eq!(matmul(&a, &b, 2, 2, 2), [19.0, 22.0, 43.0, 50.0]);
        assert_eq!(matmul(&a, &[1.0, 1.0], 2, 2, 1), [3.0, 7.0]);
        assert_eq!(transpose(&a, 2), [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn norms_survive_huge_and_tiny_entries() {
        for scale in [1e-300, 1e-160, 1.0, 1e160, 1e300] {
            let a = [3.0 * scale, 0.0, 0.0, -2.0 * scale];
            // Two roundings of the scaling, nothing else.
            assert!((spectral_norm(&a, 2) / scale - 3.0).abs() < 1e-13);
            assert!((frobenius(&a) / scale - 13f64.sqrt()).abs() < 1e-14);
        }
        assert_eq!(spectral_norm(&[0.0; 9], 3), 0.0);
    }

    #[test]
    fn spectral_norm_of_known_matrices() {
        // [[1, 1], [0, 1]] has the golden ratio as its norm; gap (1.618/0.618)² makes 40 rounds enough for 1e-14.
        let golden = (1.0 + 5f64.sqrt()) / 2.0;
        assert!((spectral_norm(&[1.0, 1.0, 0.0, 1.0], 2) - golden).abs() < 1e-13);
        // Rank one, non-symmetric: |u||v| with u = (1, 2), v = (2, -1). The norm is 5.
        assert!((spectral_norm(&[2.0, -1.0, 4.0, -2.0], 2) - 5.0).abs() < 1e-13);
        // Nilpotent: every eigenvalue is 0, the norm is 7.
        assert!((spectral_norm(&[0.0, 7.0, 0.0, 0.0], 2) - 7.0).abs() < 1e-13);
    }

    #[test]
    fn nan_never_agrees() {
        assert!(distance(&[f64::NAN, 1.0], &[1.0, 1.0]).is_nan());
    }
}
