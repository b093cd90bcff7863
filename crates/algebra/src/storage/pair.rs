//! The rank-n pair: the factors that `T` and `S` of a segment of n tokens share.
//!
//! One token of the gated delta rule is `S ← e^g(I − β k kᵀ)S + β k vᵀ`. With `P₀ = I` and `P_t = (I − β_t k_t
//! k_tᵀ)P_{t−1}`,
//!
//! * `P_t = P_{t−1} − k_t y_tᵀ` with `y_t = β_t P_{t−1}ᵀk_t = β_t(k_t − Σ_{j<t} (k_j·k_t) y_j)`, so `T = γP_n = γ(I − W
//!   Yᵀ)` with `W` the keys themselves and `γ = e^{Σg}`;
//! * `S = Σ_t k_t w_tᵀ` with `w_t = e^{g_{t+1} + … + g_n} u_t` and `u_t = β_t(v_t − e^{g_t} S_{t−1}ᵀ k_t)`.
//!
//! So n(2K + V) numbers and one log-sum stand for `K·K + K·V`: smaller for `n < K(K + V)/(2K + V)`, two thirds of K
//! when K = V.
//!
//! **Bound.** Factors are stored as cells: `|δk| <= u|k| + E_k` with `‖E_k‖_F <= A_k`, likewise `w` and `y`. Then for
//! `S`, entry by entry,
//!
//! ```text
//! |δ(kᵀw)| <= |δk|ᵀ(|w| + |δw|) + |k|ᵀ|δw|
//!          <= (2u + u²)|k|ᵀ|w| + (1 + u)(E_kᵀ|w| + |k|ᵀE_w) + E_kᵀE_w
//! ε_S       = (2u + u²)·‖|k|ᵀ|w|‖_F + (1 + u)(A_k‖w‖_F + ‖k‖_F A_w) + A_k A_w
//! ```
//!
//! and `ε_P` the same with `‖|k|ᵀ|y|‖₂` for `P`. With `T̂ − T = γ̂(P̂ − P) + (γ̂ − γ)P`: `ε_T = γ̂·ε_P + |γ̂ − γ|·‖P‖₂`.
//! The sums of n products are taken in f64; their rounding, `(n + 2)·2^-53` of the same norms, is added.

use super::bound::{Bound, TransitionBound};
use super::cells::{CellError, Cells, take_f32};
use super::error::StorageError;
use super::form::Shape;
use super::log_sum;
use super::norms::{U64, frobenius_up, magnitude_up, spectral_up, up};
use crate::error::{AlgebraError, check_finite, check_length, check_log_gates, checked_size};
use crate::operator::Operator;
use crate::transition::Transition;

/// The factors of one head's operator: `T = e^log (I − Σ k_t y_tᵀ)`, `S = Σ k_t w_tᵀ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    key_dim: usize,
    value_dim: usize,
    log: f64,
    keys: Vec<f64>,
    ys: Vec<f64>,
    writes: Vec<f64>,
}

impl Pair {
    /// A pair from its parts: `log` <= 0, `keys` and `ys` `[n, key_dim]`, `writes` `[n, value_dim]`.
    ///
    /// # Errors
    /// A size of 0, lengths that do not fit, values that are not finite, a log-sum above 0.
    pub fn new(
        key_dim: usize,
        value_dim: usize,
        log: f64,
        keys: Vec<f64>,
        ys: Vec<f64>,
        writes: Vec<f64>,
    ) -> Result<Self, StorageError> {
        check_sizes(key_dim, value_dim)?;
        let n = keys.len() / key_dim;
        check_length("keys of the pair [n, K]", n * key_dim, keys.len())?;
        check_length("y of the pair [n, K]", n * key_dim, ys.len())?;
        check_length("writes of the pair [n, V]", checked_size("writes [n, V]", &[n, value_dim])?, writes.len())?;
        for (what, values) in [("keys of the pair", &keys), ("y of the pair", &ys), ("writes of the pair", &writes)] {
            check_finite(what, values)?;
        }
        check_log_gates("log-sum of the pair", &[log])?;
        Ok(Self { key_dim, value_dim, log, keys, ys, writes })
    }

    /// The factors of the gated delta rule's operator for one head: keys `k` `[n, key_dim]`, values `v` `[n,
    /// value_dim]`, log-gates `g` `[n]` <= 0, write strengths `beta` `[n]`. No state is formed.
    ///
    /// # Errors
    /// Those of [`Self::new`], lengths that do not fit `g`, factors that overflow.
    pub fn gated_delta_rule(
        key_dim: usize,
        value_dim: usize,
        k: &[f64],
        v: &[f64],
        g: &[f64],
        beta: &[f64],
    ) -> Result<Self, StorageError> {
        let tokens = g.len();
        check_length("keys [n, K]", checked_size("keys [n, K]", &[tokens, key_dim])?, k.len())?;
        check_length("values [n, V]", checked_size("values [n, V]", &[tokens, value_dim])?, v.len())?;
        check_length("beta [n]", tokens, beta.len())?;
        check_log_gates("log-gates [n]", g)?;
        check_sizes(key_dim, value_dim)?;
        let mut log = 0.0f64;
        let mut ys: Vec<f64> = Vec::with_capacity(k.len());
        let mut writes: Vec<f64> = Vec::with_capacity(v.len());
        for (t, (key, value)) in k.chunks_exact(key_dim).zip(v.chunks_exact(value_dim)).enumerate() {
            let decay = g[t].exp();
            log = (log + g[t]).max(f64::MIN);
            writes.iter_mut().for_each(|w| *w *= decay);
            let (mut y, mut u) = (key.to_vec(), value.to_vec());
            let earlier = k.chunks_exact(key_dim).zip(ys.chunks_exact(key_dim)).zip(writes.chunks_exact(value_dim));
            for ((kj, yj), wj) in earlier {
                let dot: f64 = kj.iter().zip(key).map(|(a, b)| a * b).sum();
                y.iter_mut().zip(yj).for_each(|(y, yj)| *y -= dot * yj);
                u.iter_mut().zip(wj).for_each(|(u, wj)| *u -= dot * wj);
            }
            ys.extend(y.iter().map(|y| beta[t] * y));
            writes.extend(u.iter().map(|u| beta[t] * u));
        }
        Self::new(key_dim, value_dim, log, k.to_vec(), ys, writes)
    }

    /// The sizes, with n.
    pub fn shape(&self) -> Shape {
        Shape { key_dim: self.key_dim, value_dim: self.value_dim, tokens: self.keys.len() / self.key_dim }
    }

    /// The operator that the factors stand for, `T` dense.
    ///
    /// # Errors
    /// Products that overflow.
    pub fn operator(&self) -> Result<Operator, StorageError> {
        let gamma = self.log.exp();
        let matrix = self.projector().iter().map(|p| gamma * p).collect();
        let state = outer(&self.keys, &self.writes, self.key_dim, self.value_dim);
        Ok(Operator::new(self.key_dim, self.value_dim, Transition::Dense { matrix }, state)?)
    }

    /// `P = I − W Yᵀ`.
    fn projector(&self) -> Vec<f64> {
        let mut p: Vec<f64> = outer(&self.keys, &self.ys, self.key_dim, self.key_dim).iter().map(|x| -x).collect();
        p.iter_mut().step_by(self.key_dim + 1).for_each(|x| *x += 1.0);
        p
    }
}

fn check_sizes(key_dim: usize, value_dim: usize) -> Result<(), AlgebraError> {
    for (what, value) in [("key_dim", key_dim), ("value_dim", value_dim)] {
        if value == 0 {
            return Err(AlgebraError::Dimension { what, value, reason: "must be at least 1" });
        }
    }
    checked_size("state [K, V]", &[key_dim, value_dim])?;
    checked_size("transition [K, K]", &[key_dim, key_dim])?;
    Ok(())
}

/// `Σ_t a_t b_tᵀ` for a `[n, k]` and b `[n, v]`.
fn outer(a: &[f64], b: &[f64], k: usize, v: usize) -> Vec<f64> {
    let mut c = vec![0.0; k * v];
    for (a, b) in a.chunks_exact(k).zip(b.chunks_exact(v)) {
        for (&a, c) in a.iter().zip(c.chunks_exact_mut(v)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
        }
    }
    c
}

fn magnitudes(a: &[f64]) -> Vec<f64> {
    a.iter().map(|x| x.abs()).collect()
}

pub(super) fn bytes(shape: Shape, cells: Cells) -> usize {
    let Shape { key_dim, value_dim, tokens } = shape;
    let key_factors = cells.bytes(tokens, key_dim).saturating_mul(2);
    key_factors.saturating_add(cells.bytes(tokens, value_dim)).saturating_add(4)
}

pub(super) fn encode(pair: &Pair, cells: Cells, out: &mut Vec<u8>) -> Result<(), StorageError> {
    log_sum::encode(&[pair.log], out)?;
    cells.encode(&pair.keys, pair.key_dim, out)?;
    cells.encode(&pair.ys, pair.key_dim, out)?;
    cells.encode(&pair.writes, pair.value_dim, out)
}

/// The caller guarantees the number of bytes.
pub(super) fn decode(bytes: &[u8], shape: Shape, cells: Cells) -> Result<Pair, StorageError> {
    let Shape { key_dim, value_dim, tokens } = shape;
    let (log, rest) = take_f32(bytes);
    let (keys, rest) = rest.split_at(cells.bytes(tokens, key_dim).min(rest.len()));
    let (ys, writes) = rest.split_at(cells.bytes(tokens, key_dim).min(rest.len()));
    let (keys, ys) = (cells.decode(keys, key_dim), cells.decode(ys, key_dim));
    Pair::new(key_dim, value_dim, log, keys, ys, cells.decode(writes, value_dim))
}

/// Bound of the error of `Σ a_t b_tᵀ`, given that of the factors, their Frobenius norms and the norm of `Σ
/// |a_t||b_t|ᵀ`.
fn product_error(a: (CellError, f64), b: (CellError, f64), magnitudes: f64, tokens: usize) -> f64 {
    let ((a, a_norm), (b, b_norm)) = (a, b);
    let u = a.relative.max(b.relative);
    let relative = (2.0 * u + u * u) * magnitudes;
    let absolute = (1.0 + u) * (a.absolute * b_norm + a_norm * b.absolute) + a.absolute * b.absolute;
    // The sums, of the exact factors and of the stored ones, which are at most (1 + u) times as large and A off.
    let arithmetic = 2.0 * (tokens as f64 + 2.0) * U64 * ((1.0 + u) * (1.0 + u) * magnitudes + absolute);
    up(relative + absolute + arithmetic)
}

pub(super) fn bound(pair: &Pair, cells: Cells) -> Bound {
    let Shape { key_dim, value_dim, tokens } = pair.shape();
    let factor = |m: &[f64], columns| (cells.error(m, columns), frobenius_up(m));
    let keys = factor(&pair.keys, key_dim);
    let (keys_up, ys_up, writes_up) = (magnitudes(&pair.keys), magnitudes(&pair.ys), magnitudes(&pair.writes));

    let written = frobenius_up(&outer(&keys_up, &writes_up, key_dim, value_dim));
    let state_error = product_error(keys, factor(&pair.writes, value_dim), written, tokens);
    let state = outer(&pair.keys, &pair.writes, key_dim, value_dim);
    let state_norm = up(frobenius_up(&state) + (tokens as f64 + 2.0) * U64 * written);

    // ‖Σ|k||y|ᵀ‖₂, and 1 for the identity beside it in what the additions round.
    let erased = magnitude_up(&outer(&keys_up, &ys_up, key_dim, key_dim), key_dim);
    let arithmetic = 4.0 * U64 * (1.0 + erased);
    let p_error = product_error(keys, factor(&pair.ys, key_dim), erased, tokens) + arithmetic;
    let p_norm = spectral_up(&pair.projector(), key_dim) + (tokens as f64 + 4.0) * U64 * (1.0 + erased);
    let (gamma, gamma_error) = (pair.log.exp(), log_sum::decay_error(pair.log));
    let error = up((gamma + gamma_error) * p_error + gamma_error * p_norm + 4.0 * U64 * gamma * p_norm);
    Bound::of_parts(TransitionBound::rounded(up(gamma * p_norm), error), state_norm, state_error)
}

#[cfg(test)]
mod tests {
    use super::super::tests::heads::{Gates, Keys, Tokens, Writes};
    use super::*;
    use crate::matrix::{distance, frobenius};
    use crate::rng::Rng;

    #[test]
    fn factors_give_the_operator_of_the_recurrence() {
        let mut rng = Rng::new(8);
        for gates in Gates::ALL {
            for keys in Keys::ALL {
                for n in [0, 1, 5, 40] {
                    let tokens = Tokens::draw(&mut rng, (8, 6), n, gates, keys, Writes::Unit);
                    let (pair, want) = (tokens.pair(), tokens.operator());
                    assert_eq!(pair.shape().tokens, n);
                    let got = pair.operator().unwrap();
                    let dense = |o: &Operator| o.transition().to_dense(8);
                    // A few hundred f64 roundings of sums whose terms may exceed the result.
                    let size = frobenius(&outer(&magnitudes(&pair.keys), &magnitudes(&pair.writes), 8, 6));
                    assert!(distance(&dense(&got), &dense(&want)) < 1e-12, "{gates:?} {keys:?} {n}");
                    assert!(distance(got.state(), want.state()) <= 1e-12 * size, "{gates:?} {keys:?} {n}");
                }
            }
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_typed_errors() {
        let rule = |k: usize, g: f64| Pair::gated_delta_rule(2, 1, &vec![1.0; k], &[1.0; 2], &[g; 2], &[0.5; 2]);
        assert!(rule(4, -0.1).is_ok());
        assert!(matches!(rule(3, -0.1), Err(StorageError::Algebra(AlgebraError::Length { .. }))));
        assert!(matches!(rule(4, 0.1), Err(StorageError::Algebra(AlgebraError::PositiveLogGate { .. }))));
        let zero = Pair::gated_delta_rule(0, 1, &[], &[], &[], &[]);
        assert!(matches!(zero, Err(StorageError::Algebra(AlgebraError::Dimension { .. }))));
        let pair = |log: f64, ys: usize, w: f64| Pair::new(2, 1, log, vec![1.0; 4], vec![0.5; ys], vec![w; 2]);
        assert!(pair(-1.0, 4, 1.0).is_ok());
        assert!(matches!(pair(-1.0, 2, 1.0), Err(StorageError::Algebra(AlgebraError::Length { .. }))));
        assert!(matches!(pair(1.0, 4, 1.0), Err(StorageError::Algebra(AlgebraError::PositiveLogGate { .. }))));
        assert!(matches!(pair(-1.0, 4, f64::NAN), Err(StorageError::Algebra(AlgebraError::NonFinite { .. }))));
    }
}
