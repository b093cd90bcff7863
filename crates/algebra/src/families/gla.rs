//! Gated linear attention: `S = diag(e^g) S + k vᵀ`, a gate per head, token and key dim. Its keys are not rotated, and could
//! not be: a rotation does not commute with the decays of its two dims.

use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::log_sigmoid;

/// Linear attention with a gate per key dim.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gla;

impl Family for Gla {
    fn name(&self) -> &'static str {
        "gla"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Diagonal
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }
}

/// `ln sigmoid(x) / normaliser`, 16 in the published models.
pub fn log_gate(x: f64, normaliser: f64) -> f64 {
    log_sigmoid(x) / normaliser
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens() {
        assert_eq!(Golden::open("gla").hold(&Gla, DecayKind::Diagonal), 15);
    }

    #[test]
    fn gate_is_the_published_one() {
        let ops = Golden::open("ops");
        for (x, want) in ops.values("gla_gate/x").iter().zip(ops.values("gla_gate/gk")) {
            // Two implementations of ln(1 + e^x); relative, down to the smallest gates.
            assert!((log_gate(*x, 16.0) - want).abs() <= 1e-15 * want.abs(), "{x}");
        }
    }
}
