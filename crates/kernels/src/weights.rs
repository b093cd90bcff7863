//! The forms in which kernels read weights: f32, bf16, and FP8 with a scale for each block.

use seam_device::e4m3;

use crate::manifest::Constant;
use crate::twin::bf16;

/// WEIGHT: f32.
pub const WEIGHT_F32: u32 = 0;
/// WEIGHT: bf16, two to a word, low half first.
pub const WEIGHT_BF16: u32 = 1;
/// WEIGHT: FP8 (e4m3), four to a word, low byte first, times the scale of its block.
pub const WEIGHT_FP8: u32 = 2;

/// Columns for which a scale of FP8 weights holds.
pub const SCALE_COLUMNS: usize = 128;

/// The constant of kernels that read weights.
pub const WEIGHT: Constant = Constant { name: "WEIGHT", legal: &[WEIGHT_F32, WEIGHT_BF16, WEIGHT_FP8] };

/// Weights `[matrices, n, k]` as twins read them.
pub(crate) struct Widen<'a> {
    pub(crate) weight: u32,
    pub(crate) w: &'a [u32],
    /// FP8: `[matrices, ⌈n / 2^shift⌉, ⌈k / 128⌉]`.
    pub(crate) scales: &'a [f32],
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) shift: u32,
}

impl Widen<'_> {
    /// Row `row` of a matrix as f32.
    pub(crate) fn row(&self, matrix: usize, row: usize, out: &mut [f32]) {
        let (n, k) = (self.n, self.k);
        let at = (matrix * n + row) * k;
        match self.weight {
            WEIGHT_F32 => out.copy_from_slice(bytemuck::cast_slice(&self.w[at..at + k])),
            WEIGHT_BF16 => out.iter_mut().enumerate().for_each(|(i, out)| *out = bf16(self.w, at + i)),
            _ => {
                let bytes: &[u8] = bytemuck::cast_slice(self.w);
                let (rows, cols) = (n.div_ceil(1 << self.shift), k.div_ceil(SCALE_COLUMNS));
                let scales = &self.scales[(matrix * rows + (row >> self.shift)) * cols..][..cols];
                let pieces = out.chunks_mut(SCALE_COLUMNS).zip(bytes[at..at + k].chunks(SCALE_COLUMNS));
                for ((out, bytes), scale) in pieces.zip(scales) {
                    out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = e4m3(*byte) * scale);
                }
            }
        }
    }
}
