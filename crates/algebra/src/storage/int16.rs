//! Entries as 16-bit integers with a scale for each column: `m_ij = q_ij · s_j`, `|q| <= 32767`.
//!
//! `s_j` is the column's largest entry over 32767, rounded *up* to 9 significant bits. Up, so that `|q|` fits; to 9
//! bits, so that `q·s` has at most 24 and is an f32 exactly: a device that multiplies rounds nothing more. It makes the
//! steps at most `1 + 2^-8` times as wide. Rounding `q` to nearest leaves `u = 0` and `a_j = s_j/2 <= (1 + 2^-8)/65534
//! · max_i |m_ij|`.
//!
//! `s_j` is at least the smallest normal f32, so that every number that is decoded is 0 or normal.

use super::cells::{CellError, Format, take_f32, top};
use super::error::StorageError;
use super::norms::{frobenius_up, up};
use super::round::{F32_NORMAL, exponent, in_range, power_of_two};

pub(super) struct Int16;

const MOST: f64 = 32767.0;

/// `s_j` for every column; 0 for a column of zeros.
fn scales(m: &[f64], columns: usize) -> Vec<f64> {
    (0..columns)
        .map(|j| {
            let top = top(m.iter().skip(j).step_by(columns).copied());
            if top == 0.0 {
                return 0.0;
            }
            let step = (top / MOST).max(F32_NORMAL);
            let quantum = power_of_two(exponent(step) - 8);
            (step / quantum).ceil() * quantum
        })
        .collect()
}

impl Format for Int16 {
    fn name(&self) -> &'static str {
        "int16"
    }

    fn bytes(&self, rows: usize, columns: usize) -> usize {
        rows.saturating_mul(columns).saturating_mul(2).saturating_add(columns.saturating_mul(4))
    }

    fn encode(&self, m: &[f64], columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let scales = scales(m, columns);
        for (j, &s) in scales.iter().enumerate() {
            // Nine bits: exact as an f32.
            out.extend((in_range("int16 scale", j, s, s)? as f32).to_le_bytes());
        }
        for (index, (&x, &s)) in m.iter().zip(scales.iter().cycle()).enumerate() {
            let q = if s == 0.0 { 0.0 } else { (x / s).round_ties_even() };
            in_range("int16", index, x, q * s)?;
            out.extend((q as i16).to_le_bytes());
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8], columns: usize) -> Vec<f64> {
        let (scales, cells) = bytes.split_at(bytes.len().min(columns * 4));
        let scales: Vec<f64> = scales.chunks_exact(4).map(|c| take_f32(c).0).collect();
        let q = cells.as_chunks::<2>().0.iter().map(|&c| f64::from(i16::from_le_bytes(c)));
        q.zip(scales.iter().cycle()).map(|(q, s)| q * s).collect()
    }

    fn error(&self, m: &[f64], columns: usize) -> CellError {
        let rows = m.len().checked_div(columns).unwrap_or(0);
        // The quotient x/s is off by 2^-53 of itself, less than 2^-37 of a step.
        let half: Vec<f64> = scales(m, columns).iter().map(|s| s * 0.5 * (1.0 + power_of_two(-36))).collect();
        CellError { relative: 0.0, absolute: up(frobenius_up(&half) * (rows as f64).sqrt()) }
    }
}
