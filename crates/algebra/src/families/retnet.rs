//! RetNet: `S = γ_h S + k vᵀ`, a fixed decay per head, keys rotated over all dims. `T = γ^n` needs only the length n, and a
//! segment moves by `S(p+Δ) = R(Δ)·S(p)`.

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::inputs::Inputs;
use crate::strategy::Case;

/// Retention.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetNet;

impl Family for RetNet {
    fn name(&self) -> &'static str {
        "retnet"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Fixed
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }

    fn rotated_keys(&self) -> bool {
        true
    }

    fn adapt(&self, _case: &Case, x: &mut Inputs) {
        x.g = gates(x.sizes.value_heads);
    }
}

/// Log-gates `[heads]`: `ln(1 − 2^(−5−h))`, h from 0.
///
/// # Errors
/// No heads.
pub fn log_gates(heads: usize) -> Result<Vec<f64>, AlgebraError> {
    if heads == 0 {
        return Err(AlgebraError::Dimension { what: "heads", value: 0, reason: "must be at least 1" });
    }
    Ok(gates(heads))
}

fn gates(heads: usize) -> Vec<f64> {
    (0..heads).map(|h| (-2f64.powf(-5.0 - h as f64)).ln_1p()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens() {
        let golden = Golden::open("retention");
        // The file holds a gate a token, rounded to f32.
        assert_eq!(golden.hold(&RetNet, DecayKind::Scalar), 11);
        let (x, _) = golden.inputs("len_t7", DecayKind::Scalar);
        for (file, own) in x.g.iter().zip(log_gates(4).unwrap()) {
            assert_eq!(*file, f64::from(own as f32));
        }
        for (file, own) in Golden::open("ops").values("retnet_gamma/log_gamma").iter().zip(log_gates(16).unwrap()) {
            // Two implementations of ln(1 + x).
            assert!((file / own - 1.0).abs() < 1e-15);
        }
        assert!(log_gates(0).is_err());
    }

    /// A fixed gate is a gate a token that stays the same; its operator is known from the length alone.
    #[test]
    fn fixed_and_unrolled_gates_agree() {
        let golden = Golden::open("retention");
        let (x, s0) = golden.inputs("len_t65", DecayKind::Scalar);
        let fixed = Inputs { g: x.g[..4].to_vec(), decay: DecayKind::Fixed, ..x.clone() };
        assert_eq!(RetNet.run(&x, &s0).unwrap(), RetNet.run(&fixed, &s0).unwrap());
        let log = |x: &Inputs| match RetNet.operator(x, 5..65).unwrap()[3].transition() {
            crate::Transition::Scalar { log } => *log,
            other => panic!("{other:?}"),
        };
        assert_eq!(log(&fixed), 60.0 * x.g[3]);
        // 60 additions.
        assert!((log(&x) / log(&fixed) - 1.0).abs() < 1e-14);
    }
}
