//! `generation_config.json`: only the ids that start and end a text.

use super::ModelConfig;
use super::error::ConfigError;
use super::fields::Fields;

/// Adds the ids of a generation config to `config`.
pub(super) fn merge(fields: &Fields<'_>, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let eos = fields.token_ids("eos_token_id", config.vocab)?;
    extend(&mut config.eos, &eos);
    if config.bos.is_none() {
        config.bos = fields.token_ids("bos_token_id", config.vocab)?.first().copied();
    }
    Ok(())
}

/// Adds the ids that are not there yet.
pub(super) fn extend(ids: &mut Vec<u32>, more: &[u32]) {
    for &id in more {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
}
