//! What can be wrong with storing an operator.

use crate::error::AlgebraError;
use thiserror::Error;

/// Errors of the storage forms.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StorageError {
    /// A value is too large for the form, or would become so by rounding. No form holds more than f32's range.
    #[error("{form}: value {value:e} at index {index} does not fit")]
    OutOfRange {
        /// The form.
        form: &'static str,
        /// Flat index in the matrix that was to be stored.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The form cannot hold this representation of a transition.
    #[error("a transition that is {found} cannot be stored as {form}")]
    WrongForm {
        /// The form.
        form: &'static str,
        /// The representation found.
        found: &'static str,
    },
    /// The transition may not be dropped for this head: `‖T‖₂·n_h > bound·‖S‖_F`.
    #[error("a transition of norm {transition_norm:e} must stay: it may add {dropped:e}, the bound allows {allowed:e}")]
    MayNotDrop {
        /// `‖T‖₂`.
        transition_norm: f64,
        /// `‖T‖₂·n_h`.
        dropped: f64,
        /// `bound·‖S‖_F`.
        allowed: f64,
    },
    /// Stored bytes of a wrong length.
    #[error("{form}: expected {expected} bytes, found {found}")]
    Bytes {
        /// The form.
        form: &'static str,
        /// Bytes that form and shape ask for.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// No form meets a bound this strict.
    #[error("no storage form keeps a state within {bound:e}; the strictest bound that can be asked for is {floor:e}")]
    TooStrict {
        /// The bound asked for.
        bound: f64,
        /// The strictest possible one.
        floor: f64,
    },
    /// The operator, its factors, or what was decoded, is not valid.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
}
