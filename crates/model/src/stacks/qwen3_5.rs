//! Qwen3.5: gated delta nets and gated attention, each followed by a SwiGLU MLP or by experts.

use seam_device::{Caps, Device, Recorder};
use seam_kernels::tables::{LOGITS, ROWS};
use seam_ops::{
    Decay, Embed, GatherRows, Linear, Operation, Recurrence, RmsNorm, Sample, Tensor, Update, Weight, kv_dtype,
};

use super::Stack;
use crate::config::{LayerKind, MlpConfig, ModelConfig, Qwen35Config};
use crate::error::{ModelError, narrow};
use crate::layers::{ExpertPlan, GatedAttention, GatedDeltaNet, MlpNames, Moe, MoeNames, PassContext, SwiGluMlp};
use crate::loader::Loader;
use crate::probe::Probe;
use crate::spec::{KvSpec, LinearSpec, StackSpec};
use crate::weights::Weights;

enum Mixer {
    Linear(GatedDeltaNet),
    Full(GatedAttention),
}

enum Mlp {
    Dense(SwiGluMlp),
    Moe(Box<Moe>),
}

struct Layer {
    input_norm: Tensor,
    mixer: Mixer,
    mlp_norm: Tensor,
    mlp: Mlp,
}

/// The Qwen3.5 stack (models of `Qwen3_5ForCausalLM`, `Qwen3_5MoeForCausalLM`, and the text parts of
/// `Qwen3_5ForConditionalGeneration` and `Qwen3_5MoeForConditionalGeneration`).
pub struct Qwen35 {
    spec: StackSpec,
    eps: f32,
    embed: Weight,
    layers: Vec<Layer>,
    norm: Tensor,
    /// Absent when it is tied to the embedding.
    head: Option<Weight>,
}

fn spec(caps: &Caps, config: &ModelConfig, family: &Qwen35Config) -> Result<StackSpec, ModelError> {
    let full: Vec<bool> = config.layers.iter().map(|&k| k == LayerKind::Full).collect();
    let attention_layers = full.iter().filter(|&&f| f).count();
    let linear = &family.linear;
    let head = narrow("head size", family.head_dim)?;
    let kv = KvSpec {
        layers: attention_layers,
        heads: narrow("KV heads", family.kv_heads)?,
        group: narrow("query heads of a KV head", family.heads / family.kv_heads.max(1))?,
        head,
        rot: narrow("rotated dimensions", family.rot_dim)?,
        theta: family.rope_theta,
        dtype: kv_dtype(caps, head),
    };
    let recurrent = LinearSpec {
        layers: full.len() - attention_layers,
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
    let experts = match &family.mlp {
        MlpConfig::Dense(_) => None,
        MlpConfig::Moe(moe) => Some(ExpertPlan::new(moe, config.hidden_size)?),
    };
    let widest = [
        config.hidden_size,
        family.mlp.dense().unwrap_or_default(),
        experts.map_or(0, |e| e.widest() as usize),
        2 * family.heads * family.head_dim,
        linear.conv_channels(),
        linear.value_width(),
    ];
    Ok(StackSpec {
        vocab: narrow("vocabulary", config.vocab)?,
        hidden: narrow("hidden size", config.hidden_size)?,
        max_position: narrow("context", config.max_position_embeddings)?,
        kv: (kv.layers > 0).then_some(kv),
        linear: (recurrent.layers > 0).then_some(recurrent),
        full,
        experts,
        widest: narrow("widest activation", widest.into_iter().max().unwrap_or_default())?,
    })
}

/// Loads what follows the mixer of layer `layer`.
fn mlp(l: &Loader<'_>, layer: usize, hidden: usize, config: &MlpConfig) -> Result<Mlp, ModelError> {
    let moe = match config {
        MlpConfig::Dense(intermediate) => {
            return Ok(Mlp::Dense(SwiGluMlp::load(l, layer, hidden, *intermediate)?));
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
    Ok(Mlp::Moe(Box::new(Moe::load(l, &names, hidden, moe, 1.0)?)))
}

impl Qwen35 {
    /// Loads it.
    ///
    /// # Errors
    /// See [`super::load`].
    pub fn load(
        device: &dyn Device,
        config: &ModelConfig,
        family: &Qwen35Config,
        weights: &Weights,
    ) -> Result<Self, ModelError> {
        let spec = spec(device.caps(), config, family)?;
        let l = Loader::new(device, weights)?.quantised(config.fp8.as_ref());
        let (hidden, eps) = (config.hidden_size, config.eps);
        let norm = |name: String| l.small(&name, &[hidden], 1, spec.hidden);
        let mut layers = Vec::new();
        let (mut linear, mut full) = (0, 0);
        for (i, kind) in config.layers.iter().enumerate() {
            let mixer = match (kind, spec.linear, spec.kv) {
                (LayerKind::Full, _, Some(kv)) => {
                    full += 1;
                    Mixer::Full(GatedAttention::load(&l, (i, full - 1), hidden, family, kv, eps)?)
                }
                (LayerKind::Linear, Some(recurrent), _) => {
                    linear += 1;
                    let dims = &family.linear;
                    Mixer::Linear(GatedDeltaNet::load(&l, (i, linear - 1), hidden, dims, recurrent, eps)?)
                }
                _ => return Err(ModelError::Size { what: "layers of a kind", value: i }),
            };
            layers.push(Layer {
                input_norm: norm(l.names().layer(i, "input_layernorm.weight"))?,
                mixer,
                mlp_norm: norm(l.names().layer(i, "post_attention_layernorm.weight"))?,
                mlp: mlp(&l, i, hidden, &family.mlp)?,
            });
        }
        let stack = Self {
            eps,
            embed: l.matrix(&l.names().embedding(), config.vocab, hidden)?,
            layers,
            norm: norm(l.names().top("norm.weight"))?,
            head: if config.tied { None } else { Some(l.matrix(&l.names().lm_head(), config.vocab, hidden)?) },
            spec,
        };
        l.finish()?;
        Ok(stack)
    }
}

impl Stack for Qwen35 {
    fn spec(&self) -> &StackSpec {
        &self.spec
    }

    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, tables, shape, work) = (pass.caps, pass.tables, pass.shape, pass.work);
        let (h, x) = (work.h.first(shape.rows), work.x.first(shape.rows));
        let norm = |recorder: &mut dyn Recorder, count, x: &Tensor, weight: &Tensor, out: &Tensor| {
            RmsNorm { rows: (tables, count), x, weight, out, groups: 1, stride: 0, centred: true, eps: self.eps }
                .record(recorder, caps)
        };
        Embed { tables, table: &self.embed, out: &h }.record(recorder, caps)?;
        probe.tap(recorder, "embed", &h)?;
        for (i, layer) in self.layers.iter().enumerate() {
            norm(recorder, ROWS, &h, &layer.input_norm, &x)?;
            match &layer.mixer {
                Mixer::Linear(mixer) => mixer.record(recorder, pass, &x, &h, probe)?,
                Mixer::Full(mixer) => mixer.record(recorder, pass, &x, &h)?,
            }
            norm(recorder, ROWS, &h, &layer.mlp_norm, &x)?;
            match &layer.mlp {
                Mlp::Dense(mlp) => mlp.record(recorder, pass, &x, &h)?,
                Mlp::Moe(moe) => moe.record(recorder, pass, &x, (&h, true))?,
            }
            probe.tap(recorder, &format!("layer{i}"), &h)?;
        }
        if shape.logits > 0 {
            let rows = |t: &Tensor| t.first(shape.logits);
            let [last, normed, logits] = [&work.last, &work.last_norm, &work.logits].map(rows);
            GatherRows { tables, x: &h, out: &last }.record(recorder, caps)?;
            norm(recorder, LOGITS, &last, &self.norm, &normed)?;
            probe.tap(recorder, "final_norm", &normed)?;
            let weight = self.head.as_ref().unwrap_or(&self.embed);
            Linear { rows: (tables, LOGITS), x: &normed, weight, out: &logits, accumulate: false }
                .record(recorder, caps)?;
            let (found, to) = if pass.choose {
                let (choices, out) = (work.choices.all(), work.chosen.first(shape.logits));
                Sample { tables, logits: &logits, choices: &choices, out: &out }.record(recorder, caps)?;
                (out.range(), &work.chosen_readback)
            } else {
                (logits.range(), &work.readback)
            };
            let range = to.range(0, found.len).map_err(seam_ops::OpError::from)?;
            recorder.copy(&found, &range)?;
        }
        Ok(())
    }
}
