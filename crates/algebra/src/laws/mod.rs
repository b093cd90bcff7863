//! The laws of segment operators, held against any implementation.
//!
//! Implement [`Subject`] (a CPU kernel, a device behind an adaptor) and call [`run_laws`] or [`table`]; or call [`check`]
//! with the law and the case that a failure report prints. [`every_cut`] and [`every_length`] go through all cuts and
//! lengths of one case, and [`sweep`] measures how the error of a composed state grows with the number of segments. An architecture of your own is a [`Family`] and needs no
//! subject: [`OracleSubject`] holds its sequential run to the laws (see [`crate::family`] for one in 50 lines). Cases that
//! once failed are kept as lines of text and replayed ([`regressions`]).
//!
//! Re-rotation is also held as algebra alone, without a subject: [`run_rerotation_laws`].

mod cuts;
mod measure;
mod moved;
#[cfg(test)]
mod mutants;
mod properties;
mod regression;
mod report;
mod rerotation;
mod subject;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod warm_up;

pub use cuts::{every_cut, every_length};
pub use measure::Measured;
pub use properties::check;
pub use regression::{Regression, regressions};
pub use report::{LawReport, Options, run_law, run_laws};
pub use rerotation::{RerotationLaw, RotationCase, check_rerotation, rotation_cases, run_rerotation_laws};
pub use subject::{ChainStep, Limits, OracleSubject, Subject, SubjectError, Tolerances};
pub use sweep::{SEGMENTS, Sweep, SweepDecay, SweepPoint, sweep};
pub use table::{Row, Verdict, family_verdict, oracle_table, render, row, table};
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
    /// A batch of sequences of any lengths, some without a token or of one, gives what its members give one at a time.
    Batch,
    /// Tokens cut anywhere into prefilled pieces and single decoding steps, walked as one chain and as runs that each start
    /// from the state of the one before, give the outputs and the state of running all at once.
    Cuts,
    /// Any interleaving of running and applying (with and without a recomputed seam) is running all tokens.
    Chain,
    /// Behind a causal convolution, an operator that starts at token `kernel − 1` of a segment computed alone composes
    /// exactly behind any predecessor's tail, down to interiors of 1 and 2 tokens; one that starts at token 0 does not.
    Convolution,
    /// With keys rotated by position, a rotation of the operator is the operator further on, and a chain that applies it
    /// moved is a run of the tokens further on; where the decay is diagonal both are refused.
    Rerotation,
}

impl Law {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 14] = [
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
        Self::Cuts,
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
            Self::Cuts => "cuts",
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
