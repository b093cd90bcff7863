//! The laws of segment operators, held against any implementation.
//!
//! Implement [`Subject`] (a CPU kernel, a device behind an adaptor) and call [`run_laws`] or [`table`]; or call [`check`]
//! with the law and the case that a failure report prints. An architecture of your own is a [`Family`] and needs no
//! subject: [`OracleSubject`] holds its sequential run to the laws (see [`crate::family`] for one in 50 lines). Cases that
//! once failed are kept as lines of text and replayed ([`regressions`]).
//!
//! Re-rotation is also held as algebra alone, without a subject: [`run_rerotation_laws`].

mod measure;
mod moved;
#[cfg(test)]
mod mutants;
mod properties;
mod regression;
mod report;
mod rerotation;
mod subject;
mod table;
#[cfg(test)]
mod tests;
mod warm_up;

pub use measure::Measured;
pub use properties::check;
pub use regression::{Regression, regressions};
pub use report::{LawReport, Options, run_laws};
pub use rerotation::{RerotationLaw, RotationCase, check_rerotation, rotation_cases, run_rerotation_laws};
pub use subject::{ChainStep, Limits, OracleSubject, Subject, SubjectError, Tolerances};
pub use table::{Row, Verdict, family_verdict, oracle_table, render, table};
pub use warm_up::{WarmUp, warm_up};

use crate::family::Family;
use serde::{Deserialize, Serialize};

/// A law of segment operators.
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
    /// Swapping two segments changes the state by as much as it does for the oracle (not at all where nothing decays and
    /// nothing is taken out).
    OrderSensitivity,
    /// `‖T‖₂` is at most the product of the norms of its tokens, so at most 1 for contractive gates.
    Contraction,
    /// A batch gives what its members give one at a time.
    Batch,
    /// Any interleaving of running and applying (with and without a recomputed seam) is running all tokens.
    Chain,
    /// Behind a causal convolution, an operator that starts at token `kernel − 1` of a segment computed alone composes
    /// exactly behind any predecessor's tail, down to interiors of 1 and 2 tokens; one that starts at token 0 does not.
    Convolution,
    /// With keys rotated by position, a rotation of the operator is the operator further on; where the decay is diagonal
    /// it is refused.
    Rerotation,
}

impl Law {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 13] = [
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
        Self::Convolution,
        Self::Rerotation,
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
            Self::Convolution => "convolution",
            Self::Rerotation => "rerotation",
        }
    }

    /// The law of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|law| law.name() == name)
    }

    /// Why the law says nothing about a family, if it does not.
    pub fn silent_on(self, family: &dyn Family) -> Option<&'static str> {
        match self {
            Self::Convolution if family.conv_kernel().is_none_or(|kernel| kernel < 2) => Some("no convolution"),
            Self::Rerotation if rerotation::one_key_dim(family) => Some("one key dim: nothing to rotate"),
            _ => None,
        }
    }
}
