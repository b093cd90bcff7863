//! The families, one a file. To add one: a file that implements [`Family`], and its line in [`all`].
//!
//! | family | decay | update | before it | what is special |
//! |---|---|---|---|---|
//! | [`LinearAttention`] | none | add | | optional normaliser: a value column of ones |
//! | [`RetNet`] | fixed | add | RoPE | |
//! | [`Lightning`] | fixed | add | RoPE (Ring) | slope schedules by head and layer |
//! | [`SimpleGla`] | scalar | add | | |
//! | [`Mamba2`] | scalar | add | conv 4 | groups, `D`, write strength `dt` |
//! | [`Gla`] | diagonal | add | | |
//! | [`DeltaRule`] | none | delta | conv 4 | |
//! | [`GatedDeltaRule`] | scalar | delta | conv 4 | value-head groups, beta up to 2 |
//! | [`Kda`] | diagonal | delta | conv 4 | |
//! | [`Rwkv7`] | diagonal | delta | token shift | diagonal plus rank one |
//! | [`GatedDeltaProduct`] | scalar | delta | conv 4 | several Householder steps a token |
//! | [`Mamba1`] | diagonal | add | conv 4 | a channel is a head with one value |
//! | [`RgLru`] | diagonal | add | conv 4 | a channel is a head of one key dim and one value |
//! | [`Hgrn2`] | diagonal | add | | `k = 1 − e^g` |
//! | [`Mlstm`] | scalar | add | | normaliser and running maximum: a log-scaled state |

pub mod delta_rule;
pub mod gated_delta_product;
pub mod gated_delta_rule;
pub mod gla;
pub mod hgrn2;
pub mod kda;
pub mod lightning;
pub mod linear_attention;
pub mod mamba1;
pub mod mamba2;
pub mod mlstm;
pub mod retnet;
pub mod rg_lru;
pub mod rwkv7;
pub mod simple_gla;

pub use delta_rule::DeltaRule;
pub use gated_delta_product::GatedDeltaProduct;
pub use gated_delta_rule::GatedDeltaRule;
pub use gla::Gla;
pub use hgrn2::Hgrn2;
pub use kda::Kda;
pub use lightning::Lightning;
pub use linear_attention::LinearAttention;
pub use mamba1::Mamba1;
pub use mamba2::Mamba2;
pub use mlstm::Mlstm;
pub use retnet::RetNet;
pub use rg_lru::RgLru;
pub use rwkv7::Rwkv7;
pub use simple_gla::SimpleGla;

use crate::family::Family;

/// All families.
pub fn all() -> &'static [&'static dyn Family] {
    &[
        &LinearAttention,
        &RetNet,
        &Lightning,
        &SimpleGla,
        &Mamba2,
        &Gla,
        &DeltaRule,
        &GatedDeltaRule,
        &Kda,
        &Rwkv7,
        &GatedDeltaProduct::<2>,
        &GatedDeltaProduct::<3>,
        &Mamba1,
        &RgLru,
        &Hgrn2,
        &Mlstm,
    ]
}

/// The family of a name.
pub fn by_name(name: &str) -> Option<&'static dyn Family> {
    all().iter().copied().find(|family| family.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::DecayKind;
    use crate::inputs::{Extra, Heads, Inputs};
    use crate::sizes::Sizes;
    use crate::strategy::{Case, Kind, Rounding};
    use crate::{AlgebraError, Transition};

    fn case(kind: Kind, seed: u64) -> Case {
        Case { seed, kind, tokens: 12, key_heads: 2, ratio: 2, key_dim: 4, value_dim: 3 }
    }

    #[test]
    fn names_are_unique_words_and_find_their_family() {
        for family in all() {
            let name = family.name();
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            assert_eq!(all().iter().filter(|f| f.name() == name).count(), 1, "{name}");
            assert!(by_name(name).is_some());
        }
        assert!(by_name("attention").is_none());
    }

    #[test]
    fn every_kind_gives_valid_inputs_of_every_family() {
        for family in all() {
            for kind in Kind::ALL {
                for rounding in [Rounding::F64, Rounding::F32] {
                    let (x, s0) = family.inputs(&case(kind, 5), rounding);
                    family.check_with_state(&x, &s0).unwrap();
                    assert_eq!(x.sizes, family.sizes(&case(kind, 5)));
                }
            }
        }
    }

    #[test]
    fn transitions_come_in_their_smallest_form() {
        for family in all() {
            let (x, _) = family.inputs(&case(Kind::Typical, 2), Rounding::F64);
            for operator in family.operator(&x, 2..9).unwrap() {
                let fits = match (family.update(), family.decay()) {
                    (crate::UpdateKind::Delta, _) => matches!(operator.transition(), Transition::Dense { .. }),
                    (_, DecayKind::None) => *operator.transition() == Transition::IDENTITY,
                    (_, DecayKind::Diagonal) => matches!(operator.transition(), Transition::Diagonal { .. }),
                    _ => matches!(operator.transition(), Transition::Scalar { .. }),
                };
                assert!(fits, "{}: {:?}", family.name(), operator.transition());
            }
        }
    }

    /// A wrong shape, a gate above 0, NaN and infinity anywhere, zero heads, inputs of another family: typed errors from
    /// every family, never a panic.
    #[test]
    fn bad_input_is_a_typed_error_in_every_family() {
        use AlgebraError::*;
        for family in all() {
            let (good, s0) = family.inputs(&case(Kind::Typical, 3), Rounding::F64);
            let error = |change: &dyn Fn(&mut Inputs)| {
                let mut x = good.clone();
                change(&mut x);
                let by_operator = family.operator(&x, 0..x.sizes.tokens).unwrap_err();
                assert_eq!(by_operator.to_string(), family.run(&x, &s0).unwrap_err().to_string());
                assert!(family.step_norms(&x).is_err() && family.transition_bound(&x).is_err());
                by_operator
            };
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(matches!(error(&|x| x.q[1] = bad), NonFinite { index: 1, .. }));
                assert!(matches!(error(&|x| x.k[1] = bad), NonFinite { index: 1, .. }));
                assert!(matches!(error(&|x| x.v[1] = bad), NonFinite { index: 1, .. }));
                assert!(matches!(error(&|x| x.scale = bad), NonFinite { .. }));
                if family.decay() != DecayKind::None {
                    assert!(matches!(error(&|x| x.g[1] = bad), NonFinite { index: 1, .. }));
                }
                if family.has_strength() {
                    assert!(matches!(error(&|x| x.beta[1] = bad), NonFinite { index: 1, .. }));
                }
                for i in 0..good.extras.len() {
                    assert!(matches!(error(&|x| x.extras[i].values[0] = bad), NonFinite { .. }));
                }
                let mut state = s0.clone();
                state[0] = bad;
                assert!(matches!(family.run(&good, &state), Err(NonFinite { what: "state", .. })));
            }
            if family.decay() != DecayKind::None {
                assert!(matches!(error(&|x| x.g[1] = 1e-9), PositiveLogGate { index: 1, .. }));
                assert!(matches!(error(&|x| x.g.truncate(1)), Length { .. }));
            }
            assert!(matches!(error(&|x| x.k.truncate(1)), Length { .. }));
            assert!(matches!(family.run(&good, &s0[1..]), Err(Length { .. })));
            for zero in [|s: &mut Sizes| s.key_heads = 0, |s: &mut Sizes| s.value_heads = 0] {
                assert!(matches!(error(&|x| zero(&mut x.sizes)), Dimension { value: 0, .. }));
            }
            // What another family has.
            let strengths = if family.has_strength() { vec![] } else { vec![0.5; good.v.len() / good.sizes.value_dim] };
            assert!(matches!(error(&|x| x.beta = strengths.clone()), Layout { what: "beta", .. }));
            let extra = Extra { name: "other", heads: Heads::Key, dim: 0, idle: 0.0, values: vec![] };
            assert!(matches!(error(&|x| x.extras.push(extra.clone())), Layout { what: "extras", .. }));
            for i in 0..good.extras.len() {
                let mut x = good.clone();
                (x.extras[i].dim, x.extras[i].values) = (0, vec![]);
                assert!(matches!(family.run(&x, &s0), Err(Layout { .. })));
            }
            if family.decay() != DecayKind::Diagonal {
                let g = vec![-0.1; good.sizes.tokens * good.sizes.value_heads * good.sizes.key_dim];
                let diagonal = |x: &mut Inputs| (x.g, x.decay) = (g.clone(), DecayKind::Diagonal);
                assert!(matches!(error(&diagonal), Layout { what: "decay", .. }));
            } else {
                assert!(matches!(error(&|x| (x.g, x.decay) = (vec![], DecayKind::None)), Layout { what: "decay", .. }));
            }
            assert!(matches!(family.operator(&good, 3..99), Err(TokenRange { .. })));
        }
    }
}
