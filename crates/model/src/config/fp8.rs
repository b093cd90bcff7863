//! `quantization_config`: FP8 weights with a scale for each block.

use super::error::ConfigError;
use super::fields::Fields;

/// Which weights of a model are FP8 (e4m3, a scale for each block of 128x128 in `<name>_scale_inv`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fp8Config {
    /// Modules whose weights are not: names of tensors without their last part.
    pub not_converted: Vec<String>,
}

impl Fp8Config {
    /// Whether the tensor `name` may be FP8: neither its module nor one around it is listed.
    #[must_use]
    pub fn converts(&self, name: &str) -> bool {
        let inside = |module: &String| name.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with('.'));
        !self.not_converted.iter().any(inside)
    }
}

/// The field at the top level or in the text config; anything but FP8 in blocks of 128x128 is refused by its name.
pub(super) fn read(root: &Fields<'_>, text: &Fields<'_>) -> Result<Option<Fp8Config>, ConfigError> {
    for fields in [root, text] {
        if let Some(q) = fields.opt_object("quantization_config", "quantization_config.")? {
            return parse(fields, &q).map(Some);
        }
    }
    Ok(None)
}

fn parse(outer: &Fields<'_>, q: &Fields<'_>) -> Result<Fp8Config, ConfigError> {
    let unsupported = |field: String, value: &str, reason: &str| {
        Err(ConfigError::Unsupported { field, value: value.chars().take(64).collect(), reason: reason.into() })
    };
    match q.opt_str("quant_method")? {
        Some("fp8") => {}
        other => {
            let reason = "quantised weights are read as fp8 alone";
            return unsupported(outer.path("quantization_config"), other.unwrap_or("unnamed"), reason);
        }
    }
    if let Some(other) = q.opt_str("fmt")?.filter(|fmt| *fmt != "e4m3") {
        return unsupported(q.path("fmt"), other, "only e4m3 is read");
    }
    // Activations are not rounded here, which is what a dynamic scheme approximates; fixed factors would be tensors.
    if let Some(other) = q.opt_str("activation_scheme")?.filter(|scheme| *scheme != "dynamic") {
        return unsupported(q.path("activation_scheme"), other, "only dynamic is read");
    }
    match q.opt_sizes("weight_block_size")? {
        Some(sizes) if sizes == [128, 128] => {}
        other => {
            let found = other.map_or_else(|| "absent".to_owned(), |sizes| format!("{sizes:?}"));
            return unsupported(q.path("weight_block_size"), &found, "only blocks of [128, 128] are read");
        }
    }
    let names = q.opt_strings("modules_to_not_convert")?.unwrap_or_default();
    Ok(Fp8Config { not_converted: names.into_iter().map(str::to_owned).collect() })
}
