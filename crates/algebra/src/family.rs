//! A family of recurrences: what the algebra asks of an architecture.
//!
//! A family says which decay and which update it has and turns a model's numbers into gates; the skeleton does the rest.
//! One that does not fit brings its own sequential run. Everything else (operators, cases, laws, verdicts) follows.
//!
//! A new architecture, held against every law. Its state decays by a gate that the write strength decides:
//!
//! ```
//! use seam_algebra::laws::{Options, OracleSubject, family_verdict, table};
//! use seam_algebra::strategy::Case;
//! use seam_algebra::{AlgebraError, DecayKind, Family, Inputs, Run, Sizes, UpdateKind};
//!
//! /// `S = (1 − β) S + β k vᵀ`: a leaky average of what the tokens write.
//! struct LeakyAverage;
//!
//! impl Family for LeakyAverage {
//!     fn name(&self) -> &'static str {
//!         "leaky_average"
//!     }
//!     fn decay(&self) -> DecayKind {
//!         DecayKind::Scalar
//!     }
//!     fn update(&self) -> UpdateKind {
//!         UpdateKind::Add
//!     }
//!     fn has_strength(&self) -> bool {
//!         true
//!     }
//!     fn conv_kernel(&self) -> Option<usize> {
//!         Some(4)
//!     }
//!     /// The generated gates are hard ones; this ties the write strengths to them as the model does.
//!     fn adapt(&self, _case: &Case, x: &mut Inputs) {
//!         x.beta = x.g.iter().map(|g| -g.exp_m1()).collect();
//!     }
//!     /// A run of your own is optional: the skeleton would do here. Plain loops, f64, the equation of the paper.
//!     fn run(&self, x: &Inputs, s0: &[f64]) -> Result<Run, AlgebraError> {
//!         self.check_with_state(x, s0)?;
//!         let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
//!         let (mut state, mut o) = (s0.to_vec(), vec![0.0; tokens * value_heads * value_dim]);
//!         for t in 0..tokens {
//!             for hv in 0..value_heads {
//!                 let (row, b) = (t * value_heads + hv, x.strength(t, hv));
//!                 for i in 0..key_dim {
//!                     for j in 0..value_dim {
//!                         let s = &mut state[(hv * key_dim + i) * value_dim + j];
//!                         *s = (1.0 - b) * *s + b * x.key(t, hv)[i] * x.value(t, hv)[j];
//!                         o[row * value_dim + j] += x.scale * x.query(t, hv)[i] * *s;
//!                     }
//!                 }
//!             }
//!         }
//!         Ok(Run { o, state })
//!     }
//! }
//!
//! let mut subject = OracleSubject::new(&LeakyAverage);
//! let options = Options { seed: 1, cases: 12, max_len: 40 };
//! let rows = table(&mut [&mut subject], &options, &mut |_law, _case| ());
//! assert!(rows.iter().all(|row| row.report.passed), "{:?}", rows.iter().map(|r| &r.report.failure).collect::<Vec<_>>());
//! assert_eq!(family_verdict(&LeakyAverage, &rows).to_string(), "exact with conv warm-up of 3 tokens");
//! ```

use crate::error::{AlgebraError, check_finite, check_length, checked_size};
use crate::inputs::{Inputs, Run, round_to_bf16, round_to_f32};
use crate::log_scale::LOG_ZERO;
use crate::operator::Operator;
use crate::sizes::Sizes;
use crate::skeleton;
use crate::strategy::{Case, Rounding, Shape};
use crate::transition::Transition;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a token's decay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayKind {
    /// None: the state only adds up.
    None,
    /// One number a head, the same at every token: a segment's is its length times it.
    Fixed,
    /// One number a head and token.
    Scalar,
    /// One number a head, token and key dim.
    Diagonal,
}

impl DecayKind {
    /// Rows of gates for `tokens` tokens.
    pub(crate) fn rows(self, tokens: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Fixed => 1,
            Self::Scalar | Self::Diagonal => tokens,
        }
    }

    /// How the decay acts on two key dims that a rotation turns together.
    pub fn on_pairs(self) -> crate::rerotate::Decay {
        match self {
            Self::Diagonal => crate::rerotate::Decay::Diagonal,
            Self::None | Self::Fixed | Self::Scalar => crate::rerotate::Decay::Scalar,
        }
    }
}

/// What a token writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateKind {
    /// `S += β k vᵀ`: the transition is the decay.
    Add,
    /// Something of the old state is taken out along a vector: the transition is a dense matrix.
    Delta,
}

/// A family of recurrences. Only the first three functions are asked for; the rest describes what is unusual about it.
///
/// The state is `[HV, K, V]`, key axis first. [`Self::run`] is the oracle: plain, sequential, f64; everything else is
/// tested against it.
pub trait Family: Sync {
    /// Name in reports and in files of cases: lower case, no spaces.
    fn name(&self) -> &'static str;

    /// Its decay. Inputs of a fixed one may also come with a gate a token.
    fn decay(&self) -> DecayKind;

    /// Its update.
    fn update(&self) -> UpdateKind;

    /// Whether a write has a strength `beta`. Delta updates have one.
    fn has_strength(&self) -> bool {
        self.update() == UpdateKind::Delta
    }

    /// Writes a token makes one after the other.
    fn writes(&self) -> usize {
        1
    }

    /// Names of [`Inputs::extras`], in order.
    fn extras(&self) -> &'static [&'static str] {
        &[]
    }

    /// Columns of the state for values of `value_dim`: more than that where a normaliser is carried along.
    fn state_columns(&self, value_dim: usize) -> usize {
        value_dim
    }

    /// Whether the last column of the state is a log-scale, see [`crate::log_scale`].
    fn log_scaled(&self) -> bool {
        false
    }

    /// Kernel size of the causal convolution (or token shift) before the recurrence, in the published models: entries
    /// then start at token `kernel − 1`.
    fn conv_kernel(&self) -> Option<usize> {
        None
    }

    /// Whether the published models rotate the keys of this recurrence by position.
    fn rotated_keys(&self) -> bool {
        false
    }

    /// Sizes of a case, for families that fix some: channels of one value each, as many value heads as key heads.
    fn sizes(&self, case: &Case) -> Sizes {
        case.sizes()
    }

    /// The gate adaptor for generated inputs: ties what the model ties (`k = 1 − e^g`, `β = dt`), fixes what it fixes, adds
    /// the extras. Gates and write strengths are already drawn in the family's layout and are hard ones.
    fn adapt(&self, case: &Case, x: &mut Inputs) {
        let _ = (case, x);
    }

    /// Runs all tokens of `x` from the state `s0`.
    ///
    /// # Errors
    /// Inputs that [`Self::check_with_state`] refuses.
    fn run(&self, x: &Inputs, s0: &[f64]) -> Result<Run, AlgebraError> {
        self.check_with_state(x, s0)?;
        Ok(skeleton::run(x, self.update(), s0))
    }

    /// `‖A_t‖₂` or a bound on it, `[T, HV]`.
    ///
    /// # Errors
    /// Inputs that [`Self::check`] refuses.
    fn step_norms(&self, x: &Inputs) -> Result<Vec<f64>, AlgebraError> {
        self.check(x)?;
        Ok(skeleton::step_norms(x, self.update()))
    }

    /// How far rounding can move the output of value head `hv` at token `t`, in units of the state's own rounding: `peak`
    /// is the size of the state's errors, `state` `[K, columns]` the head's state after the token.
    fn output_scale(&self, x: &Inputs, t: usize, hv: usize, peak: f64, state: &[f64]) -> f64 {
        let _ = state;
        let last = (t + 1) * x.writes - 1;
        let skipped = x.skip.get(hv).map_or(0.0, |d| d.abs() * crate::frobenius(x.value(last, hv)));
        peak * crate::frobenius(x.query(t, hv)) * x.scale.abs() + skipped
    }

    /// Factor on the tolerances of these inputs: 1, unless roundings add up that the state's scale does not show. A fixed
    /// decay is rounded the same way at every token, so its error grows as the length and not as a random walk.
    fn conditioning(&self, x: &Inputs) -> f64 {
        if self.decay() == DecayKind::Fixed { 1.0 + x.sizes.tokens as f64 / 100.0 } else { 1.0 }
    }

    /// The operators `[HV]` of the tokens in `range`, each in its smallest form. An empty range gives the identity.
    ///
    /// An add update has the sum of its log-gates for `T` and the run from zero for `S`. A delta update has a dense `T`:
    /// value columns are independent given keys and gates, so one run with K + V columns from `[I | 0]` gives both.
    ///
    /// # Errors
    /// Inputs that [`Self::check`] refuses, or a range outside of them.
    fn operator(&self, x: &Inputs, range: Range<usize>) -> Result<Vec<Operator>, AlgebraError> {
        self.check(x)?;
        let x = x.slice(range)?;
        match self.update() {
            UpdateKind::Add => additive(self, &x),
            UpdateKind::Delta => dense(self, x),
        }
    }

    // What follows is the same for every family.

    /// Values in a state.
    fn state_len(&self, sizes: &Sizes) -> usize {
        Sizes { value_dim: self.state_columns(sizes.value_dim), ..*sizes }.state_len()
    }

    /// The state before any token.
    fn zero_state(&self, sizes: &Sizes) -> Vec<f64> {
        let mut state = vec![0.0; self.state_len(sizes)];
        if self.log_scaled() {
            crate::log_scale::rescale(&mut state, self.state_columns(sizes.value_dim), 0.0, LOG_ZERO);
        }
        state
    }

    /// The operators `[HV]` that change nothing.
    ///
    /// # Errors
    /// Impossible sizes.
    fn identity(&self, sizes: &Sizes) -> Result<Vec<Operator>, AlgebraError> {
        sizes.check()?;
        let log = vec![Transition::IDENTITY; sizes.value_heads];
        heads(self, sizes, log, &self.zero_state(sizes))
    }

    /// An upper bound `[HV]` of `‖T‖₂` over all tokens: the product of the norms of the single transitions. At most 1 for
    /// contractive gates.
    ///
    /// # Errors
    /// Inputs that [`Self::check`] refuses.
    fn transition_bound(&self, x: &Inputs) -> Result<Vec<f64>, AlgebraError> {
        let norms = self.step_norms(x)?;
        let mut bound = vec![1.0; x.sizes.value_heads];
        for token in norms.chunks_exact(x.sizes.value_heads) {
            bound.iter_mut().zip(token).for_each(|(b, n)| *b *= n);
        }
        Ok(bound)
    }

    /// Checks that these are inputs of this family.
    ///
    /// # Errors
    /// Those of [`Inputs::check`]; [`AlgebraError::Layout`] for gates in another layout, write strengths or extras that
    /// the family does not have or that are missing, another number of writes.
    fn check(&self, x: &Inputs) -> Result<(), AlgebraError> {
        x.check()?;
        let wrong = |what, expected: String, found: String| {
            Err(AlgebraError::Layout { family: self.name(), what, expected, found })
        };
        let unrolled = self.decay() == DecayKind::Fixed && x.decay == DecayKind::Scalar;
        if x.decay != self.decay() && !unrolled {
            return wrong("decay", format!("{:?}", self.decay()), format!("{:?}", x.decay));
        }
        if x.writes != self.writes() {
            return wrong("writes a token", self.writes().to_string(), x.writes.to_string());
        }
        let (has, says) = (!x.beta.is_empty(), |has| if has { "write strengths" } else { "none" }.to_string());
        if has != self.has_strength() && x.sizes.tokens > 0 {
            return wrong("beta", says(self.has_strength()), says(has));
        }
        let names: Vec<_> = x.extras.iter().map(|e| e.name).collect();
        if names != self.extras() {
            return wrong("extras", format!("{:?}", self.extras()), format!("{names:?}"));
        }
        Ok(())
    }

    /// Checks inputs and a state `[HV, K, columns]` that goes with them.
    ///
    /// # Errors
    /// Those of [`Self::check`], a state of a wrong length or with values that are not finite.
    fn check_with_state(&self, x: &Inputs, state: &[f64]) -> Result<(), AlgebraError> {
        self.check(x)?;
        let columns = self.state_columns(x.sizes.value_dim);
        let len = checked_size("state [HV, K, columns]", &[x.sizes.value_heads, x.sizes.key_dim, columns])?;
        check_length("state [HV, K, columns]", len, state.len())?;
        check_finite("state", state)
    }

    /// The inputs of a case, and a start state `[HV, K, columns]` of the size of the values; one case in four starts from
    /// zero.
    fn inputs(&self, case: &Case, rounding: Rounding) -> (Inputs, Vec<f64>) {
        let sizes = self.sizes(case);
        let (decay, columns) = (self.decay(), self.state_columns(sizes.value_dim));
        let shape = Shape { sizes, columns, decay, strength: self.has_strength(), writes: self.writes() };
        let (mut x, mut s0) = case.draw(&shape);
        self.adapt(case, &mut x);
        if self.log_scaled() {
            let head = x.sizes.key_dim * columns;
            let zero = s0.iter().all(|&s| s == 0.0);
            for (hv, s) in s0.chunks_exact_mut(head.max(1)).enumerate() {
                let scale = if zero { LOG_ZERO } else { case.rng(100 + hv as u64).between(-20.0, 20.0) };
                crate::log_scale::rescale(s, columns, 0.0, scale);
            }
        }
        if rounding != Rounding::F64 {
            if rounding == Rounding::Bf16Keys {
                round_to_bf16(&mut x.q);
                round_to_bf16(&mut x.k);
            }
            x.round_to_f32();
            // The log-scale of nothing is below every f32.
            s0.iter_mut().filter(|s| **s != LOG_ZERO).for_each(|s| round_to_f32(std::slice::from_mut(s)));
        }
        (x, s0)
    }
}

/// One operator a head from its parts, `states` `[HV, K, columns]`.
fn heads<F: Family + ?Sized>(
    family: &F,
    sizes: &Sizes,
    transitions: Vec<Transition>,
    states: &[f64],
) -> Result<Vec<Operator>, AlgebraError> {
    let columns = family.state_columns(sizes.value_dim);
    let states = states.chunks_exact(sizes.key_dim * columns);
    let one = |(transition, state): (Transition, &[f64])| {
        let operator = Operator::new(sizes.key_dim, columns, transition, state.to_vec())?;
        Ok(if family.log_scaled() { operator.log_scaled() } else { operator })
    };
    transitions.into_iter().zip(states).map(one).collect()
}

fn additive<F: Family + ?Sized>(family: &F, x: &Inputs) -> Result<Vec<Operator>, AlgebraError> {
    let Sizes { tokens, value_heads, key_dim, .. } = x.sizes;
    let state = family.run(x, &family.zero_state(&x.sizes))?.state;
    let sum = |hv, i| (0..tokens).map(|t| x.log_gate(t, hv, i)).sum::<f64>().max(f64::MIN);
    let transition = |hv: usize| match x.decay {
        DecayKind::None => Transition::IDENTITY,
        DecayKind::Fixed => Transition::Scalar { log: (tokens as f64 * x.g[hv]).max(f64::MIN) },
        DecayKind::Scalar => Transition::Scalar { log: sum(hv, 0) },
        DecayKind::Diagonal => Transition::Diagonal { log: (0..key_dim).map(|i| sum(hv, i)).collect() },
    };
    heads(family, &x.sizes, (0..value_heads).map(transition).collect(), &state)
}

fn dense<F: Family + ?Sized>(family: &F, x: Inputs) -> Result<Vec<Operator>, AlgebraError> {
    let (sizes, kd, vd) = (x.sizes, x.sizes.key_dim, x.sizes.value_dim);
    let columns = kd + vd;
    let wide = Inputs {
        sizes: Sizes { value_dim: columns, ..sizes },
        // [T·W, HV, K + V]
        v: x.v.chunks_exact(vd).flat_map(|v| std::iter::repeat_n(0.0, kd).chain(v.iter().copied())).collect(),
        ..x
    };
    wide.sizes.check()?;
    let mut s0 = vec![0.0; wide.sizes.state_len()]; // [HV, K, K + V]
    for (row, columns) in s0.chunks_exact_mut(columns).enumerate() {
        columns[row % kd] = 1.0;
    }
    let out = family.run(&wide, &s0)?.state;
    let part = |head: &[f64], from: usize, to: usize| -> Vec<f64> {
        head.chunks_exact(columns).flat_map(|row| row[from..to].iter().copied()).collect()
    };
    let each = out.chunks_exact(kd * columns);
    let transitions = each.clone().map(|head| Transition::Dense { matrix: part(head, 0, kd) }).collect();
    let states: Vec<f64> = each.flat_map(|head| part(head, kd, columns)).collect();
    heads(family, &sizes, transitions, &states)
}
