//! The laws of moving an operator: what [`Rotation::rerotate`] gives is what the same tokens give further on.

use super::measure::{Measured, operator_errors};
use super::report::{LawReport, Options, drive};
use super::subject::SubjectError;
use crate::families::GatedDeltaRule;
use crate::family::{DecayKind, Family};
use crate::inputs::Inputs;
use crate::operator::Operator;
use crate::rerotate::{Decay, Pairing, Rotation};
use crate::rng::Rng;
use crate::sizes::Sizes;
use crate::strategy::{Case, Kind};
use crate::transition::Transition;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt;

/// A law of re-rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerotationLaw {
    /// Scalar decay, rotated keys: `S(p+Δ) = R(Δ)·S(p)`, T unchanged.
    ScalarDecay,
    /// Delta rule with scalar decay, rotated keys: also `T(p+Δ) = R(Δ)·T(p)·R(Δ)ᵀ`.
    DeltaRule,
    /// Diagonal decay shared by the members of each pair: as scalar decay.
    PairShared,
}

impl RerotationLaw {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ScalarDecay, Self::DeltaRule, Self::PairShared];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ScalarDecay => "rerotation_scalar_decay",
            Self::DeltaRule => "rerotation_delta_rule",
            Self::PairShared => "rerotation_pair_shared",
        }
    }
}

/// One case: a head of K = V = `dim`, its first token at `position`, moved by `delta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationCase {
    /// Seed of all arrays.
    pub seed: u64,
    /// T.
    pub tokens: usize,
    /// K and V.
    pub dim: usize,
    /// Rotated dims, even, at most `dim`.
    pub rot: usize,
    /// Which dims rotate together.
    pub pairing: Pairing,
    /// Position of the first token.
    pub position: i64,
    /// Positions to move.
    pub delta: i64,
}

impl fmt::Display for RotationCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, tokens, dim, rot, pairing, position, delta } = self;
        write!(
            f,
            "RotationCase {{ seed: {seed:#x}, tokens: {tokens}, dim: {dim}, rot: {rot}, pairing: Pairing::{pairing:?}, position: {position}, delta: {delta} }}"
        )
    }
}

/// Cases of up to `max_tokens` tokens at positions up to 2^18, moved forth and back; shrinks over all but the seed.
pub fn rotation_cases(max_tokens: usize) -> BoxedStrategy<RotationCase> {
    (
        any::<u64>().no_shrink(),
        0..=max_tokens,
        select(vec![4usize, 8, 12, 16, 32]),
        0usize..=4,
        select(vec![Pairing::Halves, Pairing::Interleaved]),
        prop_oneof![0i64..64, 0i64..1 << 18],
        prop_oneof![-64i64..64, -(1i64 << 18)..1 << 18],
    )
        .prop_map(|(seed, tokens, dim, quarters, pairing, position, delta)| RotationCase {
            seed,
            tokens,
            dim,
            rot: (dim * quarters / 4) & !1,
            pairing,
            position,
            delta,
        })
        .boxed()
}

/// Holds re-rotation against one law on one case.
///
/// # Errors
/// A case with impossible sizes.
pub fn check_rerotation(law: RerotationLaw, case: &RotationCase) -> Result<Measured, SubjectError> {
    let rotation = Rotation::rope(case.pairing, case.rot, 1e4)?;
    let decay = match law {
        RerotationLaw::PairShared => Decay::PairShared,
        _ => Decay::Scalar,
    };
    let here = computed_at(law, case, &rotation, case.position)?;
    let there = computed_at(law, case, &rotation, case.position.saturating_add(case.delta))?;
    let moved = rotation.rerotate(&here, decay, case.delta)?;
    // Keys have norm 1 and values norm √V at most a few times over, and nothing grows: the sum of what the tokens write,
    // undecayed, is the scale on which the angles' errors act.
    let scale = (case.tokens as f64).max(1.0) * (case.dim as f64).sqrt();
    let (transition, state) = operator_errors(&[moved], &[there], &[scale])?;
    // f64 rounding, and the angles p·f, Δ·f and (p+Δ)·f, each rounded by at most half an ulp: 1.5 ε·reach·f together, with
    // f falling from 1 (whose products are exact) to 1e-4 over the pairs and the tokens averaging out. A sixth of that.
    let reach = case.position.unsigned_abs() as f64 + case.delta.unsigned_abs() as f64 + case.tokens as f64;
    let tolerance = 1e-13 + 0.25 * reach * f64::EPSILON;
    let mut worst = Measured::NOTHING;
    worst.note("state", state, tolerance);
    // T is turned on both sides.
    worst.note("transition", transition, 2.0 * tolerance);
    Ok(worst)
}

/// The operator of the case's tokens when the first one stands at `position`, with keys rotated one by one.
fn computed_at(
    law: RerotationLaw,
    case: &RotationCase,
    rotation: &Rotation,
    position: i64,
) -> Result<Operator, SubjectError> {
    let (dim, mut rng) = (case.dim, Rng::new(case.seed));
    let sizes = Sizes { tokens: case.tokens, key_heads: 1, value_heads: 1, key_dim: dim, value_dim: dim };
    sizes.check()?;
    let (mut keys, mut values, mut gates, mut beta) = (vec![], vec![], vec![], vec![]);
    for t in 0..case.tokens {
        let mut key = rng.direction(dim);
        rotation.rotate(&mut key, dim, 1, position.saturating_add(t as i64))?;
        keys.extend(key);
        values.extend((0..dim).map(|_| rng.normal()));
        beta.push(rng.between(0.0, 2.0));
        // A log-gate a key dim; pairs that rotate together share theirs.
        let mut gate: Vec<f64> = (0..dim).map(|_| -rng.power(-4.0, 0.0)).collect();
        for i in 0..case.rot / 2 {
            let (first, second) = rotation.pair(i);
            gate[second] = gate[first];
        }
        if law != RerotationLaw::PairShared {
            let one = gate[0];
            gate.fill(one);
        }
        gates.push(gate);
    }
    if law == RerotationLaw::DeltaRule {
        let plain = Inputs::new(sizes, vec![0.0; keys.len()], keys, values, 1.0);
        let x = Inputs { g: gates.iter().map(|g| g[0]).collect(), beta, decay: DecayKind::Scalar, ..plain };
        let mut heads = GatedDeltaRule.operator(&x, 0..case.tokens)?;
        return heads.pop().ok_or_else(|| SubjectError::NotApplicable { why: "no head".into() });
    }
    // S_t = diag(e^g) S_{t-1} + k vᵀ, T = diag(e^Σg).
    let (mut state, mut log) = (vec![0.0; dim * dim], vec![0.0; dim]);
    for (t, gate) in gates.iter().enumerate() {
        for i in 0..dim {
            log[i] += gate[i];
            for j in 0..dim {
                state[i * dim + j] = gate[i].exp() * state[i * dim + j] + keys[t * dim + i] * values[t * dim + j];
            }
        }
    }
    let transition = match law {
        RerotationLaw::PairShared => Transition::Diagonal { log },
        _ => Transition::Scalar { log: log[0] },
    };
    Ok(Operator::new(dim, dim, transition, state)?)
}

/// Whether a family fixes its key dim to 1, whatever a case asks for.
pub(super) fn one_key_dim(family: &dyn Family) -> bool {
    let case = Case { seed: 0, kind: Kind::Typical, tokens: 0, key_heads: 1, ratio: 1, key_dim: 8, value_dim: 8 };
    family.sizes(&case).key_dim < 2
}

/// Runs the laws of re-rotation. They are algebra alone, so there is no subject. `progress` as in [`super::run_laws`].
pub fn run_rerotation_laws(options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Vec<LawReport> {
    let strategy = rotation_cases(options.max_len);
    RerotationLaw::ALL
        .into_iter()
        .map(|law| {
            let paste = |case: &_| format!("check_rerotation(RerotationLaw::{law:?}, &{case})");
            let test = &mut |case: &_| check_rerotation(law, case);
            drive(law.name(), "algebra", &strategy, options, &paste, progress, test)
        })
        .collect()
}
