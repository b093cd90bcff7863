//! Gated delta rule: `S = e^g S; u = β(v − Sᵀk); S += k uᵀ; o = scale · Sᵀq`, so `A_t = e^g (I − β k kᵀ)`.

use super::Oracle;
use crate::error::AlgebraError;
use crate::inputs::{Inputs, Run, Sizes};
use crate::operator::Operator;
use crate::transition::Transition;
use std::ops::Range;

/// The gated delta rule of Gated DeltaNet and Qwen3.5: a scalar log-gate `g` and a write strength `beta` per value head
/// and token. The decay comes first, the delta is taken against the decayed state, the read-out uses the new state.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatedDeltaRule;

impl Oracle for GatedDeltaRule {
    fn name(&self) -> &'static str {
        "gated_delta_rule"
    }

    /// q, k `[T, H, K]`, v `[T, HV, V]`, g, beta `[T, HV]`, s0 `[HV, K, V]` to o `[T, HV, V]` and the state `[HV, K, V]`.
    fn run(&self, x: &Inputs, s0: &[f64]) -> Result<Run, AlgebraError> {
        x.check_with_state(s0)?;
        let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
        let mut state = s0.to_vec(); // [HV, K, V]
        let mut o = vec![0.0; x.v.len()]; // [T, HV, V]
        for t in 0..tokens {
            for (hv, s) in state.chunks_exact_mut(key_dim * value_dim).enumerate() {
                let row = t * value_heads + hv;
                let (q, k, v) = (x.query(t, hv), x.key(t, hv), x.value(t, hv)); // [K], [K], [V]
                let decay = x.g[row].exp();
                s.iter_mut().for_each(|s| *s *= decay);
                let mut u = v.to_vec(); // [V]
                for i in 0..key_dim {
                    for j in 0..value_dim {
                        u[j] -= s[i * value_dim + j] * k[i];
                    }
                }
                u.iter_mut().for_each(|u| *u *= x.beta[row]);
                let o = &mut o[row * value_dim..][..value_dim];
                for i in 0..key_dim {
                    for j in 0..value_dim {
                        s[i * value_dim + j] += k[i] * u[j];
                        o[j] += x.scale * q[i] * s[i * value_dim + j];
                    }
                }
            }
        }
        Ok(Run { o, state })
    }

    /// Value columns are independent given k and the gates, so `T` is what K columns with v = 0 make of the identity and
    /// `S` what the V real columns make of zero: one run with K + V columns from `[I | 0]`.
    fn operator(&self, x: &Inputs, range: Range<usize>) -> Result<Vec<Operator>, AlgebraError> {
        let mut wide = x.slice(range)?;
        let (kd, vd) = (x.sizes.key_dim, x.sizes.value_dim);
        let columns = kd + vd;
        wide.sizes.value_dim = columns;
        wide.sizes.check()?;
        // [T, HV, K + V]
        wide.v = wide.v.chunks_exact(vd).flat_map(|v| std::iter::repeat_n(0.0, kd).chain(v.iter().copied())).collect();
        let mut s0 = vec![0.0; wide.sizes.state_len()]; // [HV, K, K + V]
        for (row, columns) in s0.chunks_exact_mut(columns).enumerate() {
            columns[row % kd] = 1.0;
        }
        let out = self.run(&wide, &s0)?.state;
        out.chunks_exact(kd * columns)
            .map(|head| {
                let part = |from: usize, to: usize| -> Vec<f64> {
                    head.chunks_exact(columns).flat_map(|row| row[from..to].iter().copied()).collect()
                };
                let matrix = part(0, kd);
                Operator::new(kd, vd, Transition::Dense { matrix }, part(kd, columns))
            })
            .collect()
    }

    /// `I − β k kᵀ` has the eigenvalues 1 (K − 1 times) and `1 − β‖k‖²`, and is symmetric.
    fn transition_bound(&self, x: &Inputs) -> Result<Vec<f64>, AlgebraError> {
        x.check()?;
        let mut bound = vec![1.0; x.sizes.value_heads];
        for t in 0..x.sizes.tokens {
            for (hv, bound) in bound.iter_mut().enumerate() {
                let row = t * x.sizes.value_heads + hv;
                let k2: f64 = x.key(t, hv).iter().map(|k| k * k).sum();
                let along = (1.0 - x.beta[row] * k2).abs();
                let across = if x.sizes.key_dim > 1 { 1.0 } else { 0.0 };
                *bound *= x.g[row].exp() * along.max(across);
            }
        }
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tokens, one head, K = 2, V = 1, worked by hand.
    #[test]
    fn two_tokens_by_hand() {
        let half = 0.5f64.ln();
        let x = Inputs {
            sizes: Sizes { tokens: 2, key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 1 },
            q: vec![1.0, 2.0, 3.0, 1.0],
            k: vec![1.0, 0.0, 0.6, 0.8],
            v: vec![4.0, 3.0],
            g: vec![half, half],
            beta: vec![0.5, 1.0],
            scale: 2.0,
        };
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
        let x = Inputs {
            sizes: Sizes { tokens: 1, key_heads: 2, value_heads: 4, key_dim: 1, value_dim: 1 },
            q: vec![1.0, 10.0],
            k: vec![1.0, 2.0],
            v: vec![1.0; 4],
            g: vec![0.0; 4],
            beta: vec![1.0; 4],
            scale: 1.0,
        };
        let run = GatedDeltaRule.run(&x, &[0.0; 4]).unwrap();
        assert_eq!(run.state, [1.0, 1.0, 2.0, 2.0]);
        assert_eq!(run.o, [1.0, 1.0, 20.0, 20.0]);
    }

    #[test]
    fn empty_range_is_the_identity() {
        let x = Inputs {
            sizes: Sizes { tokens: 0, key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 1 },
            q: vec![],
            k: vec![],
            v: vec![],
            g: vec![],
            beta: vec![],
            scale: 1.0,
        };
        let op = &GatedDeltaRule.operator(&x, 0..0).unwrap()[0];
        assert_eq!(op.transition().to_dense(2), [1.0, 0.0, 0.0, 1.0]);
        assert_eq!(op.state(), [0.0, 0.0]);
        assert!(GatedDeltaRule.operator(&x, 0..1).is_err());
    }
}
