//! Hard inputs as proptest strategies. A case is a seed, sizes and a kind; the arrays are made from them.

use crate::families::GatedDeltaRule;
use crate::family::{DecayKind, Family};
use crate::inputs::Inputs;
use crate::rng::{Rng, normalise};
use crate::sizes::Sizes;
use proptest::prelude::*;
use proptest::sample::select;
use serde::{Deserialize, Serialize};

mod text;

/// Lengths around the borders of chunks of 2, 8, 16, 64 and 128 tokens.
pub const BORDER_LENGTHS: [usize; 15] = [0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300];

/// Head dims that are drawn unless a subject asks for others.
pub const DIMS: [usize; 7] = [4, 8, 12, 16, 24, 32, 64];

/// What is hard about a case. Keys have norm 1 and beta is in `[0, 1)` where the kind does not say otherwise;
/// `beta·‖k‖² <= 2` always holds, so every token's transition is a contraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Gates as a trained model has them: a time scale per head from 0.2 to 1000 tokens, beta = sigmoid of a normal.
    Typical,
    /// No decay at all: g = 0.
    NoDecay,
    /// Decay near 1: g from -1e-4 to -1e-9.
    SlowDecay,
    /// Decay near 0: g from -2 to -30.
    FastDecay,
    /// g = -90 at one token in eight, slow otherwise.
    HardReset,
    /// beta = 0: nothing is written.
    BetaZero,
    /// beta = 1: the key's old value is replaced.
    BetaOne,
    /// beta from 1e-8 to 1e-4.
    BetaTiny,
    /// beta up to 2, and exactly 2 (a reflection) at one token in three.
    BetaToTwo,
    /// Half of the keys are zero.
    ZeroKeys,
    /// Every key is zero.
    AllZeroKeys,
    /// One or two keys over and over, beta = 1 at half of the tokens.
    RepeatedKeys,
    /// The same with a perturbation of 1e-5.
    NearlyRepeatedKeys,
    /// Values of size 1e8.
    HugeValues,
    /// Values of size 1e-8.
    TinyValues,
    /// Values of sizes 1e-4 to 1e4, token by token.
    MixedValues,
    /// Keys of norm 1 to 1000, beta divided by the squared norm.
    LongKeys,
    /// Keys of norm 1e-4, beta up to 2.
    ShortKeys,
    /// Every token draws one of the other kinds.
    Anything,
}

impl Kind {
    /// All kinds, the plainest first (the order in which a failure shrinks).
    pub const ALL: [Self; 19] = [
        Self::Typical,
        Self::NoDecay,
        Self::SlowDecay,
        Self::FastDecay,
        Self::HardReset,
        Self::BetaZero,
        Self::BetaOne,
        Self::BetaTiny,
        Self::BetaToTwo,
        Self::ZeroKeys,
        Self::AllZeroKeys,
        Self::RepeatedKeys,
        Self::NearlyRepeatedKeys,
        Self::HugeValues,
        Self::TinyValues,
        Self::MixedValues,
        Self::LongKeys,
        Self::ShortKeys,
        Self::Anything,
    ];

    fn log_gate(self, rng: &mut Rng, head_rate: f64) -> f64 {
        match self {
            Self::NoDecay => 0.0,
            Self::SlowDecay => -rng.power(-9.0, -4.0),
            Self::FastDecay => -rng.between(2.0, 30.0),
            Self::HardReset if rng.chance(0.125) => -90.0,
            Self::HardReset | Self::BetaToTwo => -rng.power(-4.0, -2.0),
            _ => -head_rate * rng.between(0.3, 1.7),
        }
    }

    fn beta(self, rng: &mut Rng) -> f64 {
        match self {
            Self::BetaZero => 0.0,
            Self::BetaOne => 1.0,
            Self::BetaTiny => rng.power(-8.0, -4.0),
            Self::BetaToTwo if rng.chance(0.33) => 2.0,
            Self::BetaToTwo | Self::LongKeys | Self::ShortKeys => rng.between(0.0, 2.0),
            Self::RepeatedKeys | Self::NearlyRepeatedKeys if rng.chance(0.5) => 1.0,
            _ => 1.0 / (1.0 + (-rng.normal()).exp()),
        }
    }

    /// A key `[K]`; `pool` holds the keys that repeat.
    fn key(self, rng: &mut Rng, dim: usize, pool: &[Vec<f64>; 2]) -> Vec<f64> {
        let mut key = match self {
            Self::AllZeroKeys => vec![0.0; dim],
            Self::ZeroKeys if rng.chance(0.5) => vec![0.0; dim],
            Self::RepeatedKeys | Self::NearlyRepeatedKeys => pool[rng.up_to(1)].clone(),
            _ => rng.direction(dim),
        };
        let norm = match self {
            Self::NearlyRepeatedKeys => {
                key.iter_mut().for_each(|k| *k += 1e-5 * rng.normal());
                normalise(&mut key);
                1.0
            }
            Self::LongKeys => rng.power(0.0, 3.0),
            Self::ShortKeys => 1e-4,
            _ => 1.0,
        };
        key.iter_mut().for_each(|k| *k *= norm);
        key
    }

    fn value_size(self, rng: &mut Rng) -> f64 {
        match self {
            Self::HugeValues => 1e8,
            Self::TinyValues => 1e-8,
            Self::MixedValues => rng.power(-4.0, 4.0),
            _ => 1.0,
        }
    }
}

/// To what the numbers of a case are rounded before anyone sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// Not at all.
    #[default]
    F64,
    /// To f32 values, for subjects that compute in f32.
    F32,
    /// q and k to bf16 values, the rest to f32, for subjects that compute with such keys.
    Bf16Keys,
}

/// One reproducible case. It prints as the expression that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Seed of all arrays.
    pub seed: u64,
    /// What is hard about it.
    pub kind: Kind,
    /// T.
    pub tokens: usize,
    /// H.
    pub key_heads: usize,
    /// HV / H.
    pub ratio: usize,
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
}

impl Case {
    /// The sizes of the arrays.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            tokens: self.tokens,
            key_heads: self.key_heads,
            value_heads: self.key_heads.saturating_mul(self.ratio),
            key_dim: self.key_dim,
            value_dim: self.value_dim,
        }
    }

    /// A generator for the other draws of a law (cuts, orders), a function of the seed and of `salt`.
    pub(crate) fn rng(&self, salt: u64) -> Rng {
        Rng::new(Rng::new(self.seed ^ salt).next_u64())
    }

    /// The inputs of the gated delta rule, and a start state `[HV, K, V]`; other families: [`Family::inputs`].
    pub fn inputs(&self, rounding: Rounding) -> (Inputs, Vec<f64>) {
        GatedDeltaRule.inputs(self, rounding)
    }

    /// Hard inputs of a shape, and a start state `[HV, K, columns]` of the size of the values; one case in four starts from
    /// zero. Nothing is rounded.
    pub(crate) fn draw(&self, shape: &Shape) -> (Inputs, Vec<f64>) {
        let mut rng = Rng::new(self.seed);
        let Shape { sizes, columns, decay, strength, writes } = *shape;
        let Sizes { tokens, key_heads, value_heads, key_dim, value_dim } = sizes;
        let ratio = sizes.ratio();
        let scale = (key_dim.max(1) as f64).sqrt().recip();
        let mut x = Inputs { decay, writes, ..Inputs::new(sizes, vec![], vec![], vec![], scale) };
        let start_from_zero = rng.chance(0.25);
        let size = self.kind.value_size(&mut rng) / x.scale.recip();
        let state_len = Sizes { value_dim: columns, ..sizes }.state_len();
        let mut s0: Vec<f64> = (0..state_len).map(|_| size * rng.normal()).collect();
        if start_from_zero {
            s0.fill(0.0);
        }
        // Log-gates a value head and token.
        let gates = if decay == DecayKind::Diagonal { key_dim } else { 1 };
        let rates: Vec<f64> = (0..value_heads * gates).map(|_| rng.power(-3.0, 0.7)).collect();
        let pools: Vec<[Vec<f64>; 2]> =
            (0..key_heads).map(|_| [rng.direction(key_dim), rng.direction(key_dim)]).collect();
        let token_kind = |rng: &mut Rng| match self.kind {
            Kind::Anything => Kind::ALL[rng.up_to(Kind::ALL.len() - 2)],
            kind => kind,
        };
        if decay == DecayKind::Fixed {
            x.g = rates.iter().map(|&rate| token_kind(&mut rng).log_gate(&mut rng, rate)).collect();
        }
        let every_token = matches!(decay, DecayKind::Scalar | DecayKind::Diagonal);
        for row in 0..tokens * writes {
            let kind = token_kind(&mut rng);
            let (size, last) = (kind.value_size(&mut rng), row % writes == writes - 1);
            for (head, pool) in pools.iter().enumerate() {
                let key = kind.key(&mut rng, key_dim, pool);
                let norm: f64 = key.iter().map(|k| k * k).sum::<f64>().max(1.0);
                x.k.extend(key);
                if last {
                    x.q.extend(rng.direction(key_dim));
                }
                for hv in head * ratio..(head + 1) * ratio {
                    let beta = kind.beta(&mut rng) / norm;
                    if strength {
                        x.beta.push(beta);
                    }
                    if every_token && last {
                        let rates = &rates[hv * gates..(hv + 1) * gates];
                        x.g.extend(rates.iter().map(|&rate| kind.log_gate(&mut rng, rate)));
                    }
                    x.v.extend((0..value_dim).map(|_| size * rng.normal()));
                }
            }
        }
        (x, s0)
    }
}

/// What [`Case::draw`] is to draw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) sizes: Sizes,
    /// Columns of the state.
    pub(crate) columns: usize,
    pub(crate) decay: DecayKind,
    /// Whether writes have a strength.
    pub(crate) strength: bool,
    pub(crate) writes: usize,
}

/// What cases a strategy draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseParams {
    /// Largest T.
    pub max_tokens: usize,
    /// Largest H.
    pub max_key_heads: usize,
    /// Largest HV / H.
    pub max_ratio: usize,
    /// Choices of K, simplest first; none means [`DIMS`].
    pub key_dims: Vec<usize>,
    /// Choices of V, simplest first; none means [`DIMS`].
    pub value_dims: Vec<usize>,
    /// Choices of the kind, simplest first; none means [`Kind::ALL`].
    pub kinds: Vec<Kind>,
}

impl Default for CaseParams {
    /// T up to 300, H up to 2, HV / H up to 3, all dims and kinds.
    fn default() -> Self {
        Self {
            max_tokens: 300,
            max_key_heads: 2,
            max_ratio: 3,
            key_dims: DIMS.to_vec(),
            value_dims: DIMS.to_vec(),
            kinds: Kind::ALL.to_vec(),
        }
    }
}

/// Cases within `params`: mostly border lengths, sometimes any length. Shrinks over everything but the seed.
pub fn cases(params: &CaseParams) -> BoxedStrategy<Case> {
    let or = |given: &[usize]| if given.is_empty() { DIMS.to_vec() } else { given.to_vec() };
    let kinds = if params.kinds.is_empty() { Kind::ALL.to_vec() } else { params.kinds.clone() };
    let borders: Vec<usize> = BORDER_LENGTHS.into_iter().filter(|&t| t <= params.max_tokens).collect();
    let tokens = prop_oneof![3 => select(borders), 1 => 0..=params.max_tokens];
    (
        any::<u64>().no_shrink(),
        select(kinds),
        tokens,
        1..=params.max_key_heads.max(1),
        1..=params.max_ratio.max(1),
        select(or(&params.key_dims)),
        select(or(&params.value_dims)),
    )
        .prop_map(|(seed, kind, tokens, key_heads, ratio, key_dim, value_dim)| Case {
            seed,
            kind,
            tokens,
            key_heads,
            ratio,
            key_dim,
            value_dim,
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(kind: Kind, seed: u64) -> Case {
        Case { seed, kind, tokens: 40, key_heads: 2, ratio: 3, key_dim: 12, value_dim: 8 }
    }

    #[test]
    fn every_kind_gives_valid_contractive_inputs_in_both_roundings() {
        for kind in Kind::ALL {
            for seed in 0..20 {
                for rounding in [Rounding::F64, Rounding::F32] {
                    let (x, s0) = case(kind, seed).inputs(rounding);
                    x.check_with_state(&s0).unwrap();
                    for t in 0..x.sizes.tokens {
                        for hv in 0..x.sizes.value_heads {
                            let k2: f64 = x.key(t, hv).iter().map(|k| k * k).sum();
                            // Rounding a unit key and beta to f32 moves β‖k‖² by a few 6e-8.
                            assert!(x.beta[t * 6 + hv] * k2 <= 2.0 + 1e-6, "{kind:?} {seed}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn same_case_same_arrays_other_seed_other_arrays() {
        let a = case(Kind::Anything, 7).inputs(Rounding::F64);
        assert_eq!(a, case(Kind::Anything, 7).inputs(Rounding::F64));
        assert_ne!(a.0, case(Kind::Anything, 8).inputs(Rounding::F64).0);
    }

    #[test]
    fn kinds_keep_their_promises() {
        let of = |kind| case(kind, 3).inputs(Rounding::F64).0;
        assert!(of(Kind::NoDecay).g.iter().all(|&g| g == 0.0));
        assert!(of(Kind::FastDecay).g.iter().all(|&g| g <= -2.0));
        assert!(of(Kind::HardReset).g.contains(&-90.0));
        assert!(of(Kind::BetaZero).beta.iter().all(|&b| b == 0.0));
        assert!(of(Kind::BetaToTwo).beta.contains(&2.0));
        assert!(of(Kind::AllZeroKeys).k.iter().all(|&k| k == 0.0));
        let zero = of(Kind::ZeroKeys).k.chunks(12).filter(|k| k.iter().all(|&k| k == 0.0)).count();
        assert!(zero > 10 && zero < 70, "{zero} of 80 keys are zero");
        let x = of(Kind::RepeatedKeys);
        assert!((1..40).any(|t| x.key(t, 0) == x.key(0, 0)));
        assert!(of(Kind::HugeValues).v.iter().any(|v| v.abs() > 1e7));
    }

    #[test]
    fn strategies_stay_within_their_parameters_and_reach_the_borders() {
        use proptest::strategy::ValueTree;
        use proptest::test_runner::TestRunner;
        let params = CaseParams { max_tokens: 65, key_dims: vec![16], max_ratio: 1, ..CaseParams::default() };
        let mut runner = TestRunner::deterministic();
        let drawn: Vec<Case> = (0..300).map(|_| cases(&params).new_tree(&mut runner).unwrap().current()).collect();
        assert!(drawn.iter().all(|c| c.tokens <= 65 && c.key_dim == 16 && c.ratio == 1));
        for border in [0, 1, 16, 63, 64, 65] {
            assert!(drawn.iter().any(|c| c.tokens == border), "length {border} never drawn");
        }
    }
}
