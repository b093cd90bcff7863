//! Qwen3.5: gated delta nets and gated attention, each followed by a SwiGLU MLP or by experts.
//!
//! Models of `Qwen3_5ForCausalLM`, `Qwen3_5MoeForCausalLM`, `Qwen3NextForCausalLM`, and the text parts of
//! `Qwen3_5ForConditionalGeneration` and `Qwen3_5MoeForConditionalGeneration`.

use seam_device::{Caps, Device};
use seam_ops::{Decay, Recurrence, Update, kv_dtype};

use super::Stack;
use super::stack::{Branch, Join, LayerStack, Part};
use crate::config::{LayerKind, MlpConfig, ModelConfig, Qwen35Config};
use crate::error::{ModelError, narrow};
use crate::layers::{
    Attention, AttentionDims, ExpertPlan, GatedDeltaNet, HeadNorms, MlpNames, Moe, MoeNames, Norm, SwiGluMlp,
};
use crate::loader::Loader;
use crate::spec::{KvSpec, LayerState, LinearSpec, Rotary, StackSpec, WorkPlan};
use crate::weights::Weights;

fn attention(family: &Qwen35Config) -> AttentionDims {
    AttentionDims {
        heads: family.heads,
        kv_heads: family.kv_heads,
        head: family.head_dim,
        gate: true,
        scale: (1.0 / (family.head_dim as f64).sqrt()) as f32,
    }
}

fn spec(caps: &Caps, config: &ModelConfig, family: &Qwen35Config) -> Result<StackSpec, ModelError> {
    let layers: Vec<LayerState> = config
        .layers
        .iter()
        .map(|kind| if *kind == LayerKind::Full { LayerState::FULL } else { LayerState::LINEAR })
        .collect();
    let attention_layers = layers.iter().filter(|l| l.kv).count();
    let linear = &family.linear;
    let head = narrow("head size", family.head_dim)?;
    let rot = narrow("rotated dimensions", family.rot_dim)?;
    let kv = KvSpec {
        layers: attention_layers,
        heads: narrow("KV heads", family.kv_heads)?,
        group: narrow("query heads of a KV head", family.heads / family.kv_heads.max(1))?,
        head,
        rot,
        dtype: kv_dtype(caps, head),
    };
    let recurrent = LinearSpec {
        layers: layers.len() - attention_layers,
        recurrence: Recurrence {
            decay: Decay::Scalar,
            update: Update::Delta,
            heads: narrow("key heads", linear.k_heads)?,
            value_heads: narrow("value heads", linear.v_heads)?,
            key: narrow("key size", linear.k_dim)?,
            value: narrow("value size", linear.v_dim)?,
            rotation: None,
        },
        kernel: narrow("convolution kernel", linear.conv_kernel)?,
        channels: narrow("convolution channels", linear.conv_channels())?,
    };
    let slot = 2 * linear.v_heads * linear.k_dim * linear.v_dim + linear.v_heads * linear.k_dim * linear.k_dim;
    narrow("words of a state slot", slot + linear.conv_kernel * linear.conv_channels())?;
    let (mut dense, mut experts) = (0, None);
    for mlp in &family.mlps {
        match mlp {
            MlpConfig::Dense(intermediate) => dense = narrow("inner width", *intermediate)?.max(dense),
            // All layers with experts are alike.
            MlpConfig::Moe(moe) => experts = Some(ExpertPlan::new(moe, config.hidden_size)?),
        }
    }
    let mlp = WorkPlan { mlp: dense, ..WorkPlan::default() };
    Ok(StackSpec {
        vocab: narrow("vocabulary", config.vocab)?,
        hidden: narrow("hidden size", config.hidden_size)?,
        max_position: narrow("context", config.max_position_embeddings)?,
        kv: (kv.layers > 0).then_some(kv),
        linear: (recurrent.layers > 0).then_some(recurrent),
        rotary: (kv.layers > 0).then_some(Rotary { dims: rot, theta: family.rope_theta }),
        layers,
        experts,
        work: mlp.join(attention(family).plan()?).join(GatedDeltaNet::plan(linear)?),
    })
}

/// Loads what follows the mixer of layer `layer`.
fn mlp(l: &Loader<'_>, layer: usize, hidden: usize, config: &MlpConfig) -> Result<Part, ModelError> {
    let moe = match config {
        MlpConfig::Dense(intermediate) => {
            let prefix = l.names().layer(layer, "mlp");
            return Ok(Part::plain(SwiGluMlp::load(l, &prefix, hidden, *intermediate)?));
        }
        MlpConfig::Moe(moe) => moe,
    };
    let name = |part: &str| l.names().layer(layer, &format!("mlp.{part}"));
    let [router, gate_up, down, experts, shared, shared_gate] = [
        "gate.weight",
        "experts.gate_up_proj",
        "experts.down_proj",
        "experts",
        "shared_expert",
        "shared_expert_gate.weight",
    ]
    .map(name);
    let names = MoeNames {
        router: &router,
        bias: "",
        fused: Some((&gate_up, &down)),
        each: (&experts, MlpNames::PROJ),
        shared: (&shared, MlpNames::PROJ),
        shared_fused: None,
        shared_gate: &shared_gate,
    };
    Ok(Part::plain(Moe::load(l, &names, hidden, moe, 1.0)?))
}

/// Loads it.
///
/// # Errors
/// See [`super::load`].
pub(super) fn load(
    device: &dyn Device,
    config: &ModelConfig,
    family: &Qwen35Config,
    weights: &Weights,
) -> Result<Box<dyn Stack>, ModelError> {
    let spec = spec(device.caps(), config, family)?;
    let l = Loader::new(device, weights)?.quantised(config.fp8.as_ref());
    let (hidden, eps) = (config.hidden_size, config.eps);
    let norm = |name: String| Norm::load(&l, &name, hidden, true, eps);
    let mut layers = Vec::new();
    for (i, mlp_config) in family.mlps.iter().enumerate() {
        let name = |part: &str| l.names().layer(i, part);
        let input = norm(name("input_layernorm.weight"))?;
        let mixer = match (spec.kv_index(i).zip(spec.kv), spec.linear_index(i).zip(spec.linear)) {
            (Some((index, kv)), _) => {
                let names = ["self_attn.q_norm.weight", "self_attn.k_norm.weight"].map(name);
                let norms = HeadNorms::heads(&l, [&names[0], &names[1]], family.head_dim, true, eps)?;
                let sizes = (attention(family), kv);
                Branch::before(input, Attention::load(&l, &name("self_attn"), index, hidden, sizes, norms)?)
            }
            (_, Some((index, recurrent))) => {
                let dims = (&family.linear, family.projections);
                Branch::before(input, GatedDeltaNet::load(&l, (i, index), hidden, dims, recurrent, eps)?)
            }
            _ => return Err(ModelError::Size { what: "layers of a kind", value: i }),
        };
        let join = Join::Before(norm(name("post_attention_layernorm.weight"))?);
        layers.push(vec![mixer, Branch { join, parts: vec![mlp(&l, i, hidden, mlp_config)?] }]);
    }
    let stack = LayerStack {
        embed: l.matrix(&l.names().embedding(), config.vocab, hidden)?,
        embed_scale: 1.0,
        layers,
        norm: norm(l.names().top("norm.weight"))?,
        head: if config.tied { None } else { Some(l.matrix(&l.names().lm_head(), config.vocab, hidden)?) },
        logit_scale: 1.0,
        spec,
    };
    l.finish()?;
    Ok(Box::new(stack))
}
