//! What the engine must know of a stack: the sizes of its memory, not its arithmetic.

use seam_device::DType;
use seam_ops::Recurrence;

use crate::layers::ExpertPlan;

/// Sizes of the full-attention layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvSpec {
    /// How many layers.
    pub layers: usize,
    /// KV heads.
    pub heads: u32,
    /// Query heads of a KV head.
    pub group: u32,
    /// Head size.
    pub head: u32,
    /// Rotated dimensions (NeoX halves), those of the stack's [`Rotary`], or 0.
    pub rot: u32,
    /// What keys and values are stored as: f32 or bf16.
    pub dtype: DType,
}

impl KvSpec {
    /// Elements of a token's key, and of its value.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.heads * self.head
    }

    /// Bytes of one token in one layer's KV slab: key, then value.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.width()) * 2 * self.dtype.size() as u64
    }
}

/// Sizes of the linear layers, which all have the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearSpec {
    /// How many layers.
    pub layers: usize,
    /// Their recurrence.
    pub recurrence: Recurrence,
    /// Taps of the convolution; 1 where there is none.
    pub kernel: u32,
    /// Channels of the convolution.
    pub channels: u32,
}

impl LinearSpec {
    /// Words of a state `[HV, K, V]`.
    #[must_use]
    pub fn state_words(&self) -> u32 {
        self.recurrence.state_words()
    }

    /// Words of a transition in the recurrence's form.
    #[must_use]
    pub fn transition_words(&self) -> u32 {
        self.recurrence.transition_words()
    }

    /// Words of a conv tail `[k−1, channels]`.
    #[must_use]
    pub fn tail_words(&self) -> u32 {
        (self.kernel - 1) * self.channels
    }

    /// Words of a private slot: `S_run`, then `S` and `T` while an operator is under construction, then the conv tail.
    #[must_use]
    pub fn slot_words(&self, operator: bool) -> u32 {
        self.tail_offset(operator) + self.tail_words()
    }

    /// Word of the conv tail within a slot.
    #[must_use]
    pub fn tail_offset(&self, operator: bool) -> u32 {
        self.recurrence.slot_words(operator)
    }

    /// Words of a cached entry: `S`, then `T` if it has one, then the conv tail.
    #[must_use]
    pub fn entry_words(&self, transition: bool) -> u32 {
        self.state_words() + if transition { self.transition_words() } else { 0 } + self.tail_words()
    }
}

/// What of a layer outlives a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerState {
    /// A recurrent state (and a conv tail).
    pub linear: bool,
    /// Keys and values.
    pub kv: bool,
}

impl LayerState {
    /// Of a layer whose mixer is a recurrence.
    pub const LINEAR: Self = Self { linear: true, kv: false };
    /// Of a layer whose mixer is attention.
    pub const FULL: Self = Self { linear: false, kv: true };
    /// Of a layer with both, side by side.
    pub const BOTH: Self = Self { linear: true, kv: true };
    /// Of a layer that sees one token at a time.
    pub const NONE: Self = Self { linear: false, kv: false };
}

/// The rotary embedding of a stack: the same angles turn attention keys and the keys of linear layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// Rotated dimensions of a head, even.
    pub dims: u32,
    /// Base of the frequencies `theta^(−2i/dims)`.
    pub theta: f64,
}

/// Widths of the activations that layers share, in elements of a row; 0 for what no layer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkPlan {
    /// Inner width of the widest dense MLP.
    pub mlp: u32,
    /// A mixer's result that is scaled or normalised before it joins the residual stream: 0, or the hidden size.
    pub branch: u32,
    /// Query heads of an attention layer.
    pub heads: u32,
    /// Raw queries, with their gates where there are any.
    pub queries: u32,
    /// Whether rows of linear layers are projected beside those that the chain reads, as a convolution does anyway.
    pub raw: bool,
    /// Output gates of a linear layer.
    pub z: u32,
    /// First raw gates of a linear layer (a, dt, gk or f).
    pub a: u32,
    /// Second raw gates of a linear layer (b).
    pub b: u32,
    /// Inner width of gates that are products of two narrow matrices.
    pub low: u32,
}

impl WorkPlan {
    /// The widest of each.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let [mlp, branch, heads, queries] = [
            self.mlp.max(other.mlp),
            self.branch.max(other.branch),
            self.heads.max(other.heads),
            self.queries.max(other.queries),
        ];
        let [z, a, b, low] = [self.z.max(other.z), self.a.max(other.a), self.b.max(other.b), self.low.max(other.low)];
        Self { mlp, branch, heads, queries, raw: self.raw || other.raw, z, a, b, low }
    }

    /// The widest of all.
    #[must_use]
    pub fn widest(&self) -> u32 {
        [self.mlp, self.branch, self.queries, self.z, self.a, self.b, self.low].into_iter().max().unwrap_or_default()
    }
}

/// Sizes of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct StackSpec {
    /// Rows of the embedding and of the logits.
    pub vocab: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Longest prompt with its answer, in tokens.
    pub max_position: u32,
    /// Layers in order.
    pub layers: Vec<LayerState>,
    /// The rotary embedding, if anything is rotated.
    pub rotary: Option<Rotary>,
    /// Full-attention layers, if there are any.
    pub kv: Option<KvSpec>,
    /// Linear layers, if there are any.
    pub linear: Option<LinearSpec>,
    /// Mixture-of-experts layers, if there are any.
    pub experts: Option<ExpertPlan>,
    /// Widths of the activations.
    pub work: WorkPlan,
}

impl StackSpec {
    /// Which linear layer (counted among themselves) layer `layer` is, if it is one.
    #[must_use]
    pub fn linear_index(&self, layer: usize) -> Option<usize> {
        let here = self.layers.get(layer)?.linear;
        here.then(|| self.layers[..layer].iter().filter(|l| l.linear).count())
    }

    /// Which attention layer (counted among themselves) layer `layer` is, if it is one.
    #[must_use]
    pub fn kv_index(&self, layer: usize) -> Option<usize> {
        let here = self.layers.get(layer)?.kv;
        here.then(|| self.layers[..layer].iter().filter(|l| l.kv).count())
    }

    /// Widest activation in elements: what bounds the rows of a pass on a device with a small binding limit.
    #[must_use]
    pub fn widest(&self) -> u32 {
        let linear = self.linear.map_or(0, |l| {
            let r = l.recurrence;
            l.channels.max(r.row()).max(r.gate_row()).max(r.out())
        });
        let kv = self.kv.map_or(0, |kv| kv.width());
        let experts = self.experts.map_or(0, |e| e.widest());
        [self.hidden, self.work.widest(), linear, kv, experts].into_iter().max().unwrap_or_default()
    }
}
