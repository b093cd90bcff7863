//! How the errors of stored operators add up over a chain.

use super::error::StorageError;
use super::norms::{frobenius_up, spectral_up, up};
use crate::error::{AlgebraError, check_length};
use crate::operator::Operator;
use crate::transition::Transition;

/// What is kept beside a stored operator: norms of the exact one, and bounds of its error. Five numbers per head.
///
/// Write `T̂, Ŝ` for what was stored, `δT = T̂ − T`, `δS = Ŝ − S`, `h` for the exact state, `ĥ` for the one computed
/// from the stored operators, `e = ‖ĥ − h‖_F`. One segment makes
///
/// 1. `ĥ' − h' = T̂ĥ + Ŝ − Th − S = T̂(ĥ − h) + δT·h + δS`;
/// 2. `e' <= ‖T̂‖₂·e + ‖δT‖₂·‖h‖_F + ‖δS‖_F`, since `‖AB‖_F <= ‖A‖₂‖B‖_F`;
/// 3. `‖h'‖_F <= ‖T‖₂·‖h‖_F + ‖S‖_F`.
///
/// The error is carried on by the *stored* transition. Rounding can push `‖T̂‖₂` above 1 although `‖T‖₂ <= 1`, so it
/// has its own bound `τ̂ <= ‖T‖₂ + ε_T` here ([`Self::growth`]). With `τ = ‖T‖₂`, `σ = ‖S‖_F` and the bounds `ε_T, ε_S`
/// of the form, two segments in a row are again of this kind ([`Self::then`]):
///
/// ```text
/// τ  = τ₂·τ₁             σ   = τ₂·σ₁ + σ₂
/// τ̂  = τ̂₂·τ̂₁             ε_T = τ̂₂·ε_T₁ + ε_T₂·τ₁
///                        ε_S = τ̂₂·ε_S₁ + ε_T₂·σ₁ + ε_S₂
/// ```
///
/// (`T̂₂T̂₁ − T₂T₁ = T̂₂·δT₁ + δT₂·T₁`, and the same for `T̂₂Ŝ₁ + Ŝ₂ − T₂S₁ − S₂`). The rule is associative, so the
/// bound is the same for a chain of states and for operators that were composed first. From an exact incoming state the
/// error is at most `ε_T·‖h_in‖ + ε_S` of the whole chain ([`Self::error`]).
///
/// For n equal segments and `m = max(‖h_in‖, σ)`, unrolled (`‖h_i‖ <= m·(τ^i + Σ_{j<i} τ^j)`, which is at most `m/(1 −
/// τ)` for `τ < 1` and `m(1 + i)` for `τ <= 1`):
///
/// * `τ̂ < 1`: `e_n/m <= (ε_T/(1 − τ) + ε_S/m)·(1 − τ̂ⁿ)/(1 − τ̂)`, which soon stops growing with n;
/// * `τ <= 1 <= τ̂`: `e_n/m <= (ε_T·n(n + 1)/2 + n·ε_S/m)·τ̂^(n−1)`. A head that forgets nothing adds up every error,
///   and its state grows like `n·m` if nothing cancels, so the error relative to `‖S_out‖` grows like n.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// At least `‖T‖₂` of the exact transition.
    pub transition_norm: f64,
    /// At least `‖T̂‖₂` of the stored one. May exceed 1.
    pub growth: f64,
    /// At least `‖T̂ − T‖₂`.
    pub transition_error: f64,
    /// At least `‖S‖_F`.
    pub state_norm: f64,
    /// At least `‖Ŝ − S‖_F`.
    pub state_error: f64,
}

impl Bound {
    /// The bound of `(I, 0)` stored exactly: a chain of no segments.
    pub const EMPTY: Self =
        Self { transition_norm: 1.0, growth: 1.0, transition_error: 0.0, state_norm: 0.0, state_error: 0.0 };

    pub(super) fn of_parts(transition: TransitionBound, state_norm: f64, state_error: f64) -> Self {
        let TransitionBound { norm, growth, error } = transition;
        Self { transition_norm: norm, growth, transition_error: error, state_norm, state_error }
    }

    /// The bound of this chain followed by `later`.
    pub fn then(&self, later: &Self) -> Self {
        Self {
            transition_norm: up(later.transition_norm * self.transition_norm),
            growth: up(later.growth * self.growth),
            transition_error: up(later.growth * self.transition_error + later.transition_error * self.transition_norm),
            state_norm: up(later.transition_norm * self.state_norm + later.state_norm),
            state_error: up(later.growth * self.state_error
                + later.transition_error * self.state_norm
                + later.state_error),
        }
    }

    /// The bound of a chain of `n` segments, each with this bound.
    pub fn repeated(&self, n: usize) -> Self {
        (0..n).fold(Self::EMPTY, |chain, _| chain.then(self))
    }

    /// At least `‖ĥ − h‖_F` after this chain, from an exact incoming state of norm `incoming`.
    pub fn error(&self, incoming: f64) -> f64 {
        up(self.transition_error * incoming + self.state_error)
    }

    /// [`Self::error`] relative to `max(incoming, outgoing)`; `outgoing` is `‖S_out‖_F` of the composed operator, or a
    /// lower bound of it. 0 when there is no error, infinite when there is one and both norms are 0.
    pub fn relative(&self, incoming: f64, outgoing: f64) -> f64 {
        let error = self.error(incoming);
        if error == 0.0 { 0.0 } else { error / incoming.max(outgoing) }
    }

    /// At least `‖ĥ − h‖_F` after a chain whose norms are known: `incoming[i]` at least `‖h‖_F` of the exact state that
    /// segment i met, `following[i]` at least `‖T̂_n ⋯ T̂_{i+1}‖₂` of what came after it (1 for the last segment):
    /// `Σ_i following[i]·(ε_T,i·incoming[i] + ε_S,i)`, step 1 above unrolled.
    ///
    /// The norm of a product is often far below the product of the norms: a segment of a slow head erases a few
    /// directions and has norm 1, two of them in a row have erased the directions of both. Over 64 segments
    /// [`Self::then`] can so be a thousand times too large where this is not. It needs the products, so it is for
    /// checks, not for requests.
    ///
    /// # Errors
    /// Slices of different lengths.
    pub fn error_of_known_chain(segments: &[Self], incoming: &[f64], following: &[f64]) -> Result<f64, StorageError> {
        check_length("incoming norms [segments]", segments.len(), incoming.len())?;
        check_length("norms of the following products [segments]", segments.len(), following.len())?;
        let steps = segments.iter().zip(incoming).zip(following);
        Ok(steps.fold(0.0, |sum, ((segment, h), after)| up(sum + after * segment.error(*h))))
    }

    /// The same five numbers with the errors that this very operator has, instead of the largest that its form can
    /// make. Smaller by about `√K` in `ε_T`, since rounding errors seldom align; needs the exact operator.
    ///
    /// # Errors
    /// Operators of different shapes. An absent transition on the exact side: it is not exact.
    pub fn measured(exact: &Operator, stored: &Operator) -> Result<Self, StorageError> {
        let k = exact.key_dim();
        if (k, exact.value_dim()) != (stored.key_dim(), stored.value_dim()) {
            let shape = |o: &Operator| format!("[K {}, V {}]", o.key_dim(), o.value_dim());
            let (left, right) = (shape(exact), shape(stored));
            return Err(AlgebraError::ShapeMismatch { what: "measured bound", left, right }.into());
        }
        if matches!(exact.transition(), Transition::Absent(_)) {
            return Err(StorageError::WrongForm { form: "exact", found: "absent" });
        }
        let (t, held) = (exact.transition().to_dense(k), stored.transition().to_dense(k));
        let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| up(a - b)).collect::<Vec<f64>>();
        let transition_norm = spectral_up(&t, k);
        let transition_error = spectral_up(&apart(&t, &held), k);
        let growth = spectral_up(&held, k).min(up(transition_norm + transition_error));
        Ok(Self {
            transition_norm,
            growth,
            transition_error,
            state_norm: frobenius_up(exact.state()),
            state_error: frobenius_up(&apart(exact.state(), stored.state())),
        })
    }
}

/// The part of a [`Bound`] that a form of `T` gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TransitionBound {
    pub(super) norm: f64,
    pub(super) growth: f64,
    pub(super) error: f64,
}

impl TransitionBound {
    /// From `‖T‖₂` and `ε_T`, with `‖T̂‖₂ <= ‖T‖₂ + ε_T`.
    pub(super) fn rounded(norm: f64, error: f64) -> Self {
        Self { norm, growth: up(norm + error), error }
    }
}

/// The bound of one running state, segment by segment. Tighter than the [`Bound`] of the chain when the norms of the
/// computed states are told to it, since states that cancel are then seen to be small.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainError {
    norm: f64,
    error: f64,
}

impl ChainError {
    /// An exact incoming state of norm `incoming`.
    pub fn start(incoming: f64) -> Self {
        Self { norm: incoming, error: 0.0 }
    }

    /// Goes through one segment.
    pub fn apply(&mut self, segment: &Bound) {
        self.error = up(segment.growth * self.error + segment.transition_error * self.norm + segment.state_error);
        self.norm = up(segment.transition_norm * self.norm + segment.state_norm);
    }

    /// Takes note of `‖ĥ‖_F` of the computed state: the exact one is at most `‖ĥ‖ + e`.
    pub fn observe(&mut self, computed: f64) {
        self.norm = self.norm.min(up(computed + self.error));
    }

    /// At least `‖ĥ − h‖_F`.
    pub fn error(&self) -> f64 {
        self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `σ = 1.3`, as large as the incoming state of the closed forms.
    fn one(t: f64, error: f64) -> Bound {
        Bound {
            transition_norm: t,
            growth: t + error,
            transition_error: error,
            state_norm: 1.3,
            state_error: 0.6 * error,
        }
    }

    #[test]
    fn chains_are_within_the_closed_forms_and_reach_them() {
        for (t, error) in [(0.0, 1e-3), (0.5, 1e-3), (0.99, 1e-3), (1.0, 1e-6), (1.0, 0.03)] {
            for n in [1, 2, 7, 64] {
                let bound = one(t, error);
                let (m, nf, growth) = (1.3, n as f64, bound.growth);
                let closed = if growth < 1.0 {
                    (error / (1.0 - t) + bound.state_error / m) * (1.0 - growth.powi(n as i32)) / (1.0 - growth)
                } else {
                    (error * nf * (nf + 1.0) / 2.0 + nf * bound.state_error / m) * growth.powi(n as i32 - 1)
                };
                let got = bound.repeated(n).error(m) / m;
                // Rounding up: a few 1e-15 a segment.
                assert!(got <= closed * (1.0 + 1e-12), "{t} {n}: {got:e} {closed:e}");
                // The closed forms let every step have the largest state, or the growth of all that follow.
                if error < 1e-5 || (t <= 0.5 && n == 64) {
                    assert!(got >= 0.95 * closed, "{t} {n}: {got:e} {closed:e}");
                }
            }
        }
    }

    #[test]
    fn the_rule_is_associative_and_agrees_with_the_running_state() {
        let (a, b, c) = (one(0.9, 1e-3), one(1.0, 2e-4), one(0.2, 0.1));
        let (left, right) = (a.then(&b).then(&c), a.then(&b.then(&c)));
        let mut running = ChainError::start(2.0);
        [a, b, c].iter().for_each(|s| running.apply(s));
        // Rounding up, a few 1e-15 an operation.
        assert!((left.error(2.0) / right.error(2.0) - 1.0).abs() < 1e-13);
        assert!((left.error(2.0) / running.error() - 1.0).abs() < 1e-13);
        assert_eq!(Bound::EMPTY.repeated(64).error(5.0), 0.0);
        assert_eq!(Bound::EMPTY.relative(0.0, 0.0), 0.0);
        assert!((a.relative(2.0, 4.0) - a.error(2.0) / 4.0).abs() < 1e-18);
    }

    #[test]
    fn a_state_seen_to_be_small_tightens_the_rest() {
        let (mut blind, mut seeing) = (ChainError::start(1e6), ChainError::start(1e6));
        for _ in 0..8 {
            blind.apply(&one(1.0, 1e-6));
            seeing.apply(&one(1.0, 1e-6));
            seeing.observe(1.0);
        }
        assert!(seeing.error() < 0.2 * blind.error() && seeing.error() >= 1.0);
        let before = seeing;
        seeing.observe(1e9);
        assert_eq!(before, seeing);
    }
}
