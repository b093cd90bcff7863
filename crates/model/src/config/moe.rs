//! Mixture-of-experts settings that families share.

use super::error::ConfigError;
use super::fields::Fields;
use super::limits::{self, Limit};

/// How the logits of a router become a choice of experts and their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouterScoring {
    /// Softmax over all experts, the most probable ones.
    Softmax {
        /// Whether the weights of a row are divided by their sum.
        renormalise: bool,
    },
    /// The largest logits, softmax over them.
    ChosenSoftmax,
    /// Sigmoid scores; chosen by score plus bias in the groups with the largest sum of their two best.
    Sigmoid {
        /// Groups of consecutive experts; 1 for none.
        groups: usize,
        /// Groups that are kept.
        keep: usize,
        /// Whether the weights of a row are divided by their sum.
        renormalise: bool,
        /// What the weights are multiplied by.
        scale: f32,
    },
}

/// What stands between the two products of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertActivation {
    /// `silu(gate)·up`.
    SwiGlu,
    /// `max(up, 0)²`: there is no gate.
    Relu2,
}

/// The expert that every token goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    /// Its inner width.
    pub intermediate: usize,
    /// Whether its result is multiplied by the sigmoid of a gate.
    pub gated: bool,
}

/// Sizes of a mixture-of-experts layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeConfig {
    /// Experts.
    pub experts: usize,
    /// Experts that a token goes to.
    pub top: usize,
    /// Inner width of an expert.
    pub intermediate: usize,
    /// What stands between an expert's two products.
    pub activation: ExpertActivation,
    /// How experts are chosen.
    pub scoring: RouterScoring,
    /// The shared expert, if there is one.
    pub shared: Option<SharedExpert>,
}

impl MoeConfig {
    /// Checks sizes against each other and against what a router can do.
    ///
    /// # Errors
    /// [`ConfigError::Contradiction`] naming the numbers.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { experts, top, .. } = *self;
        if top > experts {
            let what = format!("a token goes to {top} experts, but there are {experts}");
            return Err(ConfigError::Contradiction { what });
        }
        if let RouterScoring::Sigmoid { groups, keep, .. } = self.scoring {
            let whole = groups > 0 && experts.is_multiple_of(groups) && (1..=groups).contains(&keep);
            let size = experts.checked_div(groups).unwrap_or_default();
            if !whole || (keep < groups && size < 2) || keep * size < top {
                let what = format!("{top} of {experts} experts are chosen in {keep} of {groups} groups");
                return Err(ConfigError::Contradiction { what });
            }
        }
        Ok(())
    }
}

/// Experts of one layer.
const EXPERTS: Limit = Limit { min: 1, max: 1024, why: "a router ranks all experts of a token in workgroup memory" };
/// Experts that a token goes to.
const TOP: Limit = Limit { min: 1, max: 64, why: "a router keeps the chosen experts of a token in workgroup memory" };

/// The experts of the Qwen families: softmax over all, SwiGLU, a shared expert behind a gate.
///
/// `renormalise` is the value of `norm_topk_prob` where it is read, and what stands for it where it is not.
pub(super) fn qwen(text: &Fields<'_>, renormalise: bool) -> Result<MoeConfig, ConfigError> {
    let config = MoeConfig {
        experts: text.size("num_experts", EXPERTS)?,
        top: text.size("num_experts_per_tok", TOP)?,
        intermediate: text.size("moe_intermediate_size", limits::WIDTH)?,
        activation: ExpertActivation::SwiGlu,
        scoring: RouterScoring::Softmax { renormalise },
        shared: Some(SharedExpert {
            intermediate: text.size("shared_expert_intermediate_size", limits::WIDTH)?,
            gated: true,
        }),
    };
    config.check()?;
    Ok(config)
}
