//! Full attention over spans: projections, q/k norm, partial rotary or none, an output gate where there is one.

use seam_device::Recorder;
use seam_kernels::tables::ROWS;
use seam_ops::{
    Blend, KeyNorm, KvWrite, Linear, OpError, Operation, Parts, RmsNorm, SigmoidGate, SpanAttention, Tensor, Weight,
};

use super::{Mixer, Out, PassContext, missing};
use crate::error::{ModelError, narrow};
use crate::loader::{Loader, Rows};
use crate::probe::Probe;
use crate::spec::{KvSpec, WorkPlan};

/// Sizes of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionDims {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Head size.
    pub head: usize,
    /// Whether `q_proj` holds per head the query, then an output gate that goes through a sigmoid.
    pub gate: bool,
    /// What `q·k` is multiplied by.
    pub scale: f32,
}

impl AttentionDims {
    /// Elements of all queries of a token.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.heads * self.head
    }

    /// Elements of all keys of a token.
    #[must_use]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head
    }

    /// What it needs of the workspace.
    ///
    /// # Errors
    /// [`ModelError::Size`].
    pub fn plan(&self) -> Result<WorkPlan, ModelError> {
        let width = if self.gate { 2 * self.width() } else { self.width() };
        let (heads, queries) = (narrow("query heads", self.heads)?, narrow("query width", width)?);
        Ok(WorkPlan { heads, queries, ..WorkPlan::default() })
    }
}

/// The norms of queries and keys.
#[derive(Clone, Debug)]
pub enum HeadNorms {
    /// None.
    None,
    /// One per head, with the weights `[1, head]` of queries and of keys.
    Heads {
        /// Of queries.
        q: Tensor,
        /// Of keys.
        k: Tensor,
        /// Whether the factor is `1 + w`.
        centred: bool,
        /// Added to the mean of squares.
        eps: f32,
    },
    /// One over all heads, with the weights `[1, heads·head]` and `[1, kv_heads·head]`.
    Whole {
        /// Of queries.
        q: Tensor,
        /// Of keys.
        k: Tensor,
        /// Added to the mean of squares.
        eps: f32,
    },
}

impl HeadNorms {
    /// Loads `[head]` weights for each side.
    ///
    /// # Errors
    /// As [`Loader::small`].
    pub fn heads(l: &Loader<'_>, names: [&str; 2], head: usize, centred: bool, eps: f32) -> Result<Self, ModelError> {
        let load = |name: &str| l.small(name, &[head], 1, narrow("head size", head)?);
        Ok(Self::Heads { q: load(names[0])?, k: load(names[1])?, centred, eps })
    }

    /// Loads weights over the whole width of each side.
    ///
    /// # Errors
    /// As [`Loader::small`].
    pub fn whole(l: &Loader<'_>, names: [&str; 2], dims: &AttentionDims, eps: f32) -> Result<Self, ModelError> {
        let load = |name: &str, width: usize| l.small(name, &[width], 1, narrow("width of a norm", width)?);
        Ok(Self::Whole { q: load(names[0], dims.width())?, k: load(names[1], dims.kv_width())?, eps })
    }
}

/// One full-attention layer.
#[derive(Debug)]
pub struct Attention {
    /// Its number among the full-attention layers.
    index: usize,
    dims: AttentionDims,
    spec: KvSpec,
    q: Weight,
    k: Weight,
    v: Weight,
    o: Weight,
    norms: HeadNorms,
    /// What raw queries, keys and values are multiplied by (muP); 1 elsewhere.
    scales: [f32; 3],
}

impl Attention {
    /// Loads `<prefix>.{q,k,v,o}_proj.weight` of the `index`-th full-attention layer.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(
        l: &Loader<'_>,
        prefix: &str,
        index: usize,
        hidden: usize,
        (dims, spec): (AttentionDims, KvSpec),
        norms: HeadNorms,
    ) -> Result<Self, ModelError> {
        let name = |part: &str| format!("{prefix}.{part}_proj.weight");
        let (width, kv) = (dims.width(), dims.kv_width());
        let queries = if dims.gate { 2 * width } else { width };
        Ok(Self {
            index,
            dims,
            spec,
            q: l.matrix(&name("q"), queries, hidden)?,
            k: l.matrix(&name("k"), kv, hidden)?,
            v: l.matrix(&name("v"), kv, hidden)?,
            o: l.matrix(&name("o"), hidden, width)?,
            norms,
            scales: [1.0; 3],
        })
    }

    /// Loads one whose projections are one matrix, all queries, all keys, then all values.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load_fused(
        l: &Loader<'_>,
        (qkv, out): (&str, &str),
        index: usize,
        hidden: usize,
        (dims, spec): (AttentionDims, KvSpec),
        norms: HeadNorms,
    ) -> Result<Self, ModelError> {
        let (width, kv) = (dims.width(), dims.kv_width());
        let n = width + 2 * kv;
        let rows = |range| l.rows(&[Rows { name: qkv, n, range }], hidden);
        Ok(Self {
            index,
            dims,
            spec,
            q: rows(0..width)?,
            k: rows(width..width + kv)?,
            v: rows(width + kv..n)?,
            o: l.matrix(out, hidden, width)?,
            norms,
            scales: [1.0; 3],
        })
    }

    /// The same with these factors of raw queries, keys and values.
    #[must_use]
    pub fn scaled(mut self, scales: [f32; 3]) -> Self {
        self.scales = scales;
        self
    }
}

impl Mixer for Attention {
    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        out: Out<'_>,
        _: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, tables, shape) = (pass.caps, pass.tables, pass.shape);
        let Some(work) = &pass.work.attention else { return Err(missing("attention").into()) };
        let rows = |t: &Tensor| t.first(shape.rows);
        let [raw, q, k, v, stats, y] = [&work.qg, &work.q, &work.k, &work.v, &work.stats, &work.out].map(rows);
        let (heads, head) = (self.dims.heads as u32, self.spec.head);
        // Queries without a norm (and so without a gate) need no second place.
        let plain = matches!(self.norms, HeadNorms::None) && !self.dims.gate;
        let projected = if plain { &q } else { &raw };
        for ((weight, out), b) in [(&self.q, projected), (&self.k, &k), (&self.v, &v)].into_iter().zip(self.scales) {
            Linear { rows: (tables, ROWS), x, weight, out, accumulate: false }.record(recorder, caps)?;
            if b != 1.0 {
                Blend { rows: (tables, ROWS), x: None, y: out, a: 0.0, b, silu: false }.record(recorder, caps)?;
            }
        }
        let rms = |x, weight, out, groups, stride, centred, eps| RmsNorm {
            rows: (tables, ROWS),
            x,
            weight,
            out,
            groups,
            stride,
            centred,
            eps,
        };
        let mut keys = &k;
        let (norm, eps) = match &self.norms {
            HeadNorms::None if self.dims.gate => {
                let what = "queries that lie between gates need a norm".to_owned();
                return Err(OpError::Shape { op: "attention", what }.into());
            }
            HeadNorms::None => (KeyNorm::None, 0.0),
            HeadNorms::Heads { q: weight, k, centred, eps } => {
                let stride = if self.dims.gate { 2 * head } else { head };
                rms(&raw, weight, &q, heads, stride, *centred, *eps).record(recorder, caps)?;
                (if *centred { KeyNorm::Centred(k) } else { KeyNorm::Plain(k) }, *eps)
            }
            HeadNorms::Whole { q: of_q, k: of_k, eps } => {
                rms(&raw, of_q, &q, 1, 0, false, *eps).record(recorder, caps)?;
                // Raw queries are no longer needed: their memory takes the keys.
                keys = &y;
                let normed = y.reshape(k.rows(), k.cols())?;
                rms(&k, of_k, &normed, 1, 0, false, *eps).record(recorder, caps)?;
                (KeyNorm::None, 0.0)
            }
        };
        let keys = keys.reshape(k.rows(), k.cols())?;
        for &slab in &shape.kv {
            let [range, ..] = pass.memory.kv_slabs(self.index, &[seam_ops::SlabId::Private(slab)]);
            let (rot, dtype, slab) = (self.spec.rot, self.spec.dtype, (slab, range));
            KvWrite { tables, k: &keys, v: &v, norm, head, rot, eps, slab, dtype }.record(recorder, caps)?;
        }
        let launches: Vec<_> =
            shape.attention.iter().map(|launch| pass.memory.kv_slabs(self.index, &launch.slabs)).collect();
        SpanAttention {
            tables,
            q: &q,
            stats: &stats,
            out: &y,
            heads: (heads, self.spec.heads),
            head,
            rot: self.spec.rot,
            scale: self.dims.scale,
            launches: &launches,
            dtype: self.spec.dtype,
            tiles: shape.tiles,
            parts: work.parts.as_ref().map(|(out, stats)| Parts { out, stats }),
        }
        .record(recorder, caps)?;
        if self.dims.gate {
            SigmoidGate { tables, qg: &raw, x: &y, head }.record(recorder, caps)?;
        }
        let rows = (tables, ROWS);
        Linear { rows, x: &y, weight: &self.o, out: out.to, accumulate: out.add }.record(recorder, caps)?;
        Ok(())
    }
}
