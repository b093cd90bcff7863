//! How far off a result is.

use crate::error::{AlgebraError, check_length};
use crate::family::Family;
use crate::inputs::{Inputs, Run};
use crate::log_scale::{log_scale, rescale};
use crate::matrix::{distance, frobenius};
use crate::operator::Operator;
use crate::sizes::Sizes;

/// Floor of every scale: far below any state a case makes, far above what f32 flushes to zero (1.2e-38).
const TINY: f64 = 1e-30;

/// The worst error of one case, taken as a multiple of its tolerance.
///
/// Errors are relative, per value head:
/// * a state's to `max(‖h_in‖_F, P)`, where `P` is the largest norm the state had on its way, decayed since:
///   `P_t = max(min(‖A_t‖, 1) P_{t-1}, ‖S_t‖_F)`. It is `‖S_out‖_F` unless a write erased something large; then the rounding
///   of the large thing is what remains, and no implementation can avoid it;
/// * an output's to `P_t·‖q‖·|scale|`, since some outputs nearly cancel (or what [`Family::output_scale`] says);
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
    pub(super) fn new(family: &dyn Family, x: &Inputs, s0: &[f64]) -> Result<Self, AlgebraError> {
        let nothing = || Self { run: Run { o: vec![], state: vec![] }, state_scale: vec![], output_scale: vec![] };
        Ok(Self::at(family, x, s0, &[x.sizes.tokens])?.pop().unwrap_or_else(nothing))
    }

    /// After each of `ends` tokens, rising and at most all there are, in one pass.
    pub(super) fn at(family: &dyn Family, x: &Inputs, s0: &[f64], ends: &[usize]) -> Result<Vec<Self>, AlgebraError> {
        family.check_with_state(x, s0)?;
        let space = Space::new(family, &x.sizes);
        let steps = family.step_norms(x)?;
        let start = space.norms(s0);
        let mut peak = start.clone();
        let mut run = Run { o: Vec::new(), state: s0.to_vec() };
        let mut output_scale = Vec::with_capacity(steps.len());
        let mut ends = ends.iter().peekable();
        let mut found = Vec::new();
        let mut note = |done: usize, run: &Run, peak: &[f64], output_scale: &[f64]| {
            while ends.next_if(|&&end| end == done).is_some() {
                let scale = |hv: usize| {
                    let (old, new) = (space.head(s0, hv), space.head(&run.state, hv));
                    let start = start[hv] * (space.log_scale(old) - space.log_scale(new)).min(0.0).exp();
                    peak[hv].max(start).max(TINY)
                };
                let state_scale = (0..start.len()).map(scale).collect();
                found.push(Self { run: run.clone(), state_scale, output_scale: output_scale.to_vec() });
            }
        };
        note(0, &run, &peak, &output_scale);
        for (t, steps) in (0..x.sizes.tokens).zip(steps.chunks_exact(x.sizes.value_heads)) {
            let step = family.run(&x.cut(t..t + 1), &run.state)?;
            run.o.extend(step.o);
            let before = std::mem::replace(&mut run.state, step.state);
            for (hv, norm) in space.norms(&run.state).into_iter().enumerate() {
                let (old, new) = (space.head(&before, hv), space.head(&run.state, hv));
                // The peak is in the state's unit, which moves.
                let carried = peak[hv] * steps[hv].min(1.0) * (space.log_scale(old) - space.log_scale(new)).exp();
                peak[hv] = if carried.is_finite() { norm.max(carried) } else { norm };
                output_scale.push(family.output_scale(x, t, hv, peak[hv], new).max(TINY));
            }
            note(t + 1, &run, &peak, &output_scale);
        }
        Ok(found)
    }
}

/// What a family's states look like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    /// Values of a head.
    size: usize,
    columns: usize,
    log_scaled: bool,
}

impl Space {
    pub(super) fn new(family: &dyn Family, sizes: &Sizes) -> Self {
        let columns = family.state_columns(sizes.value_dim);
        Self { size: sizes.key_dim * columns, columns, log_scaled: family.log_scaled() }
    }

    /// The space of an operator's own state.
    fn of(operator: &Operator) -> Self {
        let (columns, log_scaled) = (operator.value_dim(), operator.is_log_scaled());
        Self { size: operator.state().len(), columns, log_scaled }
    }

    /// A head of a state; an empty one when the state is too short.
    pub(super) fn head<'a>(&self, state: &'a [f64], hv: usize) -> &'a [f64] {
        state.get(hv * self.size..(hv + 1) * self.size).unwrap_or_default()
    }

    /// The log-scale of a head, 0 where there is none.
    fn log_scale(&self, head: &[f64]) -> f64 {
        if self.log_scaled { log_scale(head, self.columns) } else { 0.0 }
    }

    /// The values of a head in the unit of the log-scale `m`.
    fn values(&self, head: &[f64], m: f64) -> Vec<f64> {
        let mut values = head.to_vec();
        if self.log_scaled {
            rescale(&mut values, self.columns, log_scale(head, self.columns) - m, 0.0);
        }
        values
    }

    fn norms(&self, state: &[f64]) -> Vec<f64> {
        state.chunks_exact(self.size).map(|head| frobenius(&self.values(head, self.log_scale(head)))).collect()
    }

    /// What one unit of `from` is in units of `to`.
    pub(super) fn unit(&self, from: &[f64], to: &[f64]) -> f64 {
        (self.log_scale(from) - self.log_scale(to)).exp()
    }

    /// Distance of two heads in the unit of the second, and the distance of their log-scales relative to `max(1, |m|)`.
    pub(super) fn distance(&self, got: &[f64], want: &[f64]) -> (f64, f64) {
        if got.len() != want.len() || want.is_empty() {
            return (f64::NAN, f64::NAN);
        }
        let (mine, m) = (self.log_scale(got), self.log_scale(want));
        let apart = if mine == m { 0.0 } else { (mine - m).abs() / m.abs().max(1.0) };
        (distance(&self.values(got, m), &self.values(want, m)), apart)
    }

    /// Worst head of two states, `scale` `[HV]`; a log-scale counts as an error of its own.
    pub(super) fn error(
        &self,
        what: &'static str,
        got: &[f64],
        want: &[f64],
        scale: &[f64],
    ) -> Result<f64, AlgebraError> {
        check_length(what, want.len(), got.len())?;
        let heads = got.chunks_exact(self.size).zip(want.chunks_exact(self.size)).zip(scale);
        Ok(largest(heads.flat_map(|((g, w), s)| {
            let (apart, units) = self.distance(g, w);
            [apart / s, units]
        })))
    }
}

/// Largest value, NaN if there is one.
fn largest(errors: impl Iterator<Item = f64>) -> f64 {
    errors.fold(0.0, |m: f64, e| if m.is_nan() || e.is_nan() { f64::NAN } else { m.max(e) })
}

/// Worst head of two outputs, `scale` `[T, HV]`.
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
        let wanted = want.transition().to_dense(want.key_dim());
        let found = got.transition().to_dense(got.key_dim());
        transition.push(distance(&found, &wanted) / frobenius(&wanted).max(1.0));
        state.push(Space::of(want).error("operator's state", got.state(), want.state(), &[*scale])?);
    }
    Ok((largest(transition.into_iter()), largest(state.into_iter())))
}
