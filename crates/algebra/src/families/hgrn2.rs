//! HGRN2 (Qin et al. 2024): `S = diag(f) S + (1 − f) vᵀ`. The forget gate, bounded from below layer by layer, is also the key:
//! gated linear attention with `k = 1 − e^g`.

use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::sigmoid;
use crate::inputs::Inputs;
use crate::sizes::Sizes;
use crate::strategy::Case;

/// The state-expanded gated recurrence of HGRN2.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hgrn2;

impl Family for Hgrn2 {
    fn name(&self) -> &'static str {
        "hgrn2"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Diagonal
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }

    /// As many value heads as key heads: the gate is the key.
    fn sizes(&self, case: &Case) -> Sizes {
        Sizes { value_heads: case.key_heads, ..case.sizes() }
    }

    fn adapt(&self, _case: &Case, x: &mut Inputs) {
        x.k = x.g.iter().map(|&g| key(g)).collect();
    }
}

/// `ln(bound + (1 − bound)·sigmoid(x))`, per key dim.
pub fn log_gate(x: f64, bound: f64) -> f64 {
    (bound + (1.0 - bound) * sigmoid(x)).ln()
}

/// `1 − e^g`, without cancellation near g = 0.
pub fn key(log_gate: f64) -> f64 {
    -log_gate.exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::{Kind, Rounding};

    /// What is written is what is forgotten: a state of equal rows `v` under values `v` stays as it is.
    #[test]
    fn a_constant_value_is_a_fixed_point() {
        let case = Case { seed: 3, kind: Kind::Anything, tokens: 50, key_heads: 1, ratio: 1, key_dim: 6, value_dim: 2 };
        let (mut x, _) = Hgrn2.inputs(&case, Rounding::F64);
        x.v = [2.0, -3.0].repeat(50);
        let still = [2.0, -3.0].repeat(6);
        let run = Hgrn2.run(&x, &still).unwrap();
        // 50 tokens, a rounding each.
        assert!(crate::matrix::distance(&run.state, &still) < 1e-13);
    }

    #[test]
    fn gate_and_key() {
        assert!((log_gate(0.0, 0.5) - 0.75f64.ln()).abs() < 1e-16);
        assert_eq!(log_gate(-1e3, 0.25), 0.25f64.ln());
        assert_eq!((key(0.0), key(-1e3)), (0.0, 1.0));
        assert!((key(-1e-12) / 1e-12 - 1.0).abs() < 1e-11);
    }
}
