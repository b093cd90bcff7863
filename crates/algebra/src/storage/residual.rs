//! A transition as `γI + D`: `γ` as one f32, `D` as cells. For slow heads, whose `T` is near a multiple of `I`.
//!
//! `D = T − γ̂I` is taken with the *stored* `γ̂`, so rounding `γ` costs nothing and only `D` is rounded: `ε_T =
//! u·‖|D|‖₂ + A`. It pays when `‖|D|‖₂ < ‖|T|‖₂`; for `‖T‖₂ < 0.5` it does not. Equal roundings of the diagonal of a
//! near-identity `T`, which a chain of n segments would add up n times, are gone: the diagonal of `D` is small.
//!
//! In f64, `T_ii − γ̂` and `γ̂ + D̂_ii` are rounded once each; the bound carries `2·2^-53·(|T_ii| + 2γ̂)` for it. A
//! device adds `γ̂h` and `D̂h` instead.

use super::bound::TransitionBound;
use super::cells::{Cells, take_f32, top};
use super::error::StorageError;
use super::f32::one;
use super::norms::{U64, spectral_up, up};
use crate::error::check_log_gates;
use crate::transition::Transition;

/// `γ̂` and `D`.
fn split(matrix: &[f64], key_dim: usize, log_gamma: f64) -> Result<(f32, Vec<f64>), StorageError> {
    check_log_gates("log-sum of the residual form", &[log_gamma])?;
    let gamma = one("γI + D", log_gamma.exp())?;
    let mut d = matrix.to_vec();
    d.iter_mut().step_by(key_dim + 1).for_each(|x| *x -= f64::from(gamma));
    Ok((gamma, d))
}

pub(super) fn bound(
    matrix: &[f64],
    key_dim: usize,
    log_gamma: f64,
    cells: Cells,
) -> Result<TransitionBound, StorageError> {
    let (gamma, d) = split(matrix, key_dim, log_gamma)?;
    let diagonal = top(matrix.iter().step_by(key_dim + 1).copied());
    let arithmetic = 2.0 * U64 * (diagonal + 2.0 * f64::from(gamma));
    Ok(TransitionBound::rounded(spectral_up(matrix, key_dim), up(cells.square_error(&d, key_dim) + arithmetic)))
}

pub(super) fn encode(
    matrix: &[f64],
    key_dim: usize,
    log_gamma: f64,
    cells: Cells,
    out: &mut Vec<u8>,
) -> Result<(), StorageError> {
    let (gamma, d) = split(matrix, key_dim, log_gamma)?;
    out.extend(gamma.to_le_bytes());
    cells.encode(&d, key_dim, out)
}

pub(super) fn decode(bytes: &[u8], key_dim: usize, cells: Cells) -> Transition {
    let (gamma, bytes) = take_f32(bytes);
    let mut matrix = cells.decode(bytes, key_dim);
    matrix.iter_mut().step_by(key_dim + 1).for_each(|x| *x += gamma);
    Transition::Dense { matrix }
}
