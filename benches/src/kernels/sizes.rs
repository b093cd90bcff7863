//! Sizes of layers.

use crate::registry::Scale;

/// The sizes that cases of one scale share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Width of the residual stream.
    pub(super) hidden: u32,
    /// Rows of the embedding; the real vocabulary is cut, since only the rows' tokens are read.
    pub(super) vocab: u32,
    /// Key heads and value heads of a linear layer, and the size of both.
    pub(super) linear: (u32, u32, u32),
    /// Channels of its convolution.
    pub(super) channels: u32,
    /// Query heads, KV heads, their size, and the rotated dims.
    pub(super) attention: (u32, u32, u32, u32),
    /// Columns of the gate and the up projection of all experts of a token.
    pub(super) experts_width: u32,
    /// Experts, chosen ones, groups and kept groups.
    pub(super) experts: (u32, u32, u32, u32),
    /// Heads of Mamba-2, and their size.
    pub(super) mamba: (u32, u32),
    /// Heads of lightning attention, their size, rotated dims.
    pub(super) lightning: (u32, u32, u32),
    /// Rows of a pass.
    pub(super) rows: &'static [u32],
    /// `n` and `k` of a projection.
    pub(super) projection: (u32, u32),
    /// Logits of a row.
    pub(super) logits: u32,
    /// Rows of products: few, then many.
    pub(super) products: (&'static [u32], &'static [u32]),
}

/// Qwen3.5-35B-A3B, with Ring and Mamba-2 for what it has not; or sizes of the fixture models.
pub(super) fn sizes(scale: Scale) -> Sizes {
    match scale {
        Scale::Small => Sizes {
            hidden: 256,
            vocab: 512,
            linear: (2, 4, 64),
            channels: 512,
            attention: (4, 2, 64, 16),
            experts_width: 448,
            experts: (32, 4, 4, 2),
            mamba: (4, 16),
            lightning: (2, 64, 32),
            rows: &[60],
            projection: (448, 256),
            logits: 700,
            products: (&[1, 8], &[60]),
        },
        Scale::Real => Sizes {
            hidden: 2048,
            vocab: 32768,
            linear: (16, 32, 128),
            channels: 8192,
            attention: (16, 2, 256, 64),
            experts_width: 8 * 512,
            experts: (256, 8, 8, 4),
            mamba: (64, 64),
            lightning: (16, 128, 64),
            rows: &[512, 4096, 32768],
            projection: (12288, 2048),
            logits: 248_320,
            products: (&[1, 8], &[64, 512, 4096, 32768]),
        },
    }
}
