//! What can be wrong with an operator, a state, a rotation or a set of inputs.

use crate::absence::Excess;
use thiserror::Error;

/// Errors of this crate. Every one names the thing and the numbers that are wrong with it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AlgebraError {
    /// A slice does not have the number of values that its shape asks for.
    #[error("{what}: shape asks for {expected} values, found {found}")]
    Length {
        /// Name and shape of the slice.
        what: &'static str,
        /// Values that the shape asks for.
        expected: usize,
        /// Values found.
        found: usize,
    },
    /// Two things that must agree in shape do not.
    #[error("{what}: shapes differ, {left} against {right}")]
    ShapeMismatch {
        /// The operation.
        what: &'static str,
        /// Shape on the left.
        left: String,
        /// Shape on the right.
        right: String,
    },
    /// A size is impossible: zero, not divisible, or too large to address.
    #[error("{what} = {value}: {reason}")]
    Dimension {
        /// Name of the size.
        what: &'static str,
        /// Its value.
        value: usize,
        /// Why it is refused.
        reason: &'static str,
    },
    /// A NaN or an infinity.
    #[error("{what}[{index}] = {value} is not finite")]
    NonFinite {
        /// Name of the slice.
        what: &'static str,
        /// Flat index of the first bad value.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A log-gate above zero: the decay would grow the state.
    #[error("{what}[{index}] = {value}: a log-gate must be <= 0")]
    PositiveLogGate {
        /// Name of the slice.
        what: &'static str,
        /// Flat index of the first bad value.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A norm or a bound that must be finite and >= 0 is not.
    #[error("{what} = {value}: must be finite and >= 0")]
    NotANorm {
        /// Name of the quantity.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// A token range that does not lie inside the inputs.
    #[error("token range {start}..{end} does not lie inside 0..{tokens}")]
    TokenRange {
        /// First token.
        start: usize,
        /// One past the last token.
        end: usize,
        /// Tokens there are.
        tokens: usize,
    },
    /// Inputs of another family: a layout or an array that this one does not have, or lacks.
    #[error("{family}: {what}: expected {expected}, found {found}")]
    Layout {
        /// The family.
        family: &'static str,
        /// The array or the layout.
        what: &'static str,
        /// What the family asks for.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Text that is no case, or no line of a file of cases.
    #[error("line {line}: {why}")]
    Parse {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// No rotation of the cached state gives the state at the new position: the decays of a rotation pair differ, and a
    /// rotation does not commute with them. The segment must be computed again.
    #[error(
        "cannot move a state by {delta} positions: key dims {first} and {second} are rotated together but decay apart; recompute the segment"
    )]
    RotationImpossible {
        /// Positions that the segment was to move.
        delta: i64,
        /// First key dim of the offending pair.
        first: usize,
        /// Second key dim of the offending pair.
        second: usize,
    },
    /// The term that an absent transition drops is larger than its bound allows.
    #[error(transparent)]
    AbsenceExceeded(#[from] Excess),
}

/// `Ok` when `found` equals `expected`.
pub(crate) fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), AlgebraError> {
    if expected == found { Ok(()) } else { Err(AlgebraError::Length { what, expected, found }) }
}

/// `Ok` when every value is finite.
pub(crate) fn check_finite(what: &'static str, values: &[f64]) -> Result<(), AlgebraError> {
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(index) => Err(AlgebraError::NonFinite { what, index, value: values[index] }),
    }
}

/// `Ok` when every value is finite and at most 0.
pub(crate) fn check_log_gates(what: &'static str, values: &[f64]) -> Result<(), AlgebraError> {
    check_finite(what, values)?;
    match values.iter().position(|&x| x > 0.0) {
        None => Ok(()),
        Some(index) => Err(AlgebraError::PositiveLogGate { what, index, value: values[index] }),
    }
}

/// `Ok` when the value is finite and not negative.
pub(crate) fn check_norm(what: &'static str, value: f64) -> Result<(), AlgebraError> {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(AlgebraError::NotANorm { what, value }) }
}

/// The product of sizes, or an error that names them when it does not fit in memory's address range.
pub(crate) fn checked_size(what: &'static str, sizes: &[usize]) -> Result<usize, AlgebraError> {
    sizes
        .iter()
        .try_fold(1usize, |n, &s| n.checked_mul(s))
        // A slice of f64 can hold at most isize::MAX bytes.
        .filter(|&n| n <= isize::MAX as usize / 8)
        .ok_or(AlgebraError::Dimension {
            what,
            value: sizes.iter().copied().max().unwrap_or(0),
            reason: "the product of the sizes is too large to address",
        })
}
