//! How far off a result is.

use crate::error::{AlgebraError, check_length};
use crate::inputs::{Inputs, Run};
use crate::matrix::{distance, frobenius};
use crate::operator::Operator;
use crate::oracle::Oracle;

/// Floor of every scale: far below any state a case makes, far above what f32 flushes to zero (1.2e-38).
const TINY: f64 = 1e-30;

/// The worst error of one case, taken as a multiple of its tolerance.
///
/// Errors are relative, per value head:
/// * a state's to `max(‖h_in‖_F, P)`, where `P` is the largest norm the state had on its way, decayed since:
///   `P_t = max(e^g P_{t-1}, ‖S_t‖_F)`. It is `‖S_out‖_F` unless a write erased something large; then the rounding of the
///   large thing is what remains, and no implementation can avoid it;
/// * an output's to `P_t·‖q‖·|scale|`, since some outputs nearly cancel;
/// * a transition's to `max(1, ‖T‖_F)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub part: &'static str,
    /// The error; NaN when a result was NaN.
    pub error: f64,
    /// What it may be.
    pub tolerance: f64,
}

impl Measured {
    pub(super) const NOTHING: Self = Self { part: "nothing", error: 0.0, tolerance: 0.0 };

    /// Whether the error is within its tolerance (NaN never is).
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }

    fn share(&self) -> f64 {
        if self.error == 0.0 {
            0.0
        } else if self.error.is_nan() {
            f64::INFINITY
        } else {
            self.error / self.tolerance
        }
    }

    /// Keeps the worse of the two; of equals the first, unless that is nothing yet.
    pub(super) fn note(&mut self, part: &'static str, error: f64, tolerance: f64) {
        let other = Self { part, error, tolerance };
        if other.share() > self.share() || self.part == Self::NOTHING.part {
            *self = other;
        }
    }
}

/// The oracle's run of some inputs, with the scales of its errors.
pub(super) struct Reference {
    pub(super) run: Run,
    /// `[HV]`.
    pub(super) state_scale: Vec<f64>,
    /// `[T, HV]`.
    pub(super) output_scale: Vec<f64>,
}

impl Reference {
    pub(super) fn new(oracle: &dyn Oracle, x: &Inputs, s0: &[f64]) -> Result<Self, AlgebraError> {
        x.check_with_state(s0)?;
        let heads = x.sizes.value_heads;
        let size = x.sizes.key_dim * x.sizes.value_dim;
        let norms = |state: &[f64]| state.chunks_exact(size).map(frobenius).collect::<Vec<_>>();
        let start = norms(s0);
        let mut peak = start.clone();
        let mut run = Run { o: Vec::with_capacity(x.v.len()), state: s0.to_vec() };
        let mut output_scale = Vec::with_capacity(x.g.len());
        for t in 0..x.sizes.tokens {
            let step = oracle.run(&x.cut(t..t + 1), &run.state)?;
            run.o.extend(step.o);
            run.state = step.state;
            for (hv, norm) in norms(&run.state).into_iter().enumerate() {
                peak[hv] = norm.max(peak[hv] * x.g[t * heads + hv].exp());
                let q = frobenius(x.query(t, hv));
                output_scale.push((peak[hv] * q * x.scale.abs()).max(TINY));
            }
        }
        let state_scale = peak.iter().zip(&start).map(|(p, s)| p.max(*s).max(TINY)).collect();
        Ok(Self { run, state_scale, output_scale })
    }
}

/// Largest value, NaN if there is one.
fn largest(errors: impl Iterator<Item = f64>) -> f64 {
    errors.fold(0.0, |m: f64, e| if m.is_nan() || e.is_nan() { f64::NAN } else { m.max(e) })
}

/// Worst head of two arrays of equal heads, `scale` `[heads]` (a state with its state scales, outputs with theirs).
pub(super) fn relative_error(
    what: &'static str,
    got: &[f64],
    want: &[f64],
    scale: &[f64],
) -> Result<f64, AlgebraError> {
    check_length(what, want.len(), got.len())?;
    let size = want.len() / scale.len().max(1);
    if size == 0 {
        return Ok(0.0);
    }
    let heads = got.chunks_exact(size).zip(want.chunks_exact(size));
    Ok(largest(heads.zip(scale).map(|((g, w), s)| distance(g, w) / s)))
}

/// Errors of `T` and of `S` of two lists of operators, `scale` `[HV]` for S.
pub(super) fn operator_errors(got: &[Operator], want: &[Operator], scale: &[f64]) -> Result<(f64, f64), AlgebraError> {
    check_length("operators of the heads [HV]", want.len(), got.len())?;
    let (mut transition, mut state) = (Vec::new(), Vec::new());
    for ((got, want), scale) in got.iter().zip(want).zip(scale) {
        check_length("operator's key dims", want.key_dim(), got.key_dim())?;
        check_length("operator's state", want.state().len(), got.state().len())?;
        let wanted = want.transition().to_dense(want.key_dim());
        let found = got.transition().to_dense(got.key_dim());
        transition.push(distance(&found, &wanted) / frobenius(&wanted).max(1.0));
        state.push(distance(got.state(), want.state()) / scale);
    }
    Ok((largest(transition.into_iter()), largest(state.into_iter())))
}
