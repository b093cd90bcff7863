//! Tensor names: published families, multimodal wrappers and text-only exports differ by prefix and by the embedding's name.

use super::Weights;
use super::error::WeightsError;

/// Prefixes of tensors that a text stack does not read: the draft head and the vision tower.
pub const IGNORED_PREFIXES: &[&str] = &["mtp.", "model.visual."];

/// The schemes in use: a prefix, and the embedding behind it. Inside the wrapper of a multimodal release, text only, GLA and
/// RetNet, Ring, Mamba-2 and Nemotron-H as converted, Mamba-2 as first published.
const SCHEMES: [(&str, &str); 6] = [
    ("model.language_model.", "embed_tokens.weight"),
    ("model.", "embed_tokens.weight"),
    ("model.", "embeddings.weight"),
    ("model.", "word_embeddings.weight"),
    ("backbone.", "embeddings.weight"),
    ("backbone.", "embedding.weight"),
];

/// Builds the full names of a checkpoint's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightNames {
    prefix: &'static str,
    embedding: &'static str,
}

impl WeightNames {
    /// Finds the scheme by the embedding, which every text stack has.
    ///
    /// # Errors
    /// [`WeightsError::NoEmbedding`] if no scheme fits, [`WeightsError::TwoEmbeddings`] if more than one does.
    pub fn detect(weights: &Weights) -> Result<Self, WeightsError> {
        let mut found = SCHEMES.into_iter().filter(|(p, e)| weights.contains(&format!("{p}{e}")));
        let origin = || weights.origin.clone();
        match (found.next(), found.next()) {
            (Some((prefix, embedding)), None) => Ok(Self { prefix, embedding }),
            (Some((first, _)), Some((second, _))) => {
                Err(WeightsError::TwoEmbeddings { origin: origin(), first, second })
            }
            (None, _) => {
                let looked_for = SCHEMES.map(|(p, e)| format!("{p}{e}")).join(", ");
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
        self.top(self.embedding)
    }

    /// The output head, `[vocab, hidden]`: at the top in every scheme, absent when it is tied to the embedding.
    #[must_use]
    pub fn lm_head(&self) -> String {
        "lm_head.weight".into()
    }
}
