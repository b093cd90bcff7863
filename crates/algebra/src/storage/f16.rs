//! Entries as IEEE binary16 with one scale for the matrix. 11 significant bits: `u = 2^-11`.
//!
//! binary16 reaches from 2^-14 to 65504 only, with subnormals down to 2^-24. So a matrix is stored as `2^e · f16` with
//! the `e` that brings its largest entry into `[2^14, 2^15)`: nothing overflows, and the scale is exact. Entries below
//! `2^(e-14)`, at most 2^-28 of the largest, become subnormals: multiples of `2^(e-24)`, off by `a = 2^(e-25)` at most,
//! which is 2^-39 of the largest entry or less. A scale per column would only lower this part, which is negligible
//! beside `u` already.
//!
//! `e` is at least -102 (reached by matrices below 2^-87), so that `2^(e-24)`, the smallest number that can be decoded,
//! is a normal f32.

use super::cells::{CellError, Format, take_f32, top};
use super::error::StorageError;
use super::round::{exponent, in_range, nearest, power_of_two, relative_error};

pub(super) struct F16;

const BITS: u32 = 11;

/// `e` for a matrix.
fn scale_exponent(m: &[f64]) -> i32 {
    // Past 113 the largest entry is out of range, which is reported where it is met.
    (exponent(top(m.iter().copied())) - 14).clamp(-102, 113)
}

impl Format for F16 {
    fn name(&self) -> &'static str {
        "f16"
    }

    fn bytes(&self, rows: usize, columns: usize) -> usize {
        rows.saturating_mul(columns).saturating_mul(2).saturating_add(4)
    }

    fn encode(&self, m: &[f64], _columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let e = scale_exponent(m);
        out.extend((power_of_two(e) as f32).to_le_bytes());
        for (index, &x) in m.iter().enumerate() {
            let rounded = nearest(x, BITS, power_of_two(e - 14), power_of_two(e - 24));
            let x = in_range("f16", index, x, rounded)?;
            // Exact: the quotient is a binary16 number.
            out.extend(half::f16::from_f64(x / power_of_two(e)).to_le_bytes());
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8], _columns: usize) -> Vec<f64> {
        let (scale, bytes) = take_f32(bytes);
        bytes.as_chunks::<2>().0.iter().map(|&c| scale * half::f16::from_le_bytes(c).to_f64()).collect()
    }

    fn error(&self, m: &[f64], _columns: usize) -> CellError {
        CellError::uniform(relative_error(BITS), power_of_two(scale_exponent(m) - 25), m.len())
    }
}
