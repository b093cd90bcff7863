//! A transition written out as `K·K` cells.
//!
//! `ε_T = u·‖|T|‖₂ + A`: entries are rounded one by one, so the error is bounded by the norm of the *magnitudes*, which
//! is up to `√K` times `‖T‖₂`. Nothing keeps `‖T̂‖₂ <= 1`.

use super::bound::TransitionBound;
use super::cells::Cells;
use super::error::StorageError;
use super::norms::spectral_up;
use crate::transition::Transition;

pub(super) fn bound(matrix: &[f64], key_dim: usize, cells: Cells) -> TransitionBound {
    TransitionBound::rounded(spectral_up(matrix, key_dim), cells.square_error(matrix, key_dim))
}

pub(super) fn encode(matrix: &[f64], key_dim: usize, cells: Cells, out: &mut Vec<u8>) -> Result<(), StorageError> {
    cells.encode(matrix, key_dim, out)
}

pub(super) fn decode(bytes: &[u8], key_dim: usize, cells: Cells) -> Transition {
    Transition::Dense { matrix: cells.decode(bytes, key_dim) }
}
