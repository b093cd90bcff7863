//! Model configurations: `config.json` read, checked and reduced to what a stack needs.
//!
//! [`ModelConfig`] holds what every stack has (width, vocabulary, the list of layers, stop tokens); the sizes of one
//! family sit in its [`Family`] value. The family is chosen by `architectures`, never by `model_type`: one `model_type`
//! names different networks in different releases. All sizes are checked against [`limits`] and against each other, so
//! that later products of sizes cannot overflow.

mod arch;
mod error;
mod fields;
mod fp8;
mod generation;
pub mod limits;
mod moe;
mod qwen3_5;
mod rope;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::Value;

pub use arch::{Family, known_architectures};
pub use error::ConfigError;
pub use fp8::Fp8Config;
pub use moe::{ExpertActivation, MoeConfig, RouterScoring, SharedExpert};
pub use qwen3_5::{LinearDims, MlpConfig, Projections, Qwen35Config};

use fields::Fields;

/// The token mixer of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// A recurrent layer with a state of fixed size.
    Linear,
    /// Softmax attention over all earlier tokens.
    Full,
}

/// A checked model configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The entry of `architectures` that chose the family.
    pub architecture: String,
    /// Width of the residual stream, `d`.
    pub hidden_size: usize,
    /// Rows of the embedding and of the output head (padded; a tokenizer may know fewer ids).
    pub vocab: usize,
    /// The mixer of every layer, first layer first.
    pub layers: Vec<LayerKind>,
    /// The epsilon added to the mean square in every RMS norm.
    pub eps: f32,
    /// Whether the output head is the embedding matrix.
    pub tied: bool,
    /// The longest sequence that the model was made for, in tokens.
    pub max_position_embeddings: usize,
    /// The begin-of-sequence id, where the files name one. Whether a prompt starts with it is the tokenizer's affair.
    pub bos: Option<u32>,
    /// Ids that end an answer: the union of `config.json` and `generation_config.json`, without repeats. May be empty.
    pub eos: Vec<u32>,
    /// Which weights are FP8, if any are.
    pub fp8: Option<Fp8Config>,
    /// The sizes of the family.
    pub family: Family,
}

impl ModelConfig {
    /// Reads `config.json` and, where there is one, `generation_config.json` in `dir`.
    ///
    /// # Errors
    /// [`ConfigError`] for an unreadable file, broken JSON, an unknown architecture or an impossible value; it names
    /// the field.
    pub fn from_dir(dir: &Path) -> Result<Self, ConfigError> {
        let config = read(&dir.join("config.json"))?;
        let generation_path = dir.join("generation_config.json");
        let generation = match std::fs::symlink_metadata(&generation_path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            _ => Some(read(&generation_path)?),
        };
        Self::from_json(&config, generation.as_deref())
    }

    /// Reads the text of a `config.json` and of an optional `generation_config.json`.
    ///
    /// # Errors
    /// As [`ModelConfig::from_dir`], without the file errors.
    pub fn from_json(config: &str, generation: Option<&str>) -> Result<Self, ConfigError> {
        let value: Value =
            serde_json::from_str(config).map_err(|source| ConfigError::Json { file: "config.json", source })?;
        let root = Fields::root(&value, "config.json")?;
        let (name, parse) = arch::select(&root)?;
        let mut out = parse(&root, name)?;
        if let Some(text) = generation {
            let value: Value = serde_json::from_str(text)
                .map_err(|source| ConfigError::Json { file: "generation_config.json", source })?;
            generation::merge(&Fields::root(&value, "generation_config.json")?, &mut out)?;
        }
        Ok(out)
    }

    /// The sizes of a Qwen3.5 stack, if this is one.
    #[must_use]
    pub fn qwen3_5(&self) -> Option<&Qwen35Config> {
        match &self.family {
            Family::Qwen35(c) => Some(c),
        }
    }

    /// How many layers are of `kind`.
    #[must_use]
    pub fn count(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|&&k| k == kind).count()
    }
}

/// Reads a small text file, refusing one that no config could be.
fn read(path: &Path) -> Result<String, ConfigError> {
    let wrap = |source| ConfigError::Read { path: path.to_owned(), source };
    let meta = std::fs::metadata(path).map_err(wrap)?;
    if meta.len() > limits::CONFIG_BYTES {
        return Err(ConfigError::FileTooLarge { path: path.to_owned(), bytes: meta.len(), max: limits::CONFIG_BYTES });
    }
    std::fs::read_to_string(path).map_err(wrap)
}
