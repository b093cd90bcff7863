//! Qwen3.5, dense and mixture of experts: the text config at the top level, or inside the wrapper of the multimodal release.
//! Qwen3-Next: the same stack, stored otherwise.

use super::arch::Family;
use super::error::ConfigError;
use super::fields::Fields;
use super::fp8;
use super::generation::extend;
use super::limits;
use super::moe::{self, MoeConfig};
use super::rope;
use super::{LayerKind, ModelConfig};

/// Sizes of the gated delta-rule layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearDims {
    /// Key heads, `H`.
    pub k_heads: usize,
    /// Value heads, `HV`: a multiple of `k_heads`; value head `j` reads key head `j / (HV / H)`.
    pub v_heads: usize,
    /// Size of a key head, `K`.
    pub k_dim: usize,
    /// Size of a value head, `V`.
    pub v_dim: usize,
    /// Taps of the causal convolution over q, k and v.
    pub conv_kernel: usize,
}

impl LinearDims {
    /// Width of all queries, or of all keys: `H·K`.
    #[must_use]
    pub const fn key_width(&self) -> usize {
        self.k_heads * self.k_dim
    }

    /// Width of all values: `HV·V`.
    #[must_use]
    pub const fn value_width(&self) -> usize {
        self.v_heads * self.v_dim
    }

    /// Channels of the convolution, in the order q, k, v: `2·H·K + HV·V`.
    #[must_use]
    pub const fn conv_channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }
}

/// What follows the mixer of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MlpConfig {
    /// A SwiGLU MLP of this inner width.
    Dense(usize),
    /// A mixture of experts.
    Moe(MoeConfig),
}

/// How the projections of a recurrent layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projections {
    /// `in_proj_qkv` (all q, all k, all v), `in_proj_z`, `in_proj_a`, `in_proj_b`.
    Separate,
    /// `in_proj_qkvz` and `in_proj_ba`: for each key head its q, k, v and z, and its b and a.
    Interleaved,
}

/// Sizes of a Qwen3.5 or Qwen3-Next stack.
///
/// The attention output gate is always on and the activation always SiLU; a config that says otherwise is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Qwen35Config {
    /// What follows the mixer of each layer.
    pub mlps: Vec<MlpConfig>,
    /// How the projections of recurrent layers are stored.
    pub projections: Projections,
    /// Query heads of the attention layers.
    pub heads: usize,
    /// Key and value heads of the attention layers; divides `heads`.
    pub kv_heads: usize,
    /// Size of an attention head.
    pub head_dim: usize,
    /// Rotated dimensions of an attention head: even, the first ones of the head.
    pub rot_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Sizes of the recurrent layers.
    pub linear: LinearDims,
}

/// The period of full-attention layers, where a file has neither `layer_types` nor an interval (the class default).
const DEFAULT_INTERVAL: usize = 4;
/// The rotated part of a head, where a file does not say (the class default).
const DEFAULT_ROTARY: f64 = 0.25;

/// Which MLPs a config describes.
#[derive(Clone, Copy)]
enum Kind {
    Dense,
    Moe,
    Next,
}

impl Kind {
    /// `model_type` of the wrapper and of the text config.
    const fn model_types(self) -> [&'static str; 2] {
        match self {
            Self::Dense => ["qwen3_5", "qwen3_5_text"],
            Self::Moe => ["qwen3_5_moe", "qwen3_5_moe_text"],
            Self::Next => ["qwen3_next"; 2],
        }
    }
}

/// `Qwen3_5ForCausalLM`: the text config at the top level.
pub(super) fn flat(root: &Fields<'_>, name: &str) -> Result<ModelConfig, ConfigError> {
    read_flat(root, name, Kind::Dense)
}

/// `Qwen3_5ForConditionalGeneration`: the text config under `text_config`.
pub(super) fn nested(root: &Fields<'_>, name: &str) -> Result<ModelConfig, ConfigError> {
    read_nested(root, name, Kind::Dense)
}

/// `Qwen3_5MoeForCausalLM`.
pub(super) fn flat_moe(root: &Fields<'_>, name: &str) -> Result<ModelConfig, ConfigError> {
    read_flat(root, name, Kind::Moe)
}

/// `Qwen3_5MoeForConditionalGeneration`.
pub(super) fn nested_moe(root: &Fields<'_>, name: &str) -> Result<ModelConfig, ConfigError> {
    read_nested(root, name, Kind::Moe)
}

/// `Qwen3NextForCausalLM`.
pub(super) fn next(root: &Fields<'_>, name: &str) -> Result<ModelConfig, ConfigError> {
    read_flat(root, name, Kind::Next)
}

fn read_flat(root: &Fields<'_>, name: &str, kind: Kind) -> Result<ModelConfig, ConfigError> {
    expect_model_type(root, name, kind.model_types()[1])?;
    let tied = root.opt_bool("tie_word_embeddings")?.unwrap_or(false);
    read(root, root, name, tied, kind)
}

/// `tie_word_embeddings` counts at the top level; the inner one is read only where the outer one is absent.
fn read_nested(root: &Fields<'_>, name: &str, kind: Kind) -> Result<ModelConfig, ConfigError> {
    let [outer, inner] = kind.model_types();
    expect_model_type(root, name, outer)?;
    let text = root
        .opt_object("text_config", "text_config.")?
        .ok_or_else(|| ConfigError::Missing { field: root.path("text_config") })?;
    expect_model_type(&text, name, inner)?;
    let tied = match root.opt_bool("tie_word_embeddings")? {
        Some(tied) => tied,
        None => text.opt_bool("tie_word_embeddings")?.unwrap_or(false),
    };
    read(root, &text, name, tied, kind)
}

fn expect_model_type(fields: &Fields<'_>, name: &str, expected: &str) -> Result<(), ConfigError> {
    match fields.opt_str("model_type")? {
        Some(found) if found != expected => Err(ConfigError::Contradiction {
            what: format!("{} is {found}, but {name} has {expected} there", fields.path("model_type")),
        }),
        _ => Ok(()),
    }
}

fn read(root: &Fields<'_>, text: &Fields<'_>, name: &str, tied: bool, kind: Kind) -> Result<ModelConfig, ConfigError> {
    refuse_unsupported(text)?;
    let hidden_size = text.size("hidden_size", limits::HIDDEN)?;
    let vocab = text.size("vocab_size", limits::VOCAB)?;
    let count = text.size("num_hidden_layers", limits::LAYERS)?;
    let layers = layer_kinds(text, count)?;
    let mlps = match kind {
        Kind::Dense => vec![dense(text)?; count],
        // The reference renormalises whatever `norm_topk_prob` says.
        Kind::Moe => vec![MlpConfig::Moe(moe::qwen(text, true)?); count],
        Kind::Next => some_sparse(text, count)?,
    };
    let projections = match kind {
        Kind::Dense | Kind::Moe => Projections::Separate,
        Kind::Next => Projections::Interleaved,
    };
    let heads = text.size("num_attention_heads", limits::HEADS)?;
    let kv_heads = text.size("num_key_value_heads", limits::HEADS)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(ConfigError::Contradiction {
            what: format!("num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"),
        });
    }
    let head_dim = text.size("head_dim", limits::HEAD_DIM)?;
    let rope = rope::read(text, head_dim, DEFAULT_ROTARY)?;
    let linear = linear_dims(text)?;
    // Queries and their gates share one projection.
    check_width("num_attention_heads · head_dim · 2", 2 * heads * head_dim)?;
    check_width("convolution channels of a linear layer", linear.conv_channels())?;

    let mut eos = Vec::new();
    extend(&mut eos, &text.token_ids("eos_token_id", vocab)?);
    extend(&mut eos, &root.token_ids("eos_token_id", vocab)?);
    let bos = match text.token_ids("bos_token_id", vocab)?.first() {
        Some(&id) => Some(id),
        None => root.token_ids("bos_token_id", vocab)?.first().copied(),
    };
    Ok(ModelConfig {
        architecture: name.into(),
        hidden_size,
        vocab,
        layers,
        eps: eps(text)?,
        tied,
        max_position_embeddings: text.size("max_position_embeddings", limits::POSITIONS)?,
        bos,
        eos,
        fp8: fp8::read(root, text)?,
        family: Family::Qwen35(Qwen35Config {
            mlps,
            projections,
            heads,
            kv_heads,
            head_dim,
            rot_dim: rope.dims,
            rope_theta: rope.theta,
            linear,
        }),
    })
}

/// The MLP of dense stacks, which must have no experts.
fn dense(text: &Fields<'_>) -> Result<MlpConfig, ConfigError> {
    if text.get("num_experts").is_some_and(|n| n.as_u64() != Some(0)) {
        return Err(ConfigError::Unsupported {
            field: text.path("num_experts"),
            value: "not zero".into(),
            reason: "this architecture has no experts".into(),
        });
    }
    Ok(MlpConfig::Dense(text.size("intermediate_size", limits::WIDTH)?))
}

/// Qwen3-Next: layer `i` has experts iff `(i + 1) % decoder_sparse_step == 0`, unless `mlp_only_layers` lists it.
fn some_sparse(text: &Fields<'_>, count: usize) -> Result<Vec<MlpConfig>, ConfigError> {
    let step = text.opt_size("decoder_sparse_step", limits::INTERVAL)?.unwrap_or(1);
    let only = text.opt_sizes("mlp_only_layers")?.unwrap_or_default();
    if let Some(layer) = only.iter().find(|&&layer| layer >= count as u64) {
        return Err(ConfigError::Contradiction {
            what: format!("{} has {layer}, but num_hidden_layers is {count}", text.path("mlp_only_layers")),
        });
    }
    let sparse = |i: usize| (i + 1).is_multiple_of(step) && !only.contains(&(i as u64));
    let renormalise = text.opt_bool("norm_topk_prob")?.unwrap_or(true);
    let moe = (0..count).any(sparse).then(|| moe::qwen(text, renormalise)).transpose()?;
    let mlp = |i: usize| match moe.filter(|_| sparse(i)) {
        Some(moe) => Ok(MlpConfig::Moe(moe)),
        None => Ok(MlpConfig::Dense(text.size("intermediate_size", limits::WIDTH)?)),
    };
    (0..count).map(mlp).collect()
}

/// Settings that would change the mathematics, or the storage, and are not implemented.
fn refuse_unsupported(text: &Fields<'_>) -> Result<(), ConfigError> {
    let unsupported = |fields: &Fields<'_>, name: &str, value: &str, reason: &str| {
        Err(ConfigError::Unsupported { field: fields.path(name), value: value.into(), reason: reason.into() })
    };
    match text.opt_str("hidden_act")? {
        None | Some("silu") => {}
        Some(other) => return unsupported(text, "hidden_act", other, "only silu is implemented"),
    }
    match text.opt_str("output_gate_type")? {
        None | Some("silu" | "swish") => {}
        Some(other) => return unsupported(text, "output_gate_type", other, "only silu is implemented"),
    }
    if text.opt_bool("attn_output_gate")? == Some(false) {
        return unsupported(text, "attn_output_gate", "false", "only gated attention is implemented");
    }
    if text.opt_bool("attention_bias")? == Some(true) {
        return unsupported(text, "attention_bias", "true", "projections have no bias here");
    }
    Ok(())
}

/// `layer_types` where the file has them; else layer `i` is full iff `(i + 1) % full_attention_interval == 0`.
fn layer_kinds(text: &Fields<'_>, count: usize) -> Result<Vec<LayerKind>, ConfigError> {
    let Some(names) = text.opt_strings("layer_types")? else {
        let every = text.opt_size("full_attention_interval", limits::INTERVAL)?.unwrap_or(DEFAULT_INTERVAL);
        let kind = |i: usize| if (i + 1).is_multiple_of(every) { LayerKind::Full } else { LayerKind::Linear };
        return Ok((0..count).map(kind).collect());
    };
    if names.len() != count {
        return Err(ConfigError::Contradiction {
            what: format!("layer_types has {} entries, but num_hidden_layers is {count}", names.len()),
        });
    }
    let kind = |(i, name): (usize, &&str)| match *name {
        "linear_attention" => Ok(LayerKind::Linear),
        "full_attention" => Ok(LayerKind::Full),
        other => Err(ConfigError::Unsupported {
            field: text.path(&format!("layer_types[{i}]")),
            value: other.chars().take(64).collect(),
            reason: "a layer is linear_attention or full_attention".into(),
        }),
    };
    names.iter().enumerate().map(kind).collect()
}

fn linear_dims(text: &Fields<'_>) -> Result<LinearDims, ConfigError> {
    let dims = LinearDims {
        k_heads: text.size("linear_num_key_heads", limits::HEADS)?,
        v_heads: text.size("linear_num_value_heads", limits::HEADS)?,
        k_dim: text.size("linear_key_head_dim", limits::HEAD_DIM)?,
        v_dim: text.size("linear_value_head_dim", limits::HEAD_DIM)?,
        conv_kernel: text.size("linear_conv_kernel_dim", limits::CONV_KERNEL)?,
    };
    if !dims.v_heads.is_multiple_of(dims.k_heads) {
        return Err(ConfigError::Contradiction {
            what: format!(
                "linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
                dims.v_heads, dims.k_heads
            ),
        });
    }
    Ok(dims)
}

/// The factors are limited, so `width` did not overflow; the product has a limit of its own.
fn check_width(what: &str, width: usize) -> Result<(), ConfigError> {
    if width > limits::WIDTH.max {
        return Err(ConfigError::OutOfRange {
            field: what.into(),
            value: width.to_string(),
            allowed: format!("at most {}", limits::WIDTH.max),
            why: limits::WIDTH.why,
        });
    }
    Ok(())
}

/// The epsilon as f32: the norms use that, so a value that vanishes in f32 is no epsilon.
fn eps(text: &Fields<'_>) -> Result<f32, ConfigError> {
    let value = text.number("rms_norm_eps")?;
    let eps = value as f32;
    if eps.is_finite() && eps > 0.0 && value <= limits::EPS_MAX {
        return Ok(eps);
    }
    Err(ConfigError::OutOfRange {
        field: text.path("rms_norm_eps"),
        value: value.to_string(),
        allowed: "positive in f32 and at most 1".into(),
        why: "it keeps the norm of a zero row finite",
    })
}
