//! The laws of segment operators, held against any implementation.
//!
//! Implement [`Subject`] (a CPU kernel, a device behind an adaptor) and call [`run_laws`]; or call [`check`] with the law
//! and the case that a failure report prints. Re-rotation is algebra alone and has its own [`run_rerotation_laws`].

mod measure;
#[cfg(test)]
mod mutants;
mod properties;
mod report;
mod rerotation;
mod subject;
#[cfg(test)]
mod tests;

pub use measure::Measured;
pub use properties::check;
pub use report::{LawReport, Options, run_laws};
pub use rerotation::{RerotationLaw, RotationCase, check_rerotation, rotation_cases, run_rerotation_laws};
pub use subject::{ChainStep, Limits, OracleSubject, Subject, SubjectError, Tolerances};

use serde::{Deserialize, Serialize};

/// A law for families with a dense transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// Outputs and end state are those of the sequential oracle.
    Oracle,
    /// The operator of a range, accumulated while running, is the oracle's.
    Operator,
    /// `(I, 0)` changes nothing, on either side and inside a chain, and an empty range gives it.
    Identity,
    /// `(C∘B)∘A = C∘(B∘A)`.
    Associativity,
    /// The parts of any cut compose to the whole, and running the parts in turn is running the whole.
    SplitInvariance,
    /// Applying A and then B is applying `B∘A`, and both are running the tokens.
    ApplyCompose,
    /// No token: nothing changes, not a bit. One token: the oracle's step.
    ShortLengths,
    /// Swapping two segments changes the state by as much as it does for the oracle.
    OrderSensitivity,
    /// `‖T‖₂` is at most the product of the norms of its tokens, so at most 1 for contractive gates.
    Contraction,
    /// A batch gives what its members give one at a time.
    Batch,
    /// Any interleaving of running and applying (with and without a recomputed seam) is running all tokens.
    Chain,
}

impl Law {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 11] = [
        Self::Oracle,
        Self::Operator,
        Self::Identity,
        Self::Associativity,
        Self::SplitInvariance,
        Self::ApplyCompose,
        Self::ShortLengths,
        Self::OrderSensitivity,
        Self::Contraction,
        Self::Batch,
        Self::Chain,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Operator => "operator",
            Self::Identity => "identity",
            Self::Associativity => "associativity",
            Self::SplitInvariance => "split_invariance",
            Self::ApplyCompose => "apply_compose",
            Self::ShortLengths => "short_lengths",
            Self::OrderSensitivity => "order_sensitivity",
            Self::Contraction => "contraction",
            Self::Batch => "batch",
            Self::Chain => "chain",
        }
    }
}
