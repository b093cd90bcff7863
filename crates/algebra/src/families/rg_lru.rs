//! RG-LRU (Griffin, RecurrentGemma): per channel `h = a·h + √(1 − a²)·(i·x)`, `ln a = −8·softplus(Λ)·sigmoid(r)`; the output
//! is `h` itself.
//!
//! A channel is a head of one key dim and one value, with key and query 1, value `i·x` and write strength `√(1 − a²)`. The
//! published code also lets position 0 of a sequence write with strength 1 and forget what was before it. That is a
//! property of the prompt's first token, not of a segment's: an entry must be computed without it, which costs nothing,
//! since entries start behind the tokens that the convolution (kernel 4) reaches.

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::{sigmoid, softplus};
use crate::inputs::Inputs;
use crate::sizes::Sizes;
use crate::strategy::Case;

/// The real-gated linear recurrent unit.
#[derive(Debug, Clone, Copy, Default)]
pub struct RgLru;

impl Family for RgLru {
    fn name(&self) -> &'static str {
        "rg_lru"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Diagonal
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }

    fn has_strength(&self) -> bool {
        true
    }

    fn conv_kernel(&self) -> Option<usize> {
        Some(4)
    }

    fn sizes(&self, case: &Case) -> Sizes {
        let channels = case.sizes().value_heads;
        Sizes { tokens: case.tokens, key_heads: channels, value_heads: channels, key_dim: 1, value_dim: 1 }
    }

    fn adapt(&self, _case: &Case, x: &mut Inputs) {
        x.q.fill(1.0);
        x.k.fill(1.0);
        x.beta = x.g.iter().map(|&g| write_strength(g)).collect();
        x.scale = 1.0;
    }
}

/// `ln a = −8 · softplus(Λ) · sigmoid(r)`: Λ per channel, r the recurrence gate before its sigmoid.
pub fn log_gate(lambda: f64, r: f64) -> f64 {
    -8.0 * softplus(lambda) * sigmoid(r)
}

/// `√(1 − a²)` from `ln a`, without cancellation near a = 1.
pub fn write_strength(log_gate: f64) -> f64 {
    (-(2.0 * log_gate).exp_m1()).sqrt()
}

/// Inputs from a model's own arrays, all `[T, D]`: x, `ln a`, and the input gate before its sigmoid.
///
/// # Errors
/// Those of [`Inputs::check`].
pub fn inputs(channels: usize, x: &[f64], log_a: Vec<f64>, input: &[f64]) -> Result<Inputs, AlgebraError> {
    crate::error::check_length("input gate [T, D]", x.len(), input.len())?;
    let tokens = x.len() / channels.max(1);
    let sizes = Sizes { tokens, key_heads: channels, value_heads: channels, key_dim: 1, value_dim: 1 };
    let v = x.iter().zip(input).map(|(x, i)| x * sigmoid(*i)).collect();
    let beta = log_a.iter().map(|&g| write_strength(g)).collect();
    let ones = || vec![1.0; x.len()];
    let plain = Inputs::new(sizes, ones(), ones(), v, 1.0);
    let x = Inputs { g: log_a, beta, decay: DecayKind::Diagonal, ..plain };
    RgLru.check(&x)?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn agrees_with_the_published_loop() {
        let (tokens, d) = (15, 4);
        let mut rng = Rng::new(10);
        let mut normal = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<_>>();
        let (x, i, r, lambda, h0) = (normal(tokens * d), normal(tokens * d), normal(tokens * d), normal(d), normal(d));
        let log_a: Vec<f64> = r.iter().enumerate().map(|(n, r)| log_gate(lambda[n % d], *r)).collect();
        let run = RgLru.run(&inputs(d, &x, log_a.clone(), &i).unwrap(), &h0).unwrap();
        let mut h = h0;
        for n in 0..tokens * d {
            let a = log_a[n].exp();
            h[n % d] = a * h[n % d] + (1.0 - a * a).sqrt() * (sigmoid(i[n]) * x[n]);
            // 1 − a² cancels here and not there; gates are not within 1e-3 of 1.
            assert!((h[n % d] - run.o[n]).abs() < 1e-12);
        }
        assert_eq!(run.state, run.o[(tokens - 1) * d..]);
    }

    #[test]
    fn strength_keeps_its_digits_near_one_and_errors_are_typed() {
        assert_eq!(write_strength(0.0), 0.0);
        // √(2e-12 − 2e-24 …)
        assert!((write_strength(-1e-12) / 2e-12f64.sqrt() - 1.0).abs() < 1e-11);
        assert_eq!(write_strength(-1e4), 1.0);
        assert!(matches!(inputs(1, &[1.0], vec![0.1], &[0.0]), Err(AlgebraError::NonFinite { .. })));
        assert!(matches!(inputs(2, &[1.0], vec![-0.1], &[0.0]), Err(AlgebraError::Length { .. })));
        assert!(matches!(inputs(0, &[], vec![], &[]), Err(AlgebraError::Dimension { .. })));
        assert!(matches!(inputs(1, &[1.0], vec![-0.1], &[]), Err(AlgebraError::Length { .. })));
    }
}
