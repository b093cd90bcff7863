//! The state algebra of linear-attention segments, in f64.
//!
//! **What it is.** A segment of tokens acts on a recurrent state as an affine map `h -> T·h + S`, its *operator*
//! ([`Operator`]). Operators compose, so a segment can be computed once and used anywhere. This crate holds the operator
//! and its representations, the families of recurrences with their sequential oracles ([`families`]; a new one is a file,
//! see [`family`]), re-rotation ([`rerotate`]), the convolution before a recurrence ([`conv`]), states with a log-scale
//! ([`log_scale`]), hard inputs as proptest strategies ([`strategy`]) and a harness that holds any implementation to the
//! laws ([`laws`]): the oracle itself, a CPU kernel, a GPU kernel, a recurrence of your own.
//!
//! **What it is not.** It is not fast, knows no device and no model, and keeps no cache. Nothing here runs in a request.
//!
//! ```
//! use seam_algebra::laws::{self, Law, Options, OracleSubject};
//! use seam_algebra::families::GatedDeltaRule;
//! use seam_algebra::strategy::{Case, Kind, Rounding};
//! use seam_algebra::{Family, apply_heads, compose_heads};
//!
//! // 40 tokens of hard inputs, cut at token 13: the operators of the parts compose to what the whole does.
//! let case = Case { seed: 1, kind: Kind::Anything, tokens: 40, key_heads: 1, ratio: 2, key_dim: 8, value_dim: 4 };
//! let (x, s0) = case.inputs(Rounding::F64);
//! let first = GatedDeltaRule.operator(&x, 0..13)?;
//! let second = GatedDeltaRule.operator(&x, 13..40)?;
//! let whole = compose_heads(&second, &first)?.strict()?;
//! let composed = apply_heads(&whole, &s0)?.strict()?;
//! let recomputed = GatedDeltaRule.run(&x, &s0)?.state;
//! let error = composed.iter().zip(&recomputed).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
//! assert!(error < 1e-10);
//!
//! // The laws, on any implementation of `laws::Subject`.
//! let options = Options { seed: 1, cases: 8, max_len: 65 };
//! for report in laws::run_laws(&mut OracleSubject::default(), &options, &mut |_law, _case| ()) {
//!     assert!(report.passed, "{report}");
//! }
//! // One law on one case, as a failure report prints it.
//! assert!(laws::check(Law::Chain, &mut OracleSubject::default(), &case)?.holds());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod absence;
pub mod conv;
mod error;
pub mod families;
pub mod family;
pub mod gates;
#[cfg(test)]
mod golden;
mod inputs;
pub mod laws;
pub mod log_scale;
mod matrix;
mod operator;
pub mod rerotate;
mod rng;
mod sizes;
mod skeleton;
mod stack;
pub mod storage;
pub mod strategy;
mod transition;

pub use absence::{Absence, Checked, Excess};
pub use error::AlgebraError;
pub use family::{DecayKind, Family, UpdateKind};
pub use inputs::{Extra, Heads, Inputs, Run, round_to_f32};
pub use matrix::{frobenius, spectral_norm};
pub use operator::{Operator, apply_heads, compose_heads};
pub use sizes::Sizes;
pub use stack::{stack, unstack};
pub use storage::StorageError;
pub use transition::Transition;
