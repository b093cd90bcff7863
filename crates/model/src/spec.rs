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
    /// Rotated dimensions (NeoX halves).
    pub rot: u32,
    /// Base of the rotary frequencies.
    pub theta: f64,
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
    /// Taps of the convolution.
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

/// Sizes of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct StackSpec {
    /// Rows of the embedding and of the logits.
    pub vocab: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Longest prompt with its answer, in tokens.
    pub max_position: u32,
    /// Layers in order: true for full attention, false for linear.
    pub full: Vec<bool>,
    /// Full-attention layers, if there are any.
    pub kv: Option<KvSpec>,
    /// Linear layers, if there are any.
    pub linear: Option<LinearSpec>,
    /// Mixture-of-experts layers, if there are any.
    pub experts: Option<ExpertPlan>,
    /// Widest activation in elements: what bounds the rows of a pass on a device with a small binding limit.
    pub widest: u32,
}
