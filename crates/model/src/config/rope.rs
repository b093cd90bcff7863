//! Rotary settings: the current `rope_parameters` and the older top-level fields.

use super::error::ConfigError;
use super::fields::Fields;

/// Plain rotary embedding over the first dimensions of a head.
pub(super) struct Rope {
    /// Rotated dimensions of a head: even, at least 2, at most the head.
    pub(super) dims: usize,
    /// The base of the frequencies, `theta^(-2i/dims)`.
    pub(super) theta: f64,
}

/// Reads the rotary settings of heads of `head_dim`. `rope_parameters` wins over a top-level field, as in the
/// reference implementation; `default_fraction` is the class default of the family.
///
/// The three position streams of multimodal rotary embedding are equal for text, so `mrope_*` needs no reading.
pub(super) fn read(text: &Fields<'_>, head_dim: usize, default_fraction: f64) -> Result<Rope, ConfigError> {
    let inner = text.opt_object("rope_parameters", "rope_parameters.")?;
    let old = text.opt_object("rope_scaling", "rope_scaling.")?;
    for object in [&inner, &old].into_iter().flatten() {
        for name in ["rope_type", "type"] {
            if let Some(kind) = object.opt_str(name)?.filter(|k| *k != "default") {
                return Err(ConfigError::Unsupported {
                    field: object.path(name),
                    value: kind.into(),
                    reason: "only the default rotary embedding is implemented".into(),
                });
            }
        }
    }
    let pick = |name: &str| -> Result<Option<f64>, ConfigError> {
        match inner.map(|o| o.opt_number(name)).transpose()?.flatten() {
            Some(v) => Ok(Some(v)),
            None => text.opt_number(name),
        }
    };
    let out_of_range = |name: &str, value: f64, allowed: &str, why| ConfigError::OutOfRange {
        field: text.path(name),
        value: value.to_string(),
        allowed: allowed.into(),
        why,
    };

    let theta = pick("rope_theta")?.ok_or_else(|| ConfigError::Missing { field: text.path("rope_theta") })?;
    if !(theta.is_finite() && theta > 0.0) {
        return Err(out_of_range("rope_theta", theta, "finite and positive", "it is raised to fractional powers"));
    }
    let fraction = pick("partial_rotary_factor")?.unwrap_or(default_fraction);
    if !(fraction > 0.0 && fraction <= 1.0) {
        let why = "it is the rotated part of a head";
        return Err(out_of_range("partial_rotary_factor", fraction, "above 0 and at most 1", why));
    }
    // Truncation, as the reference computes it. The product lies in [0, head_dim], so the cast is exact.
    let dims = (head_dim as f64 * fraction) as usize;
    if dims < 2 || !dims.is_multiple_of(2) || dims > head_dim {
        return Err(ConfigError::Contradiction {
            what: format!(
                "partial_rotary_factor {fraction} of head_dim {head_dim} gives {dims} rotated dimensions, \
                 but they come in pairs"
            ),
        });
    }
    Ok(Rope { dims, theta })
}
