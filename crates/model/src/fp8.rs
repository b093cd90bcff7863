//! Scales of FP8 weights: those of rows that were cut out of tensors, or put together from several.

use std::ops::Range;

use seam_device::{DType, HostBytes, e4m3};
use seam_ops::BlockScales;

use crate::error::ModelError;
use crate::loader::Loader;
use crate::weights::WeightsError;

/// Rows and columns of a stored block.
const BLOCK: usize = 128;
/// `2^SHIFT` are the rows of a stored block.
const SHIFT: u32 = 7;

/// Rows of a matrix with the scales `[⌈n / 128⌉, ⌈k / 128⌉]` of all of it.
pub(crate) struct BlockRows {
    pub(crate) values: Vec<f32>,
    pub(crate) rows: Range<usize>,
}

impl BlockRows {
    /// The scales of the blocks in the row `row`.
    fn row(&self, row: usize, columns: usize) -> &[f32] {
        self.values.get(row / BLOCK * columns..).and_then(|rest| rest.get(..columns)).unwrap_or_default()
    }

    /// The rows in f32, from their bytes `[rows, k]`.
    pub(crate) fn widened(&self, bytes: &[u8], k: usize) -> HostBytes {
        let mut out: Vec<f32> = Vec::with_capacity(bytes.len());
        for (row, bytes) in self.rows.clone().zip(bytes.chunks(k)) {
            for (bytes, scale) in bytes.chunks(BLOCK).zip(self.row(row, k.div_ceil(BLOCK))) {
                out.extend(bytes.iter().map(|byte| e4m3(*byte) * scale));
            }
        }
        HostBytes::from_vec(bytemuck::cast_slice(&out).to_vec())
    }
}

/// How often two divides `n`, at most [`SHIFT`] times.
fn twos(n: usize) -> u32 {
    n.trailing_zeros().min(SHIFT)
}

/// The scales of pieces that lie behind each other, with as many rows to a block as all borders of pieces allow.
pub(crate) fn merged(pieces: &[BlockRows], k: usize) -> BlockScales {
    let (mut at, mut shift) = (0, SHIFT);
    for piece in pieces {
        shift = shift.min(twos(at)).min(twos(piece.rows.start));
        at += piece.rows.len();
    }
    let columns = k.div_ceil(BLOCK);
    let rows = |piece: &BlockRows| -> Vec<f32> {
        let starts = piece.rows.clone().step_by(1 << shift);
        starts.flat_map(|row| piece.row(row, columns).iter().copied()).collect()
    };
    BlockScales { shift, values: pieces.iter().flat_map(rows).collect() }
}

impl Loader<'_> {
    /// The scales of the FP8 tensor `name`, `[outer…, ⌈n / 128⌉, ⌈k / 128⌉]`, as f32.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub(crate) fn scales(&self, name: &str, outer: &[usize], [n, k]: [usize; 2]) -> Result<Vec<f32>, ModelError> {
        let shape = [outer, &[n.div_ceil(BLOCK), k.div_ceil(BLOCK)]].concat();
        let tensor = self.take(&format!("{name}_scale_inv"), &shape)?;
        if !matches!(tensor.dtype, DType::BF16 | DType::F32 | DType::F16) {
            let (found, wanted) = (tensor.dtype, "f32, f16 or bf16");
            return Err(WeightsError::Dtype { tensor: tensor.name, found, wanted }.into());
        }
        Ok(tensor.to_f32()?)
    }
}

#[cfg(test)]
mod tests {
    use seam_device::Scales;

    use super::*;

    /// What a scale of a merged matrix is at a row.
    fn at(scales: &BlockScales, row: usize, columns: usize) -> &[f32] {
        &scales.values[(row >> scales.shift) * columns..][..columns]
    }

    #[test]
    fn merged_rows_keep_their_scales() {
        assert_eq!(BLOCK, Scales::COLUMNS as usize);
        let (k, columns) = (200, 2);
        let values: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let cases: [&[(usize, usize)]; 7] = [
            &[(0, 300)],
            &[(128, 300)],
            &[(64, 200)],
            &[(0, 128), (128, 256)],
            &[(0, 48), (0, 48)],
            &[(0, 16), (200, 216), (5, 6)],
            &[(256, 300), (0, 128)],
        ];
        for ranges in cases {
            let ranges: Vec<Range<usize>> = ranges.iter().map(|&(from, to)| from..to).collect();
            let piece = |rows: &Range<usize>| BlockRows { values: values.clone(), rows: rows.clone() };
            let pieces: Vec<BlockRows> = ranges.iter().map(piece).collect();
            let scales = merged(&pieces, k);
            let sources: Vec<usize> = ranges.iter().cloned().flatten().collect();
            assert_eq!(scales.values.len(), sources.len().div_ceil(1 << scales.shift) * columns, "{ranges:?}");
            for (row, source) in sources.into_iter().enumerate() {
                let first = (source / 128 * columns) as f32;
                assert_eq!(at(&scales, row, columns), [first, first + 1.0], "{ranges:?} {row}");
            }
        }
        assert_eq!(merged(&[BlockRows { values, rows: 0..300 }], k).shift, 7);
    }

    #[test]
    fn widened_rows_are_scaled() {
        let rows = BlockRows { values: vec![1.0, 2.0, 4.0, 8.0], rows: 127..129 };
        let widened = rows.widened(&[0x38; 2 * 130], 130);
        let floats: Vec<f32> =
            widened.as_slice().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!([0, 127, 128, 129, 130, 258].map(|i| floats[i]), [1.0, 1.0, 2.0, 2.0, 4.0, 8.0]);
    }
}
