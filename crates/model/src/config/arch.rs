//! The architectures: one table from the name in `architectures` to the reader of its family.

use super::ModelConfig;
use super::error::ConfigError;
use super::fields::Fields;
use super::qwen3_5::{self, Qwen35Config};

/// The sizes that only one family of stacks has.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// Qwen3.5 and Qwen3-Next: gated delta-rule layers and gated softmax attention, with dense MLPs or experts.
    Qwen35(Qwen35Config),
}

/// Reads the config of one family.
pub(super) type Parse = fn(&Fields<'_>, &str) -> Result<ModelConfig, ConfigError>;

enum Entry {
    Ready(Parse),
    /// A network that is known by name only; the text says what is missing.
    Missing(&'static str),
}

const NO_MOE: &str = "mixture-of-experts layers are not implemented";
const NO_STACK: &str = "its stack is not implemented";

/// A new stack adds a line here and a variant to [`Family`].
const TABLE: &[(&str, Entry)] = &[
    ("Qwen3_5ForConditionalGeneration", Entry::Ready(qwen3_5::nested)),
    ("Qwen3_5ForCausalLM", Entry::Ready(qwen3_5::flat)),
    ("Qwen3_5MoeForConditionalGeneration", Entry::Ready(qwen3_5::nested_moe)),
    ("Qwen3_5MoeForCausalLM", Entry::Ready(qwen3_5::flat_moe)),
    ("Qwen3NextForCausalLM", Entry::Ready(qwen3_5::next)),
    ("BailingMoeLinearV2ForCausalLM", Entry::Missing(NO_MOE)),
    ("KimiLinearForCausalLM", Entry::Missing(NO_MOE)),
    ("Mamba2ForCausalLM", Entry::Missing(NO_STACK)),
    ("GLAForCausalLM", Entry::Missing(NO_STACK)),
    ("RetNetForCausalLM", Entry::Missing(NO_STACK)),
];

/// The architectures that can be run.
#[must_use]
pub fn known_architectures() -> Vec<&'static str> {
    TABLE.iter().filter(|(_, e)| matches!(e, Entry::Ready(_))).map(|(name, _)| *name).collect()
}

/// The first entry of `architectures` that can be run, and its reader.
pub(super) fn select<'a>(root: &Fields<'a>) -> Result<(&'a str, Parse), ConfigError> {
    let names = root
        .opt_strings("architectures")?
        .filter(|names| !names.is_empty())
        .ok_or_else(|| ConfigError::Missing { field: root.path("architectures") })?;
    let mut missing = None;
    for name in &names {
        match TABLE.iter().find(|(known, _)| known == name) {
            Some((_, Entry::Ready(parse))) => return Ok((name, *parse)),
            Some((_, Entry::Missing(reason))) => missing = missing.or(Some((*name, *reason))),
            None => {}
        }
    }
    let known = known_architectures().join(", ");
    Err(match missing {
        Some((name, reason)) => ConfigError::Unsupported {
            field: root.path("architectures"),
            value: name.into(),
            reason: format!("{reason}; supported are {known}"),
        },
        None => ConfigError::UnknownArchitecture { found: names.join(", "), known },
    })
}
