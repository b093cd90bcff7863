//! Gated full attention of Qwen3.5: q/k norm, partial rotary, spans, sigmoid output gate.

use seam_device::Recorder;
use seam_kernels::tables::ROWS;
use seam_ops::{KvWrite, Linear, Operation, Parts, RmsNorm, SigmoidGate, SpanAttention, Tensor, Weight};

use super::PassContext;
use super::gdn::missing;
use crate::config::Qwen35Config;
use crate::error::ModelError;
use crate::loader::Loader;
use crate::spec::KvSpec;

/// One full-attention layer.
#[derive(Debug)]
pub struct GatedAttention {
    /// Its number among the full-attention layers.
    index: usize,
    heads: u32,
    spec: KvSpec,
    eps: f32,
    q: Weight,
    k: Weight,
    v: Weight,
    o: Weight,
    q_norm: Tensor,
    k_norm: Tensor,
}

impl GatedAttention {
    /// Loads `self_attn.*` of layer `layer`, the `index`-th full one. `q_proj` holds per head the query, then the gate.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(
        l: &Loader<'_>,
        (layer, index): (usize, usize),
        hidden: usize,
        config: &Qwen35Config,
        spec: KvSpec,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let name = |part: &str| l.names().layer(layer, &format!("self_attn.{part}.weight"));
        let (width, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        Ok(Self {
            index,
            heads: config.heads as u32,
            spec,
            eps,
            q: l.matrix(&name("q_proj"), 2 * width, hidden)?,
            k: l.matrix(&name("k_proj"), kv, hidden)?,
            v: l.matrix(&name("v_proj"), kv, hidden)?,
            o: l.matrix(&name("o_proj"), hidden, width)?,
            q_norm: l.small(&name("q_norm"), &[config.head_dim], 1, spec.head)?,
            k_norm: l.small(&name("k_norm"), &[config.head_dim], 1, spec.head)?,
        })
    }

    /// Records it: reads the normalised `x`, adds into `h`.
    ///
    /// # Errors
    /// As the operations.
    pub fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        h: &Tensor,
    ) -> Result<(), ModelError> {
        let (caps, tables, shape) = (pass.caps, pass.tables, pass.shape);
        let Some(work) = &pass.work.attention else { return Err(missing("attention").into()) };
        let rows = |t: &Tensor| t.first(shape.rows);
        let [qg, q, k, v, stats, out] = [&work.qg, &work.q, &work.k, &work.v, &work.stats, &work.out].map(rows);
        for (weight, out) in [(&self.q, &qg), (&self.k, &k), (&self.v, &v)] {
            Linear { rows: (tables, ROWS), x, weight, out, accumulate: false }.record(recorder, caps)?;
        }
        RmsNorm {
            rows: (tables, ROWS),
            x: &qg,
            weight: &self.q_norm,
            out: &q,
            groups: self.heads,
            stride: 2 * self.spec.head,
            centred: true,
            eps: self.eps,
        }
        .record(recorder, caps)?;
        for &slab in &shape.kv {
            let [range, ..] = pass.memory.kv_slabs(self.index, &[seam_ops::SlabId::Private(slab)]);
            let (rot, eps, weight, dtype) = (self.spec.rot, self.eps, &self.k_norm, self.spec.dtype);
            KvWrite { tables, k: &k, v: &v, weight, rot, eps, slab: (slab, range), dtype }.record(recorder, caps)?;
        }
        let launches: Vec<_> =
            shape.attention.iter().map(|launch| pass.memory.kv_slabs(self.index, &launch.slabs)).collect();
        SpanAttention {
            tables,
            q: &q,
            stats: &stats,
            out: &out,
            heads: (self.heads, self.spec.heads),
            head: self.spec.head,
            rot: self.spec.rot,
            launches: &launches,
            dtype: self.spec.dtype,
            tiles: shape.tiles,
            parts: work.parts.as_ref().map(|(out, stats)| Parts { out, stats }),
        }
        .record(recorder, caps)?;
        SigmoidGate { tables, qg: &qg, x: &out, head: self.spec.head }.record(recorder, caps)?;
        Linear { rows: (tables, ROWS), x: &out, weight: &self.o, out: h, accumulate: true }.record(recorder, caps)?;
        Ok(())
    }
}
