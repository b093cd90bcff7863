//! Which form a head is stored in, from its norms.

use super::cells::Cells;
use super::error::StorageError;
use super::form::{Form, Shape, TransitionForm};
use crate::absence::Absence;
use crate::error::check_norm;

/// The strict target: a composed state within 2e-5.
pub const EXACT: f64 = 2e-5;

/// The small target: a composed state within 1e-3.
pub const COMPACT: f64 = 1e-3;

/// Below this no form is offered: all entries in f32 reach about 1e-6 over long chains.
const FLOOR: f64 = 1e-6;

/// From this `‖T‖₂` on a transition is stored as `γI + D`; below, taking `γI` off makes the rest larger.
const SLOW: f64 = 0.5;

/// What the choice needs to know of a head's transition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HeadTransition {
    /// A scalar decay.
    Scalar,
    /// A diagonal decay.
    Diagonal,
    /// A matrix.
    Dense {
        /// `‖T‖₂`, or a bound of it such as `e^log_gamma`.
        norm: f64,
        /// `log γ`, the sum of the scalar log-gates.
        log_gamma: f64,
        /// n, if the factors of the segment are at hand.
        tokens: Option<usize>,
    },
}

/// What the choice needs to know of a head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
    /// `‖S‖_F` of the segment.
    pub state_norm: f64,
    /// Usual norm of this head's incoming states.
    pub head_norm: f64,
    /// The transition.
    pub transition: HeadTransition,
}

/// Formats of one band of bounds.
struct Band {
    state: Cells,
    fast: Cells,
    slow: Cells,
    pair: Cells,
    /// Bound under which a transition is dropped.
    drop: f64,
}

impl Band {
    /// The bounds are what composed states were measured to keep, over chains of up to 64 segments, for every kind of
    /// gate: worst-case bounds (see [`super::Bound`]) are some `√K` larger, since they let all roundings align. No band
    /// has bf16, whose transitions leave slow heads 1e-2 off.
    fn of(bound: f64) -> Self {
        if bound < EXACT {
            Self { state: Cells::F32, fast: Cells::F32, slow: Cells::F32, pair: Cells::F32, drop: bound / 20.0 }
        } else if bound < 2e-4 {
            Self { state: Cells::F24, fast: Cells::F24, slow: Cells::F32, pair: Cells::F32, drop: 3e-6 }
        } else if bound < COMPACT {
            Self { state: Cells::Int16, fast: Cells::Int16, slow: Cells::F24, pair: Cells::F24, drop: 2e-5 }
        } else {
            Self { state: Cells::Int16, fast: Cells::Int16, slow: Cells::Int16, pair: Cells::F24, drop: 3e-4 }
        }
    }
}

/// The smallest form known to keep a composed state of this head within `bound`, relative to `max(‖h_in‖, ‖S_out‖)`,
/// over chains of up to 64 distinct segments. A few segments that come round again and again add equal roundings up:
/// eight of them eight times were measured to reach 1.5 times [`EXACT`] in heads that erase nothing, and to stay within
/// the larger bounds.
///
/// Decays are stored as log-sums. A matrix is dropped where `‖T‖₂·head_norm <= drop·‖S‖_F` for the `drop` of the bound,
/// a pair where that is smaller, else `γI + D` for `‖T‖₂ >= 0.5` and cells below. See [`EXACT`] and [`COMPACT`].
///
/// # Errors
/// A bound below 1e-6, norms that are negative or not finite, a `log_gamma` above 0 or not finite.
pub fn choose(head: &Head, bound: f64) -> Result<Form, StorageError> {
    check_norm("bound of the composed state", bound)?;
    check_norm("usual state norm of the head", head.head_norm)?;
    check_norm("state norm", head.state_norm)?;
    if bound < FLOOR {
        return Err(StorageError::TooStrict { bound, floor: FLOOR });
    }
    let band = Band::of(bound);
    let split = |transition| Form::Split { transition, state: band.state };
    let (norm, log_gamma, tokens) = match head.transition {
        HeadTransition::Scalar => return Ok(split(TransitionForm::LogScalar)),
        HeadTransition::Diagonal => return Ok(split(TransitionForm::LogDiagonal)),
        HeadTransition::Dense { norm, log_gamma, tokens } => (norm, log_gamma, tokens),
    };
    crate::error::check_log_gates("log γ of the head", &[log_gamma])?;
    let plain = if Absence::new(norm, head.state_norm, band.drop)?.allows(head.head_norm) {
        split(TransitionForm::Absent { head_norm: head.head_norm, bound: band.drop })
    } else if norm >= SLOW {
        split(TransitionForm::Residual { log_gamma, cells: band.slow })
    } else {
        split(TransitionForm::Dense(band.fast))
    };
    let pair = Form::Pair { cells: band.pair };
    let shape = Shape { key_dim: head.key_dim, value_dim: head.value_dim, tokens: tokens.unwrap_or(usize::MAX) };
    Ok(if pair.bytes(shape) < plain.bytes(shape) { pair } else { plain })
}
