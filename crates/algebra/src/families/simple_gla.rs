//! Simple gated linear attention: `S = e^g S + k vᵀ`, a scalar gate per head and token that depends on the data.

use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::log_sigmoid;

/// Linear attention with a scalar gate.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimpleGla;

impl Family for SimpleGla {
    fn name(&self) -> &'static str {
        "simple_gla"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Scalar
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }
}

/// `ln sigmoid(x) / normaliser`: published models divide by 16, so that the decay starts near 1.
pub fn log_gate(x: f64, normaliser: f64) -> f64 {
    log_sigmoid(x) / normaliser
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens() {
        assert_eq!(Golden::open("simple_gla").hold(&SimpleGla, DecayKind::Scalar), 14);
    }
}
