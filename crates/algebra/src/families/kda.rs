//! Kimi delta attention: `S = diag(e^g) S; u = β(v − Sᵀk); S += k uᵀ`, so `A = (I − β k kᵀ) diag(e^g)`: a gate per key dim
//! before the delta. `T` is dense.

use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::{sigmoid, softplus};

/// The delta rule with a gate per key dim.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kda;

impl Family for Kda {
    fn name(&self) -> &'static str {
        "kda"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Diagonal
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Delta
    }

    fn conv_kernel(&self) -> Option<usize> {
        Some(4)
    }
}

/// `−e^(A_log) · softplus(f + dt_bias)`, `A_log` per head, `dt_bias` per head and key dim.
pub fn log_gate(a_log: f64, dt_bias: f64, f: f64) -> f64 {
    -a_log.exp() * softplus(f + dt_bias)
}

/// The bounded variant (Ling-3.0): `bound · sigmoid(e^(A_log) · (f + dt_bias))`, with a bound of −5.
pub fn bounded_log_gate(a_log: f64, dt_bias: f64, f: f64, bound: f64) -> f64 {
    bound * sigmoid(a_log.exp() * (f + dt_bias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens() {
        assert_eq!(Golden::open("kda").hold(&Kda, DecayKind::Diagonal), 22);
    }

    #[test]
    fn gates_are_the_published_ones() {
        let ops = Golden::open("ops");
        let (a, bias, f) = (ops.values("kda_gate/A_log"), ops.values("kda_gate/dt_bias"), ops.values("kda_gate/f"));
        let (plain, safe) = (ops.values("kda_gate/g"), ops.values("kda_safe_gate/g"));
        for (i, &f) in f.iter().enumerate() {
            let (head, dim) = (i / 8 % 3, i % 24);
            // Relative, down to gates of 1e-300: e^x at |x| in the hundreds is a few hundred roundings of x away.
            let near = |got: f64, want: f64| assert!((got - want).abs() <= 1e-12 * want.abs(), "{got:e} {want:e}");
            near(log_gate(a[head], bias[dim], f), plain[i]);
            near(bounded_log_gate(a[head], bias[dim], f, -5.0), safe[i]);
        }
    }
}
