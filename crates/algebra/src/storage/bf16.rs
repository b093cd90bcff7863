//! Entries as bfloat16. 8 significant bits: `u = 2^-8`, `a = 2^-127`.

use super::cells::{CellError, Format};
use super::error::StorageError;
use super::round::{F32_NORMAL, in_range, nearest_f32_range, relative_error};

pub(super) struct Bf16;

const BITS: u32 = 8;

impl Format for Bf16 {
    fn name(&self) -> &'static str {
        "bf16"
    }

    fn bytes(&self, rows: usize, columns: usize) -> usize {
        rows.saturating_mul(columns).saturating_mul(2)
    }

    fn encode(&self, m: &[f64], _columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        for (index, &x) in m.iter().enumerate() {
            let x = in_range("bf16", index, x, nearest_f32_range(x, BITS))?;
            out.extend(half::bf16::from_f64(x).to_le_bytes());
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8], _columns: usize) -> Vec<f64> {
        bytes.as_chunks::<2>().0.iter().map(|&c| half::bf16::from_le_bytes(c).to_f64()).collect()
    }

    fn error(&self, m: &[f64], _columns: usize) -> CellError {
        CellError::uniform(relative_error(BITS), F32_NORMAL / 2.0, m.len())
    }
}
