//! A transition that is not stored: three f64, the record of why.
//!
//! `T̂ = 0`, so `δT = −T`, `ε_T = ‖T‖₂`, and the stored chain forgets its error: `τ̂ = 0`. One absent segment makes an
//! error of at most `‖T‖₂·‖h‖`; the rule `‖T‖₂·n_h <= bound·‖S‖` is what makes that small beside the state it leaves.

use super::bound::TransitionBound;
use super::error::StorageError;
use super::norms::{spectral_up, up};
use crate::absence::Absence;
use crate::operator::Operator;
use crate::transition::Transition;

/// Bytes of the record.
pub(super) const BYTES: usize = 24;

/// The record for dropping the transition of `operator`, or the one that it already has.
fn record(operator: &Operator, head_norm: f64, bound: f64) -> Result<Absence, StorageError> {
    if let Transition::Absent(absence) = operator.transition() {
        return Ok(*absence);
    }
    match operator.without_transition(head_norm, bound)?.as_ref().map(Operator::transition) {
        Some(Transition::Absent(absence)) => Ok(*absence),
        _ => {
            let (t, s) = (operator.transition_norm(), operator.state_norm());
            Err(StorageError::MayNotDrop { transition_norm: t, dropped: t * head_norm, allowed: bound * s })
        }
    }
}

pub(super) fn bound(operator: &Operator, head_norm: f64, bound: f64) -> Result<TransitionBound, StorageError> {
    record(operator, head_norm, bound)?;
    let norm = match operator.transition() {
        Transition::Dense { matrix } => spectral_up(matrix, operator.key_dim()),
        other => up(other.norm(operator.key_dim())),
    };
    Ok(TransitionBound { norm, growth: 0.0, error: norm })
}

pub(super) fn encode(operator: &Operator, head_norm: f64, bound: f64, out: &mut Vec<u8>) -> Result<(), StorageError> {
    let Absence { transition_norm, state_norm, bound } = record(operator, head_norm, bound)?;
    for x in [transition_norm, state_norm, bound] {
        out.extend(x.to_le_bytes());
    }
    Ok(())
}

pub(super) fn decode(bytes: &[u8]) -> Result<Transition, StorageError> {
    let numbers: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|&c| f64::from_le_bytes(c)).collect();
    match numbers[..] {
        [transition_norm, state_norm, bound] => {
            Ok(Transition::Absent(Absence::new(transition_norm, state_norm, bound)?))
        }
        _ => Err(StorageError::Bytes { form: "absent", expected: BYTES, found: bytes.len() }),
    }
}
