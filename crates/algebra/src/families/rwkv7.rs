//! RWKV-7: `S = diag(e^g) S + b (aᵀS) + k vᵀ`, a diagonal plus a rank one that need not be symmetric
//! (Peng et al. 2025: `a = −κ̂`, `b = η ⊙ κ̂` with a unit removal key `κ̂` and a rate `η` in `[0, 1]` per key dim).
//!
//! The removal reads the state of before the decay. A step's norm may exceed 1 (an oblique projection), so `‖T‖₂` is bounded
//! only by the product of the steps. Before the recurrence every row is mixed with the one before it (token shift), a
//! convolution of two tokens: entries start at token 1, and everything of token 0, its gates too, is recomputed.

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::sigmoid;
use crate::inputs::{Extra, Heads, Inputs, Run};
use crate::matrix::frobenius;
use crate::rng::normalise;
use crate::sizes::Sizes;
use crate::strategy::{Case, Kind};

/// The generalised delta rule of RWKV-7. Extras: `a` and `b`, both `[T, H, K]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rwkv7;

impl Family for Rwkv7 {
    fn name(&self) -> &'static str {
        "rwkv7"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Diagonal
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Delta
    }

    fn has_strength(&self) -> bool {
        false
    }

    fn extras(&self) -> &'static [&'static str] {
        &["a", "b"]
    }

    fn conv_kernel(&self) -> Option<usize> {
        Some(2)
    }

    /// Removal keys as hard as the keys, rates from 0 to 1.
    fn adapt(&self, case: &Case, x: &mut Inputs) {
        let (mut rng, dim) = (case.rng(22), x.sizes.key_dim);
        let pool = [rng.direction(dim), rng.direction(dim)];
        let (mut a, mut b) = (vec![], vec![]);
        for _ in 0..x.sizes.tokens * x.sizes.key_heads {
            let kappa = match case.kind {
                Kind::RepeatedKeys => pool[rng.up_to(1)].clone(),
                Kind::AllZeroKeys => vec![0.0; dim],
                Kind::ZeroKeys if rng.chance(0.5) => vec![0.0; dim],
                _ => rng.direction(dim),
            };
            let rates: Vec<f64> = kappa
                .iter()
                .map(|_| match case.kind {
                    Kind::BetaZero => 0.0,
                    Kind::BetaOne => 1.0,
                    Kind::BetaTiny => rng.power(-8.0, -4.0),
                    _ => rng.unit(),
                })
                .collect();
            let removal = removal(&kappa, &rates);
            a.extend(removal.0);
            b.extend(removal.1);
        }
        x.extras = vec![extra("a", dim, a), extra("b", dim, b)];
    }

    /// q, k, a, b `[T, H, K]`, v `[T, HV, V]`, g `[T, HV, K]` to o `[T, HV, V]` and the state `[HV, K, V]`.
    fn run(&self, x: &Inputs, s0: &[f64]) -> Result<Run, AlgebraError> {
        self.check_with_state(x, s0)?;
        let (a, b) = arrays(x)?;
        let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
        let mut state = s0.to_vec(); // [HV, K, V]
        let mut o = vec![0.0; tokens * value_heads * value_dim]; // [T, HV, V]
        for t in 0..tokens {
            for (hv, s) in state.chunks_exact_mut(key_dim * value_dim).enumerate() {
                let (a, b) = (x.extra_row(a, t, hv), x.extra_row(b, t, hv)); // [K], [K]
                let (q, k, v) = (x.query(t, hv), x.key(t, hv), x.value(t, hv)); // [K], [K], [V]
                let o = &mut o[(t * value_heads + hv) * value_dim..][..value_dim];
                let decay: Vec<f64> = (0..key_dim).map(|i| x.log_gate(t, hv, i).exp()).collect();
                for j in 0..value_dim {
                    let read: f64 = (0..key_dim).map(|i| a[i] * s[i * value_dim + j]).sum();
                    for i in 0..key_dim {
                        let e = &mut s[i * value_dim + j];
                        *e = decay[i] * *e + b[i] * read + k[i] * v[j];
                        o[j] += x.scale * q[i] * *e;
                    }
                }
            }
        }
        Ok(Run { o, state })
    }

    /// `‖diag(d) + b aᵀ‖₂ <= max d + ‖a‖‖b‖`.
    fn step_norms(&self, x: &Inputs) -> Result<Vec<f64>, AlgebraError> {
        self.check(x)?;
        let (a, b) = arrays(x)?;
        let decays = crate::skeleton::step_norms(x, UpdateKind::Add);
        let heads = x.sizes.value_heads;
        let removed = |i: usize| {
            let row = |extra| frobenius(x.extra_row(extra, i / heads, i % heads));
            row(a) * row(b)
        };
        Ok(decays.iter().enumerate().map(|(i, d)| d + removed(i)).collect())
    }
}

/// The extras a and b, `[T, H, K]`.
fn arrays(x: &Inputs) -> Result<(&Extra, &Extra), AlgebraError> {
    let get = |name| x.extra(name, Heads::Key, x.sizes.key_dim);
    Ok((get("a")?, get("b")?))
}

fn extra(name: &'static str, dim: usize, values: Vec<f64>) -> Extra {
    Extra { name, heads: Heads::Key, dim, idle: 0.0, values }
}

/// `g = −e^(−1/2) · sigmoid(x)`, per key dim: a decay of at least 0.545.
pub fn log_gate(x: f64) -> f64 {
    -(-0.5f64).exp() * sigmoid(x)
}

/// `(a, b)` of a removal key and its rates, `[K]` each: `κ̂ = κ/‖κ‖`, `a = −κ̂`, `b = η ⊙ κ̂`.
pub fn removal(kappa: &[f64], rates: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut unit = kappa.to_vec();
    normalise(&mut unit);
    (unit.iter().map(|k| -k).collect(), unit.iter().zip(rates).map(|(k, r)| k * r).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{distance, matmul};
    use crate::strategy::Rounding;

    /// The published form: the value axis first, `S = S (diag(w) − κ̂ᵀ(η ⊙ κ̂)) + vᵀ k` with row vectors, as matrices.
    #[test]
    fn agrees_with_the_published_matrices() {
        let case = Case { seed: 4, kind: Kind::Typical, tokens: 20, key_heads: 2, ratio: 1, key_dim: 5, value_dim: 3 };
        let (x, s0) = Rwkv7.inputs(&case, Rounding::F64);
        let (k, v) = (5, 3);
        let run = Rwkv7.run(&x, &s0).unwrap();
        for head in 0..2 {
            let first = &s0[head * k * v..][..k * v];
            let mut s: Vec<f64> = (0..v * k).map(|n| first[n % k * v + n / k]).collect(); // [V, K]
            for t in 0..20 {
                let row = |values: &[f64]| values[(t * 2 + head) * k..][..k].to_vec();
                let (a, b) = (row(&x.extras[0].values), row(&x.extras[1].values));
                let (key, value, q) = (row(&x.k), &x.v[(t * 2 + head) * v..][..v], row(&x.q));
                let mut step: Vec<f64> = (0..k * k).map(|n| a[n / k] * b[n % k]).collect();
                (0..k).for_each(|i| step[i * (k + 1)] += x.g[(t * 2 + head) * k + i].exp());
                s = matmul(&s, &step, v, k, k);
                (0..v * k).for_each(|n| s[n] += value[n / k] * key[n % k]);
                let o = matmul(&s, &q, v, k, 1).iter().map(|o| o * x.scale).collect::<Vec<_>>();
                // 20 tokens of the same sums in another order.
                assert!(distance(&o, &run.o[(t * 2 + head) * v..][..v]) < 1e-13);
            }
            let turned: Vec<f64> = (0..k * v).map(|n| s[n % v * k + n / v]).collect();
            assert!(distance(&turned, &run.state[head * k * v..][..k * v]) < 1e-13);
        }
    }

    #[test]
    fn a_full_rate_removes_the_key_and_zero_does_nothing() {
        let (a, b) = removal(&[3.0, 4.0], &[1.0, 1.0]);
        assert_eq!((a, b), (vec![-0.6, -0.8], vec![0.6, 0.8]));
        assert_eq!(removal(&[0.0, 0.0], &[1.0, 1.0]), (vec![-0.0, -0.0], vec![0.0, 0.0]));
        assert!((log_gate(1e3) + 0.606_530_659_712_633_4).abs() < 1e-15);
        assert_eq!(log_gate(-1e3), 0.0);
    }

    /// Why this family is not called contractive: one step may lengthen a state.
    #[test]
    fn one_step_may_exceed_norm_one() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let (a, b) = removal(&[half, half], &[1.0, 0.0]);
        let sizes = Sizes { tokens: 1, key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 1 };
        let plain = Inputs::new(sizes, vec![0.0; 2], vec![0.0; 2], vec![0.0], 1.0);
        let (g, extras) = (vec![0.0; 2], vec![extra("a", 2, a), extra("b", 2, b)]);
        let x = Inputs { g, decay: DecayKind::Diagonal, extras, ..plain };
        let norm = Rwkv7.operator(&x, 0..1).unwrap()[0].transition_norm();
        // [[½, −½], [0, 1]]: σ² is the larger root of z² − 1.5 z + 0.25.
        assert!((norm * norm - (1.5 + 1.25f64.sqrt()) / 2.0).abs() < 1e-13, "{norm}");
        assert!(Rwkv7.transition_bound(&x).unwrap()[0] >= norm);
    }
}
