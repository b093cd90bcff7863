//! Sequential f64 oracles, one family a file. A family is added by a file here that implements [`Oracle`].

mod gated_delta_rule;

pub use gated_delta_rule::GatedDeltaRule;

use crate::error::AlgebraError;
use crate::inputs::{Inputs, Run};
use crate::operator::Operator;
use std::ops::Range;

/// The reference of one family of recurrences: plain, sequential, f64. Everything else is tested against it.
pub trait Oracle: Sync {
    /// Name of the family.
    fn name(&self) -> &'static str;

    /// Runs all tokens of `x` from the state `s0` `[HV, K, V]`.
    ///
    /// # Errors
    /// Inputs that [`Inputs::check_with_state`] refuses.
    fn run(&self, x: &Inputs, s0: &[f64]) -> Result<Run, AlgebraError>;

    /// The operators `[HV]` of the tokens in `range`. An empty range gives the identity.
    ///
    /// # Errors
    /// Inputs that [`Inputs::check`] refuses, or a range outside of them.
    fn operator(&self, x: &Inputs, range: Range<usize>) -> Result<Vec<Operator>, AlgebraError>;

    /// An upper bound `[HV]` of `‖T‖₂` over all tokens: the product of the exact norms of the single transitions. At most
    /// 1 for contractive gates.
    ///
    /// # Errors
    /// Inputs that [`Inputs::check`] refuses.
    fn transition_bound(&self, x: &Inputs) -> Result<Vec<f64>, AlgebraError>;
}
