//! Entries as the upper three bytes of an f32, rounded to nearest. 16 significant bits: `u = 2^-16`, `a = 2^-127`.

use super::cells::{CellError, Format, take_f32};
use super::error::StorageError;
use super::round::{F32_NORMAL, in_range, nearest_f32_range, relative_error};

pub(super) struct F24;

const BITS: u32 = 16;

impl Format for F24 {
    fn name(&self) -> &'static str {
        "f24"
    }

    fn bytes(&self, rows: usize, columns: usize) -> usize {
        rows.saturating_mul(columns).saturating_mul(3)
    }

    fn encode(&self, m: &[f64], _columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        for (index, &x) in m.iter().enumerate() {
            let x = in_range("f24", index, x, nearest_f32_range(x, BITS))?;
            // The lowest byte is 0 after the rounding.
            out.extend_from_slice(&(x as f32).to_le_bytes()[1..]);
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8], _columns: usize) -> Vec<f64> {
        bytes.as_chunks::<3>().0.iter().map(|&[a, b, c]| take_f32(&[0, a, b, c]).0).collect()
    }

    fn error(&self, m: &[f64], _columns: usize) -> CellError {
        CellError::uniform(relative_error(BITS), F32_NORMAL / 2.0, m.len())
    }
}
