//! Norms from above: a bound may not rest on a norm that was only estimated.

use crate::matrix::{frobenius, spectral_norm, transpose};

/// Unit roundoff of f64.
pub(super) const U64: f64 = f64::EPSILON / 2.0;

/// A little more than `x`: more than what a few f64 operations lose.
pub(super) fn up(x: f64) -> f64 {
    x * (1.0 + 8.0 * f64::EPSILON)
}

/// At least `‖a‖_F`: the computed norm and what n additions under a root can lose.
pub(super) fn frobenius_up(a: &[f64]) -> f64 {
    frobenius(a) * (1.0 + (a.len() as f64 + 8.0) * U64)
}

/// At least `‖a‖₂` of an `[n, n]` matrix, and above it by 1e-9 of itself unless two singular values nearly agree.
///
/// Power iteration guesses from below; a Cholesky factorisation of `σ²I − aᵀa` proves the guess. If it runs to its end
/// in f64, `σ²I − aᵀa + E` is positive semidefinite for some `‖E‖₂ <= n(n + 1)·u·σ²` (Higham 2002, theorem 10.3), and
/// forming `aᵀa` errs by at most `n²·u·σ²` since `‖|a|‖₂ <= √n·‖a‖₂`. Both are taken off `σ²` beforehand.
pub(super) fn spectral_up(a: &[f64], n: usize) -> f64 {
    let top = a.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    if top == 0.0 || !top.is_finite() || n <= 1 {
        return top;
    }
    let a: Vec<f64> = a.iter().map(|x| x / top).collect();
    let at = transpose(&a, n);
    let gram = crate::matrix::matmul(&at, &a, n, n, n);
    let margin = 4.0 * (n * n) as f64 * U64;
    let estimate = spectral_norm(&a, n);
    for slack in [1e-9, 1e-7, 1e-5, 1e-3] {
        let sigma = estimate * (1.0 + slack);
        let shift = sigma * sigma * (1.0 - margin);
        let rest = gram.iter().enumerate().map(|(at, g)| if at % (n + 1) == 0 { shift - g } else { -g }).collect();
        if factorises(rest, n) {
            return up(top * sigma);
        }
    }
    // The guess was bad (the start of the iteration was orthogonal to the leading direction): a norm that needs no
    // guess.
    let sums = |m: &[f64]| m.chunks_exact(n).map(|r| r.iter().map(|x| x.abs()).sum::<f64>()).fold(0.0, f64::max);
    let holder = (sums(&a) * sums(&at)).sqrt() * (1.0 + margin);
    up(top * holder.min(frobenius_up(&a)))
}

/// At least `‖|a|‖₂` of an `[n, n]` matrix, the norm of its magnitudes. It bounds `‖E‖₂` of every `|E| <= |a|`.
pub(super) fn magnitude_up(a: &[f64], n: usize) -> f64 {
    let a: Vec<f64> = a.iter().map(|x| x.abs()).collect();
    spectral_up(&a, n)
}

/// Whether the Cholesky factorisation of a symmetric `[n, n]` matrix meets only positive pivots.
fn factorises(mut a: Vec<f64>, n: usize) -> bool {
    for i in 0..n {
        for j in 0..=i {
            let (row_i, row_j) = (i * n, j * n);
            let dot: f64 = (0..j).map(|k| a[row_i + k] * a[row_j + k]).sum();
            let left = a[row_i + j] - dot;
            if i == j {
                // False for a NaN too.
                if left > 0.0 {
                    a[row_i + i] = left.sqrt();
                } else {
                    return false;
                }
            } else {
                a[row_i + j] = left / a[row_j + j];
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn never_below_the_norm_and_close_above_it() {
        let mut rng = Rng::new(5);
        for n in [2, 3, 8, 24] {
            for scale in [1e-200, 1.0, 1e200] {
                let a: Vec<f64> = (0..n * n).map(|_| scale * rng.normal()).collect();
                let (low, high) = (spectral_norm(&a, n), spectral_up(&a, n));
                // 1e-7 allows for a second try where two singular values nearly agree.
                assert!(high >= low && high <= low * (1.0 + 1.1e-7), "{n}: {low:e} {high:e}");
            }
        }
        assert_eq!(spectral_up(&[0.0; 4], 2), 0.0);
        assert_eq!(spectral_up(&[-3.0], 1), 3.0);
        assert!((magnitude_up(&[1.0, -1.0, -1.0, 1.0], 2) - 2.0).abs() < 1e-8);
    }

    #[test]
    fn a_bad_guess_is_not_believed() {
        // An orthogonal matrix has one singular value only, a diagonal one has known ones.
        let rotation = [0.6, -0.8, 0.8, 0.6];
        assert!(spectral_up(&rotation, 2) >= 1.0 && spectral_up(&rotation, 2) < 1.0 + 1e-8);
        assert!(!factorises(vec![1.0, 2.0, 2.0, 1.0], 2));
        assert!(!factorises(vec![f64::NAN], 1));
        assert!(factorises(vec![2.0, 1.0, 1.0, 2.0], 2));
    }

    #[test]
    fn frobenius_is_not_below_a_sum_taken_another_way() {
        let mut rng = Rng::new(9);
        let a: Vec<f64> = (0..4096).map(|_| rng.normal()).collect();
        let mut sorted: Vec<f64> = a.iter().map(|x| x * x).collect();
        sorted.sort_by(f64::total_cmp);
        let norm = sorted.iter().sum::<f64>().sqrt();
        assert!(frobenius_up(&a) >= norm && frobenius_up(&a) < norm * (1.0 + 1e-12));
    }
}
