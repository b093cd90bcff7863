//! Moving a cached operator to another position, for recurrences whose keys carry rotary position (RoPE).
//!
//! With `R(p)` the rotation of a key at position p, `R(a)R(b) = R(a + b)` and `R⁻¹ = Rᵀ`:
//! * scalar decay: `S = Σ γ R(p+t)k_t v_tᵀ`, γ commutes with R, so `S(p+Δ) = R(Δ)·S(p)` and T stays;
//! * scalar-decay delta rule: `A_t(p+Δ) = R(Δ) A_t(p) R(Δ)ᵀ`, so also `T(p+Δ) = R(Δ)·T(p)·R(Δ)ᵀ`;
//! * diagonal decay: R and `diag(d)` do not commute unless both members of every pair share their decay at every token.
//!   Then no rotation of the cached state is the state at the new position, and the segment must be computed again.

use crate::error::{AlgebraError, check_finite};
use crate::operator::Operator;
use crate::transition::Transition;

/// Which two key dims rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// `(i, i + rot/2)`: the halves of GPT-NeoX and Llama.
    Halves,
    /// `(2i, 2i + 1)`: neighbours, as in GPT-J and RetNet.
    Interleaved,
}

/// How the decay of a family acts on a rotation pair, at every token.
///
/// The operator alone cannot tell: two dims may decay differently at every token and still have equal sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// One decay for all key dims: RetNet, lightning, Mamba2, the gated delta rule.
    Scalar,
    /// A decay per key dim, the same for both members of each rotation pair.
    PairShared,
    /// A decay per key dim: GLA, KDA.
    Diagonal,
}

/// The rotation `R` on the key axis: pair `i` turns by `inv_freq[i]` radians per position. Dims from `2·inv_freq.len()`
/// on pass through. Angles are f64 products.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    pairing: Pairing,
    inv_freq: Vec<f64>,
}

impl Rotation {
    /// A rotation from its inverse frequencies, one a pair, radians per position.
    ///
    /// # Errors
    /// [`AlgebraError::NonFinite`].
    pub fn new(pairing: Pairing, inv_freq: Vec<f64>) -> Result<Self, AlgebraError> {
        check_finite("inv_freq", &inv_freq)?;
        Ok(Self { pairing, inv_freq })
    }

    /// The usual RoPE over the first `rot` dims: `inv_freq[i] = theta^(-2i/rot)`.
    ///
    /// # Errors
    /// An odd `rot`, a `theta` that is not positive and finite.
    pub fn rope(pairing: Pairing, rot: usize, theta: f64) -> Result<Self, AlgebraError> {
        if !rot.is_multiple_of(2) {
            return Err(AlgebraError::Dimension { what: "rotated dims", value: rot, reason: "must be even" });
        }
        if !(theta.is_finite() && theta > 0.0) {
            return Err(AlgebraError::NotANorm { what: "rope theta", value: theta });
        }
        let frequency = |i: usize| theta.powf(-(2.0 * i as f64) / rot as f64);
        Self::new(pairing, (0..rot / 2).map(frequency).collect())
    }

    /// Which dims turn together.
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// Radians per position, one a pair.
    pub fn frequencies(&self) -> &[f64] {
        &self.inv_freq
    }

    /// Number of rotated key dims.
    pub fn rotated_dims(&self) -> usize {
        2 * self.inv_freq.len()
    }

    /// The two key dims of pair `i`.
    pub fn pair(&self, i: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Halves => (i, i + self.inv_freq.len()),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        }
    }

    /// `R(positions) · x` in place, x `[K, n]` row-major. `positions = 0` changes no bit.
    ///
    /// # Errors
    /// Fewer key dims than are rotated, or a length that is not `K · n`.
    pub fn rotate(&self, x: &mut [f64], key_dim: usize, n: usize, positions: i64) -> Result<(), AlgebraError> {
        if self.rotated_dims() > key_dim {
            return Err(AlgebraError::Dimension {
                what: "rotated dims",
                value: self.rotated_dims(),
                reason: "more than the key has",
            });
        }
        let size = crate::error::checked_size("rotated array [K, n]", &[key_dim, n])?;
        crate::error::check_length("rotated array [K, n]", size, x.len())?;
        if positions == 0 {
            return Ok(());
        }
        for (i, frequency) in self.inv_freq.iter().enumerate() {
            let (first, second) = self.pair(i);
            let (sin, cos) = (positions as f64 * frequency).sin_cos();
            for j in 0..n {
                let (a, b) = (x[first * n + j], x[second * n + j]);
                x[first * n + j] = a * cos - b * sin;
                x[second * n + j] = b * cos + a * sin;
            }
        }
        Ok(())
    }

    /// The operator of the same tokens, `delta` positions further on.
    ///
    /// # Errors
    /// [`AlgebraError::RotationImpossible`] for [`Decay::Diagonal`] and for a diagonal `T` whose pair members differ,
    /// unless `delta` is 0 or nothing is rotated; a rotation wider than the key.
    pub fn rerotate(&self, operator: &Operator, decay: Decay, delta: i64) -> Result<Operator, AlgebraError> {
        let (k, v) = (operator.key_dim(), operator.value_dim());
        let mut state = operator.state().to_vec();
        if delta != 0 && !self.inv_freq.is_empty() {
            self.refuse(operator.transition(), decay, delta)?;
        }
        self.rotate(&mut state, k, v, delta)?;
        if operator.is_log_scaled() {
            // The log-scale is no key dim's and does not turn.
            let last = |x: &[f64]| x.last().copied().unwrap_or_default();
            let rows = state.chunks_exact_mut(v).zip(operator.state().chunks_exact(v));
            rows.for_each(|(row, old)| row[v - 1] = last(old));
        }
        let transition = match operator.transition() {
            Transition::Dense { matrix } => {
                // R T Rᵀ = R (R Tᵀ)ᵀ.
                let mut matrix = crate::matrix::transpose(matrix, k);
                self.rotate(&mut matrix, k, k, delta)?;
                let mut matrix = crate::matrix::transpose(&matrix, k);
                self.rotate(&mut matrix, k, k, delta)?;
                Transition::Dense { matrix }
            }
            commuting => commuting.clone(),
        };
        let moved = Operator::new(k, v, transition, state)?;
        Ok(if operator.is_log_scaled() { moved.log_scaled() } else { moved })
    }

    /// [`Self::rerotate`] head by head, `[HV]` operators.
    ///
    /// # Errors
    /// Those of [`Self::rerotate`].
    pub fn rerotate_heads(
        &self,
        operators: &[Operator],
        decay: Decay,
        delta: i64,
    ) -> Result<Vec<Operator>, AlgebraError> {
        operators.iter().map(|operator| self.rerotate(operator, decay, delta)).collect()
    }

    fn refuse(&self, t: &Transition, decay: Decay, delta: i64) -> Result<(), AlgebraError> {
        for i in 0..self.inv_freq.len() {
            let (first, second) = self.pair(i);
            let differ = match t {
                Transition::Diagonal { log } => log.get(first) != log.get(second),
                _ => false,
            };
            if decay == Decay::Diagonal || differ {
                return Err(AlgebraError::RotationImpossible { delta, first, second });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{distance, frobenius};

    #[test]
    fn quarter_turns_pair_the_right_dims() {
        let quarter = std::f64::consts::FRAC_PI_2;
        let turn = |pairing| {
            let mut x = vec![1.0, 2.0, 3.0, 4.0, 5.0];
            let r = Rotation::new(pairing, vec![quarter, quarter]).unwrap();
            r.rotate(&mut x, 5, 1, 1).unwrap();
            x.iter().map(|x| x.round()).collect::<Vec<_>>()
        };
        assert_eq!(turn(Pairing::Halves), [-3.0, -4.0, 1.0, 2.0, 5.0]);
        assert_eq!(turn(Pairing::Interleaved), [-2.0, 1.0, -4.0, 3.0, 5.0]);
    }

    /// The refusal is not caution. K = 2, V = 1, one pair turning by 90° a position, decays (1, 1/2) a token, a key
    /// (1, 0) and then an empty key. At position 0 the state is (1, 0) · (1, ½) = (1, 0). One position on, the key is
    /// (0, 1) and the state (0, 1) · (1, ½) = (0, ½). Every rotation keeps the norm, and the norms are 1 and ½: no
    /// rotation of the cached state, by any angle, is the recomputed one.
    #[test]
    fn diagonal_decay_cannot_be_rotated_and_is_refused() {
        let r = Rotation::new(Pairing::Halves, vec![std::f64::consts::FRAC_PI_2]).unwrap();
        let step = [0.0, 0.5f64.ln()];
        let computed_at = |position: i64| {
            let mut key = vec![1.0, 0.0];
            r.rotate(&mut key, 2, 1, position).unwrap();
            // Second token: decay, then a key of zeros.
            let state: Vec<f64> = key.iter().zip(step).map(|(k, g)| k * g.exp()).collect();
            state
        };
        let (cached, recomputed) = (computed_at(0), computed_at(1));
        assert!(distance(&cached, &[1.0, 0.0]) < 1e-15);
        assert!(distance(&recomputed, &[0.0, 0.5]) < 1e-15);
        for degree in 0..360 {
            let angle = f64::from(degree).to_radians();
            let any = Rotation::new(Pairing::Halves, vec![angle]).unwrap();
            let mut rotated = cached.clone();
            any.rotate(&mut rotated, 2, 1, 1).unwrap();
            // By the triangle inequality the distance is at least |1 − ½|.
            assert!(distance(&rotated, &recomputed) >= 0.5 - 1e-15);
        }
        assert!((frobenius(&cached) - 2.0 * frobenius(&recomputed)).abs() < 1e-15);

        // Both tokens decay: the log-sums are twice the step.
        let log = vec![0.0, 2.0 * step[1]];
        let op = Operator::new(2, 1, Transition::Diagonal { log }, cached).unwrap();
        for decay in [Decay::Diagonal, Decay::PairShared, Decay::Scalar] {
            assert_eq!(
                r.rerotate(&op, decay, 1),
                Err(AlgebraError::RotationImpossible { delta: 1, first: 0, second: 1 })
            );
        }
        assert_eq!(r.rerotate(&op, Decay::Diagonal, 0).unwrap(), op);
    }

    /// Equal sums do not make a shared decay: (½, 1) then (1, ½) has equal sums, yet no rotation gives the moved state.
    #[test]
    fn equal_sums_of_a_diagonal_decay_are_refused_too() {
        let log = vec![0.5f64.ln(); 2];
        let op = Operator::new(2, 1, Transition::Diagonal { log }, vec![1.0, 0.0]).unwrap();
        let r = Rotation::rope(Pairing::Halves, 2, 1e4).unwrap();
        assert!(r.rerotate(&op, Decay::Diagonal, 3).is_err());
        assert!(r.rerotate(&op, Decay::PairShared, 3).is_ok());
    }

    #[test]
    fn a_rotation_that_does_not_fit_is_an_error() {
        assert!(Rotation::rope(Pairing::Halves, 3, 1e4).is_err());
        assert!(Rotation::rope(Pairing::Halves, 4, 0.0).is_err());
        assert!(Rotation::new(Pairing::Halves, vec![f64::NAN]).is_err());
        let wide = Rotation::rope(Pairing::Interleaved, 4, 1e4).unwrap();
        let op = Operator::identity(2, 1).unwrap();
        assert!(matches!(wide.rerotate(&op, Decay::Scalar, 1), Err(AlgebraError::Dimension { .. })));
        assert!(wide.rotate(&mut [0.0; 3], 4, 1, 1).is_err());
    }
}
