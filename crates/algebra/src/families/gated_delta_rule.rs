//! Gated delta rule: `S = e^g S; u = β(v − Sᵀk); S += k uᵀ; o = scale · Sᵀq`, so `A_t = e^g (I − β k kᵀ)`.

use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::{sigmoid, softplus};

/// The gated delta rule of Gated DeltaNet and Qwen3.5: a scalar log-gate `g` and a write strength `beta` per value head
/// and token. The decay comes first, the delta is taken against the decayed state, the read-out uses the new state.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatedDeltaRule;

impl Family for GatedDeltaRule {
    fn name(&self) -> &'static str {
        "gated_delta_rule"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Scalar
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Delta
    }

    fn conv_kernel(&self) -> Option<usize> {
        Some(4)
    }
}

/// `−e^(A_log) · softplus(a + dt_bias)`, per value head and token.
pub fn log_gate(a_log: f64, dt_bias: f64, a: f64) -> f64 {
    -a_log.exp() * softplus(a + dt_bias)
}

/// `sigmoid(b)`, twice that where negative eigenvalues are allowed (OLMo-Hybrid).
pub fn write_strength(b: f64, negative_eigenvalues: bool) -> f64 {
    if negative_eigenvalues { 2.0 * sigmoid(b) } else { sigmoid(b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;
    use crate::inputs::Inputs;
    use crate::sizes::Sizes;

    #[test]
    fn goldens() {
        assert_eq!(Golden::open("gated_delta_rule").hold(&GatedDeltaRule, DecayKind::Scalar), 22);
    }

    #[test]
    fn gates_are_the_published_ones() {
        let ops = Golden::open("ops");
        let get = |name: &str| ops.values(&format!("gdn_gate/{name}"));
        let (a, b, a_log, bias, g, beta) = (get("a"), get("b"), get("A_log"), get("dt_bias"), get("g"), get("beta"));
        for i in 0..a.len() {
            // Relative, down to the smallest gates: a handful of roundings.
            let near = |got: f64, want: f64| assert!((got - want).abs() <= 1e-14 * want.abs(), "{got:e} {want:e}");
            near(log_gate(a_log[i % 6], bias[i % 6], a[i]), g[i]);
            near(write_strength(b[i], false), beta[i]);
            near(write_strength(b[i], true), 2.0 * beta[i]);
        }
    }

    fn gated(sizes: Sizes, q: Vec<f64>, k: Vec<f64>, v: Vec<f64>, g: Vec<f64>, beta: Vec<f64>, scale: f64) -> Inputs {
        Inputs { g, beta, decay: DecayKind::Scalar, ..Inputs::new(sizes, q, k, v, scale) }
    }

    /// Two tokens, one head, K = 2, V = 1, worked by hand.
    #[test]
    fn two_tokens_by_hand() {
        let half = 0.5f64.ln();
        let sizes = Sizes { tokens: 2, key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 1 };
        let (q, k) = (vec![1.0, 2.0, 3.0, 1.0], vec![1.0, 0.0, 0.6, 0.8]);
        let x = gated(sizes, q, k, vec![4.0, 3.0], vec![half, half], vec![0.5, 1.0], 2.0);
        let run = GatedDeltaRule.run(&x, &[2.0, 6.0]).unwrap();
        // Token 1: S = (1, 3); u = 0.5(4 − 1) = 1.5; S = (2.5, 3); o = 2(2.5 + 6) = 17.
        // Token 2: S = (1.25, 1.5); u = 3 − 0.75 − 1.2 = 1.05; S = (1.88, 2.34); o = 2(5.64 + 2.34) = 15.96.
        for (got, want) in run.o.iter().chain(&run.state).zip([17.0, 15.96, 1.88, 2.34]) {
            // Ten roundings of numbers below 20.
            assert!((got - want).abs() < 1e-14, "{got} against {want}");
        }
        let op = &GatedDeltaRule.operator(&x, 1..2).unwrap()[0];
        // T = 0.5(I − k kᵀ), S = k·3.
        let want = [0.32, -0.24, -0.24, 0.18];
        for (got, want) in op.transition().to_dense(2).iter().zip(want) {
            assert!((got - want).abs() < 1e-15);
        }
        assert!((op.state()[0] - 1.8).abs() < 1e-15 && (op.state()[1] - 2.4).abs() < 1e-15);
    }

    #[test]
    fn value_heads_read_their_key_head() {
        // H = 2, HV = 4, K = V = 1: heads 0, 1 read key 0, heads 2, 3 read key 1.
        let sizes = Sizes { tokens: 1, key_heads: 2, value_heads: 4, key_dim: 1, value_dim: 1 };
        let x = gated(sizes, vec![1.0, 10.0], vec![1.0, 2.0], vec![1.0; 4], vec![0.0; 4], vec![1.0; 4], 1.0);
        let run = GatedDeltaRule.run(&x, &[0.0; 4]).unwrap();
        assert_eq!(run.state, [1.0, 1.0, 2.0, 2.0]);
        assert_eq!(run.o, [1.0, 1.0, 20.0, 20.0]);
    }

    #[test]
    fn empty_range_is_the_identity() {
        let sizes = Sizes { tokens: 0, key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 1 };
        let x = gated(sizes, vec![], vec![], vec![], vec![], vec![], 1.0);
        let op = &GatedDeltaRule.operator(&x, 0..0).unwrap()[0];
        assert_eq!(op.transition().to_dense(2), [1.0, 0.0, 0.0, 1.0]);
        assert_eq!(op.state(), [0.0, 0.0]);
        assert!(GatedDeltaRule.operator(&x, 0..1).is_err());
    }
}
