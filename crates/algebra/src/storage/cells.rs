//! The formats of a matrix' entries, and the error each can make.

use super::error::StorageError;
use super::norms::{frobenius_up, magnitude_up, up};
use super::{bf16, f16, f24, f32, int16};

/// Format of the entries of a matrix `[m, n]`.
///
/// An entry is off by at most `u·|m_ij| + a_j`. So `|δ| <= u|M| + 1·aᵀ`, entry by entry, and with `A = √m·‖a‖₂`, the
/// norm of `1·aᵀ`,
///
/// * `‖δ‖_F <= u·‖M‖_F + A`,
/// * `‖δ‖₂ <= ‖|δ|‖₂ <= u·‖|M|‖₂ + A` (magnitudes only make a norm larger).
///
/// Both are attained when every entry lies halfway between two numbers of the format and all errors have the signs that
/// add up. Errors of random signs stay below the second by about `√min(m, n)`.
///
/// | cells | bytes | `u` | `a_j` |
/// |---|---|---|---|
/// | `F32` | 4 mn | 2^-24 | 2^-127 |
/// | `F24` | 3 mn | 2^-16 | 2^-127 |
/// | `F16` | 2 mn + 4 | 2^-11 | 2^-40 to 2^-39 of the largest entry, at least 2^-127 |
/// | `Bf16` | 2 mn | 2^-8 | 2^-127 |
/// | `Int16` | 2 mn + 4 n | 0 | (1 + 2^-8)/65534 of the column's largest entry, at least 2^-127 |
///
/// (`u` stands for the slightly smaller `u/(1 + u)`.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cells {
    /// IEEE binary32.
    F32,
    /// The upper three bytes of binary32, rounded.
    F24,
    /// IEEE binary16 with one power of two as a scale for the matrix.
    F16,
    /// bfloat16. Three significant digits fewer than `F16` at the same size: not for transitions of slow heads.
    Bf16,
    /// 16-bit integers with a scale for each column.
    Int16,
}

/// Bounds of what storing one matrix can cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CellError {
    /// `u`.
    pub relative: f64,
    /// `A`, at least the Frobenius norm of the part that is not relative.
    pub absolute: f64,
}

impl CellError {
    /// From `u` and the same `a` for every one of `len` entries.
    pub(super) fn uniform(relative: f64, absolute: f64, len: usize) -> Self {
        Self { relative, absolute: up(absolute * (len as f64).sqrt()) }
    }

    /// At least `‖δ‖_F`, for `norm` at least `‖M‖_F`.
    pub fn frobenius(&self, norm: f64) -> f64 {
        up(self.relative * norm + self.absolute)
    }

    /// At least `‖δ‖₂`, for `magnitudes` at least `‖|M|‖₂`.
    pub fn spectral(&self, magnitudes: f64) -> f64 {
        up(self.relative * magnitudes + self.absolute)
    }
}

/// One format. The caller guarantees finite entries, whole rows, and the length of what is decoded.
pub(super) trait Format: Sync {
    fn name(&self) -> &'static str;
    fn bytes(&self, rows: usize, columns: usize) -> usize;
    fn encode(&self, m: &[f64], columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError>;
    fn decode(&self, bytes: &[u8], columns: usize) -> Vec<f64>;
    fn error(&self, m: &[f64], columns: usize) -> CellError;
}

impl Cells {
    /// All of them, the most exact first.
    pub const ALL: [Self; 5] = [Self::F32, Self::F24, Self::Int16, Self::F16, Self::Bf16];

    fn format(self) -> &'static dyn Format {
        match self {
            Self::F32 => &f32::F32,
            Self::F24 => &f24::F24,
            Self::F16 => &f16::F16,
            Self::Bf16 => &bf16::Bf16,
            Self::Int16 => &int16::Int16,
        }
    }

    /// Name, as in error messages.
    pub fn name(self) -> &'static str {
        self.format().name()
    }

    /// Bytes of a matrix `[rows, columns]`; saturates.
    pub fn bytes(self, rows: usize, columns: usize) -> usize {
        self.format().bytes(rows, columns)
    }

    /// Bounds of the error for the matrix `m`, row-major with `columns` columns, of finite values.
    pub fn error(self, m: &[f64], columns: usize) -> CellError {
        self.format().error(m, columns)
    }

    pub(super) fn encode(self, m: &[f64], columns: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        self.format().encode(m, columns, out)
    }

    pub(super) fn decode(self, bytes: &[u8], columns: usize) -> Vec<f64> {
        self.format().decode(bytes, columns)
    }

    /// `ε_S` and the norm it is relative to, for a state with `columns` value dims.
    pub(super) fn state_bound(self, s: &[f64], columns: usize) -> (f64, f64) {
        let norm = frobenius_up(s);
        (norm, self.error(s, columns).frobenius(norm))
    }

    /// `ε_T` of a square matrix.
    pub(super) fn square_error(self, m: &[f64], n: usize) -> f64 {
        self.error(m, n).spectral(magnitude_up(m, n))
    }
}

/// Largest magnitude.
pub(super) fn top(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |m: f64, x| m.max(x.abs()))
}

/// The next 4 bytes as an f32; the rest of the slice. An empty slice reads as 0, which no checked length leads to.
pub(super) fn take_f32(bytes: &[u8]) -> (f64, &[u8]) {
    match bytes.split_first_chunk::<4>() {
        Some((first, rest)) => (f64::from(std::primitive::f32::from_le_bytes(*first)), rest),
        None => (0.0, &[]),
    }
}
