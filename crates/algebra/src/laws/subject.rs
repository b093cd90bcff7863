//! What an implementation has to offer to be held against the laws.

use crate::error::AlgebraError;
use crate::families::GatedDeltaRule;
use crate::family::Family;
use crate::inputs::{Inputs, Run};
use crate::operator::{Operator, apply_heads, compose_heads};
use crate::rerotate::Rotation;
use crate::sizes::Sizes;
use crate::stack::{stack, unstack};
use crate::strategy::{DIMS, Rounding};
use thiserror::Error;

/// Why a subject gave no result.
#[derive(Debug, Error)]
pub enum SubjectError {
    /// The subject does not do such a case, or the law says nothing about it. The case counts as skipped.
    #[error("not applicable: {why}")]
    NotApplicable {
        /// What is missing.
        why: String,
    },
    /// The subject failed; the law fails.
    #[error("{what}: {source}")]
    Failed {
        /// What was asked of it.
        what: String,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The algebra refused the inputs or the results; the law fails.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
}

/// Largest errors that a law lets pass, relative to the scales that [`super::Measured`] describes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerances {
    /// States, and `S` of operators.
    pub state: f64,
    /// Outputs.
    pub output: f64,
    /// `T` of operators, relative to `max(1, ‖T‖_F)`.
    pub transition: f64,
    /// `‖T‖₂` above its bound, absolute.
    pub contraction: f64,
    /// A batch against its members one at a time; 0 asks for the same bits.
    pub batch: f64,
}

impl Tolerances {
    /// For f64: 2e-14. The transitions contract, so roundings of 1.1e-16 do not grow, and over 300 tokens and 64 key dims
    /// they add up as a random walk: 2e-15 is the worst of 3000 cases a law. If all had one sign it would be 2e-12.
    pub const F64: Self = Self { state: 2e-14, output: 2e-14, transition: 2e-14, contraction: 2e-14, batch: 0.0 };

    /// For f32 on exact inputs: 2e-5, the worst that a composed state of one layer may be off. A sequential f32
    /// recurrence reaches 7e-7 and chunks of 64 tokens 9e-6 where summed gates are in the hundreds.
    pub const F32: Self = Self { state: 2e-5, output: 2e-5, transition: 2e-5, contraction: 2e-5, batch: 0.0 };
}

impl Tolerances {
    /// All of them but the batch's, `factor` times as wide.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            state: self.state * factor,
            output: self.output * factor,
            transition: self.transition * factor,
            contraction: self.contraction * factor,
            batch: self.batch,
        }
    }
}

/// What a subject can do, and how exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Most tokens of one run.
    pub max_tokens: usize,
    /// Most cases a law is worth on this subject; slow devices ask for few.
    pub max_cases: usize,
    /// Most key heads.
    pub max_key_heads: usize,
    /// Most value heads per key head.
    pub max_ratio: usize,
    /// Key dims it does, simplest first; none means [`DIMS`].
    pub key_dims: Vec<usize>,
    /// Value dims it does, simplest first; none means [`DIMS`].
    pub value_dims: Vec<usize>,
    /// What inputs are rounded to before the subject and the oracle see them.
    pub rounding: Rounding,
    /// Its tolerances.
    pub tolerances: Tolerances,
}

impl Default for Limits {
    /// f64, 300 tokens, any number of cases, up to 2 key heads and 3 value heads each, all of [`DIMS`].
    fn default() -> Self {
        Self {
            max_tokens: 300,
            max_cases: usize::MAX,
            max_key_heads: 2,
            max_ratio: 3,
            key_dims: DIMS.to_vec(),
            value_dims: DIMS.to_vec(),
            rounding: Rounding::F64,
            tolerances: Tolerances::F64,
        }
    }
}

/// A step of a chain.
#[derive(Debug, Clone, Copy)]
pub enum ChainStep<'a> {
    /// Run tokens.
    Run(&'a Inputs),
    /// Apply the operators of a segment, `[HV]`.
    Apply(&'a [Operator]),
    /// Apply the operators of a segment as if its tokens stood `delta` positions further on: `R(Δ)·S`, and `R T Rᵀ` for a
    /// dense `T`. A subject whose family decays dim by dim refuses it with [`AlgebraError::RotationImpossible`].
    Moved {
        /// The operators `[HV]`, of keys rotated by `rotation` to where the segment was computed.
        operators: &'a [Operator],
        /// The rotation of the keys.
        rotation: &'a Rotation,
        /// Positions to move, either way.
        delta: i64,
    },
}

/// An implementation of a recurrence and of its operators.
///
/// States are `[HV, K, V]` (further columns where the family has them), operators `[HV]`. Numbers arrive rounded as [`Limits::rounding`] says, except operators that
/// went through [`Self::compose`]'s default; a subject that works in f32 rounds those itself.
pub trait Subject {
    /// Name in reports.
    fn name(&self) -> String;

    /// What it can do.
    fn limits(&self) -> Limits;

    /// The family it implements. Inputs follow it, and its run is what the subject is held against.
    fn family(&self) -> &'static dyn Family {
        &GatedDeltaRule
    }

    /// Runs all tokens of `x` from `s0`.
    ///
    /// # Errors
    /// See [`SubjectError`].
    fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError>;

    /// The operators of tokens `first..T`, accumulated while running all tokens of `x` from zero (zero, run `first` rows,
    /// begin operator, run the rest). `first = T` gives the identity.
    ///
    /// # Errors
    /// See [`SubjectError`].
    fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError>;

    /// Walks `steps` from the state `s0`: load, the steps, store. Gives the end state and the outputs of the run steps, in
    /// order. `sizes` are the heads and dims of all steps (`sizes.tokens` is the sum over the run steps).
    ///
    /// # Errors
    /// See [`SubjectError`].
    fn chain(&mut self, sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError>;

    /// Runs sequences of different lengths (same heads and dims) at once, each from its own state.
    ///
    /// # Errors
    /// See [`SubjectError`].
    fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError>;

    /// `later ∘ earlier`, head by head. The default composes in f64.
    ///
    /// # Errors
    /// See [`SubjectError`].
    fn compose(&mut self, later: &[Operator], earlier: &[Operator]) -> Result<Vec<Operator>, SubjectError> {
        Ok(compose_heads(later, earlier)?.strict()?)
    }
}

/// An f64 oracle as a subject: it must satisfy every law. Its batches are one run over stacked heads.
#[derive(Clone, Copy)]
pub struct OracleSubject {
    oracle: &'static dyn Family,
}

impl OracleSubject {
    /// The oracle of a family.
    pub fn new(oracle: &'static dyn Family) -> Self {
        Self { oracle }
    }
}

impl Default for OracleSubject {
    /// The gated delta rule.
    fn default() -> Self {
        Self::new(&GatedDeltaRule)
    }
}

impl Subject for OracleSubject {
    fn name(&self) -> String {
        format!("oracle/{}", self.oracle.name())
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn family(&self) -> &'static dyn Family {
        self.oracle
    }

    fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError> {
        Ok(self.oracle.run(x, s0)?)
    }

    fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError> {
        Ok(self.oracle.operator(x, first..x.sizes.tokens)?)
    }

    fn chain(&mut self, _sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        let mut all = Run { o: Vec::new(), state: s0.to_vec() };
        for step in steps {
            match step {
                ChainStep::Run(x) => {
                    let run = self.oracle.run(x, &all.state)?;
                    all.o.extend(run.o);
                    all.state = run.state;
                }
                ChainStep::Apply(operators) => {
                    all.state = apply_heads(operators, &all.state)?.strict()?;
                }
                ChainStep::Moved { operators, rotation, delta } => {
                    let moved = rotation.rerotate_heads(operators, self.oracle.decay().on_pairs(), *delta)?;
                    all.state = apply_heads(&moved, &all.state)?.strict()?;
                }
            }
        }
        Ok(all)
    }

    fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
        let inputs: Vec<&Inputs> = xs.iter().map(|(x, _)| x).collect();
        let s0: Vec<f64> = xs.iter().flat_map(|(_, s0)| s0.iter().copied()).collect();
        let together = self.oracle.run(&stack(&inputs)?, &s0)?;
        Ok(unstack(&together, &inputs, s0.len() / xs.len().max(1))?)
    }
}
