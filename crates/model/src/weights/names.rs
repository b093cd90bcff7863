//! Tensor names: published multimodal files and text-only exports differ by a prefix.

use super::Weights;
use super::error::WeightsError;

/// Prefixes of tensors that a text stack does not read: the draft head and the vision tower.
pub const IGNORED_PREFIXES: &[&str] = &["mtp.", "model.visual."];

/// The prefixes in use: inside the wrapper of a multimodal release, and text only.
const PREFIXES: [&str; 2] = ["model.language_model.", "model."];
const EMBEDDING: &str = "embed_tokens.weight";

/// Builds the full names of a checkpoint's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightNames {
    prefix: &'static str,
}

impl WeightNames {
    /// Finds the prefix by the embedding, which every text stack has.
    ///
    /// # Errors
    /// [`WeightsError::NoEmbedding`] if no prefix fits, [`WeightsError::TwoEmbeddings`] if more than one does.
    pub fn detect(weights: &Weights) -> Result<Self, WeightsError> {
        let mut found = PREFIXES.into_iter().filter(|p| weights.contains(&format!("{p}{EMBEDDING}")));
        let origin = || weights.origin.clone();
        match (found.next(), found.next()) {
            (Some(prefix), None) => Ok(Self { prefix }),
            (Some(first), Some(second)) => Err(WeightsError::TwoEmbeddings { origin: origin(), first, second }),
            (None, _) => {
                let looked_for = PREFIXES.map(|p| format!("{p}{EMBEDDING}")).join(", ");
                Err(WeightsError::NoEmbedding { origin: origin(), looked_for })
            }
        }
    }

    /// What every name of the text stack but the output head begins with, including the dot.
    #[must_use]
    pub const fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// The name of a tensor outside the layers, such as `norm.weight`.
    #[must_use]
    pub fn top(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// The name of a tensor of layer `layer`, such as `mlp.up_proj.weight`.
    #[must_use]
    pub fn layer(&self, layer: usize, suffix: &str) -> String {
        format!("{}layers.{layer}.{suffix}", self.prefix)
    }

    /// The embedding, `[vocab, hidden]`.
    #[must_use]
    pub fn embedding(&self) -> String {
        self.top(EMBEDDING)
    }

    /// The output head, `[vocab, hidden]`: at the top in both schemes, absent when it is tied to the embedding.
    #[must_use]
    pub fn lm_head(&self) -> String {
        "lm_head.weight".into()
    }
}
