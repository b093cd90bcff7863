//! Dropping a transition that no longer matters, and reporting where it did matter.

use crate::error::{AlgebraError, check_norm};
use thiserror::Error;

/// What justified dropping a transition. The true `T` is treated as exactly 0.
///
/// The error this makes for an incoming state `h` is at most `‖T‖₂·‖h‖`. It is measured against what the segment itself
/// writes, `‖S‖`: a small `‖T‖₂` alone bounds nothing when the segment writes little.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Absence {
    /// `‖T‖₂` of the dropped transition (after a composition: a bound on it, the product of the two norms).
    pub transition_norm: f64,
    /// `‖S‖_F` of the operator's own state.
    pub state_norm: f64,
    /// Relative error that was accepted: `‖T‖₂·n_h <= bound·‖S‖_F`.
    pub bound: f64,
}

impl Absence {
    /// The record for a dropped transition.
    ///
    /// # Errors
    /// [`AlgebraError::NotANorm`] when one of the numbers is negative or not finite.
    pub fn new(transition_norm: f64, state_norm: f64, bound: f64) -> Result<Self, AlgebraError> {
        check_norm("transition norm", transition_norm)?;
        check_norm("state norm", state_norm)?;
        check_norm("absence bound", bound)?;
        Ok(Self { transition_norm, state_norm, bound })
    }

    /// The rule: may the transition be dropped for incoming states of norm `incoming`?
    pub fn allows(&self, incoming: f64) -> bool {
        self.transition_norm * incoming <= self.bound * self.state_norm
    }

    /// `Some` when dropping `T·h` for a state of norm `incoming` breaks the bound.
    pub fn excess(&self, incoming: f64) -> Option<Excess> {
        (!self.allows(incoming)).then_some(Excess {
            dropped: self.transition_norm * incoming,
            allowed: self.bound * self.state_norm,
            absence: *self,
            incoming,
        })
    }
}

/// An absent transition met a state too large for its bound: the dropped term `T·h` may matter.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error(
    "absent transition met a state of norm {incoming:e}: the dropped term may reach {dropped:e}, the bound allows {allowed:e}"
)]
pub struct Excess {
    /// Upper bound of the dropped term, `‖T‖₂·‖h‖_F`.
    pub dropped: f64,
    /// What the bound allows, `bound·‖S‖_F`.
    pub allowed: f64,
    /// The record of the operator.
    pub absence: Absence,
    /// `‖h‖_F` of the incoming state.
    pub incoming: f64,
}

/// A value together with the report of a broken absence bound, if there was one.
#[must_use = "an absent transition may have dropped more than its bound allows"]
#[derive(Debug, Clone, PartialEq)]
pub struct Checked<T> {
    /// The value, with the absent transition taken as exactly 0.
    pub value: T,
    /// The largest excess met, `None` when every bound held.
    pub excess: Option<Excess>,
}

impl<T> Checked<T> {
    /// The value, or the excess as an error.
    ///
    /// # Errors
    /// [`AlgebraError::AbsenceExceeded`] when a bound was broken.
    pub fn strict(self) -> Result<T, AlgebraError> {
        match self.excess {
            None => Ok(self.value),
            Some(excess) => Err(excess.into()),
        }
    }
}

/// Of two reports, the one whose dropped term is the larger share of what was allowed.
pub(crate) fn worse(a: Option<Excess>, b: Option<Excess>) -> Option<Excess> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.dropped * b.allowed >= b.dropped * a.allowed { a } else { b }),
        (a, b) => a.or(b),
    }
}
