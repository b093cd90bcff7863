//! Entries as f32. `u = 2^-24`.
//!
//! Values below f32's normal range become 0 or the smallest normal number, whichever is nearer, because devices may
//! flush subnormals: `a = 2^-127`.

use super::cells::{CellError, Format, take_f32};
use super::error::StorageError;
use super::round::{F32_NORMAL, in_range, nearest_f32_range, relative_error};

pub(super) struct F32;

const BITS: u32 = 24;

/// What a log-sum or a factor becomes when stored as one f32.
pub(super) fn one(form: &'static str, value: f64) -> Result<f32, StorageError> {
    // Exact after the rounding.
    in_range(form, 0, value, nearest_f32_range(value, BITS)).map(|x| x as f32)
}

/// Bound of the error of [`one`].
pub(super) fn one_error(value: f64) -> f64 {
    relative_error(BITS) * value.abs() + F32_NORMAL / 2.0
}

impl Format for F32 {
    fn name(&self) -> &'static str {
        "f32"
    }

    fn bytes(&self, rows: usize, columns: usize) -> usize {
        rows.saturating_mul(columns).saturating_mul(4)
    }

    fn encode(&self, m: &[f64], _columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        for (index, &x) in m.iter().enumerate() {
            let x = in_range("f32", index, x, nearest_f32_range(x, BITS))?;
            out.extend((x as f32).to_le_bytes());
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8], _columns: usize) -> Vec<f64> {
        bytes.chunks_exact(4).map(|c| take_f32(c).0).collect()
    }

    fn error(&self, m: &[f64], _columns: usize) -> CellError {
        CellError::uniform(relative_error(BITS), F32_NORMAL / 2.0, m.len())
    }
}
