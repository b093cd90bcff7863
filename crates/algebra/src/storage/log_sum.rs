//! Scalar and diagonal transitions as f32 log-sums: 4 bytes, or 4 K.
//!
//! `ĝ = g + θ` with `|θ| <= u|g| + 2^-127`, `u = 2^-24`, so `|e^ĝ − e^g| = e^g|e^θ − 1| <= γ·expm1(|θ|)`. For `γ = e^g`
//! this is at most about `u/e = 2.2e-8` whatever the decay (`|g|e^g <= 1/e`), and vanishes at both ends: near 1 because
//! `|g|` is small, near 0 because `γ` is. `‖T̂‖₂ <= 1` still holds, as `ĝ <= 0`. The error of a diagonal is the largest
//! of its entries'.

use super::bound::TransitionBound;
use super::cells::take_f32;
use super::error::StorageError;
use super::f32::{one, one_error};
use super::norms::up;
use crate::transition::Transition;

/// Below this, `e^g` and `e^ĝ` are both below 1e-300: the bound is then that.
const GONE: f64 = -700.0;

/// `|e^ĝ − e^g|` at most.
pub(super) fn decay_error(log: f64) -> f64 {
    if log < GONE { 1e-300 } else { up(log.exp() * one_error(log).exp_m1()) }
}

pub(super) fn bound(logs: &[f64]) -> TransitionBound {
    let norm = up(logs.iter().fold(f64::MIN, |m, &l| m.max(l)).exp());
    let error = logs.iter().fold(0.0f64, |m, &l| m.max(decay_error(l)));
    TransitionBound { norm, growth: up(norm + error).min(1.0), error }
}

pub(super) fn encode(logs: &[f64], out: &mut Vec<u8>) -> Result<(), StorageError> {
    for &log in logs {
        // A sum below f32's range is the same exact 0 when applied as the lowest f32 is.
        out.extend(one("log-sum", log.max(f64::from(f32::MIN)))?.to_le_bytes());
    }
    Ok(())
}

pub(super) fn decode_scalar(bytes: &[u8]) -> Transition {
    Transition::Scalar { log: take_f32(bytes).0 }
}

pub(super) fn decode_diagonal(bytes: &[u8]) -> Transition {
    Transition::Diagonal { log: bytes.chunks_exact(4).map(|c| take_f32(c).0).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_decay_is_within_its_bound_and_below_2e_8_everywhere() {
        for i in 0..4000 {
            // From 1e-12 to 1e4.
            let log = -10f64.powf(-12.0 + f64::from(i) * 0.004);
            let stored = f64::from(one("log-sum", log).unwrap());
            let error = (stored.exp() - log.exp()).abs();
            let bound = decay_error(log);
            // Two roundings of exp to f64 near 1.
            assert!(error <= bound + 2.3e-16, "{log:e}: {error:e} {bound:e}");
            assert!(bound < 2.3e-8);
        }
        assert_eq!(bound(&[0.0]).growth, 1.0);
        assert!(bound(&[0.0]).error < 1e-37);
    }
}
