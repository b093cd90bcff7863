//! Upper bounds of the sizes in a configuration, with their reasons.
//!
//! They are far above every published model and low enough that any product of three of them fits in 64 bits. A config
//! beyond them is a damaged or hostile file; without them it would be found out by an allocation failure.

/// A closed range of whole numbers and its reason.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The smallest value allowed.
    pub min: usize,
    /// The largest value allowed.
    pub max: usize,
    /// Why.
    pub why: &'static str,
}

/// Bytes of a `config.json` or `generation_config.json`; published ones have a few KiB.
pub const CONFIG_BYTES: u64 = 16 << 20;

/// Width of the residual stream.
pub const HIDDEN: Limit =
    Limit { min: 1, max: 1 << 20, why: "one row of activations must stay a small part of a buffer" };
/// Number of layers.
pub const LAYERS: Limit = Limit { min: 1, max: 4096, why: "every layer has slabs and table entries of its own" };
/// Rows of the embedding.
pub const VOCAB: Limit = Limit { min: 1, max: 1 << 24, why: "one row of f32 logits must fit in a 64 MiB buffer" };
/// Size of one head.
pub const HEAD_DIM: Limit = Limit { min: 1, max: 1024, why: "kernels hold a head in workgroup memory" };
/// Number of heads of any kind.
pub const HEADS: Limit = Limit { min: 1, max: 4096, why: "a grid has one row of workgroups per head" };
/// Inner width of an MLP, and the width of any fused projection.
pub const WIDTH: Limit = Limit { min: 1, max: 1 << 24, why: "a weight matrix must have fewer than 2^44 elements" };
/// Tokens of the longest sequence.
pub const POSITIONS: Limit = Limit { min: 1, max: (1 << 31) - 1, why: "positions are 32-bit numbers in the tables" };
/// Taps of the short convolution.
pub const CONV_KERNEL: Limit = Limit { min: 2, max: 8, why: "one tap needs no tail, and kernels unroll at most eight" };
/// The period of the full-attention layers.
pub const INTERVAL: Limit = Limit { min: 1, max: 4096, why: "a period beyond the number of layers has no meaning" };
/// An epsilon of a norm, as the largest f32 value that still is one.
pub const EPS_MAX: f64 = 1.0;
