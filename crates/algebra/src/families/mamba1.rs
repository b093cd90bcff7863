//! Mamba-1 (S6), also Jamba's: per channel d a state of N numbers, `h[d,n] = e^(dt_d·A[d,n]) h[d,n] + dt_d·B[n]·x_d`,
//! `y_d = Σ_n C[n] h[d,n] + D_d·x_d`.
//!
//! A channel is a value head with one value; all channels share the key `B` and the query `C`, so there is one key head.
//! The log-gates `dt·A` are diagonal. In the models dt, B and C come from the convolved row, so at the first k − 1 tokens
//! of a segment they change with its left neighbour; entries start behind those tokens.

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::inputs::Inputs;
use crate::sizes::Sizes;
use crate::strategy::Case;

/// The selective state space of Mamba-1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mamba1;

impl Family for Mamba1 {
    fn name(&self) -> &'static str {
        "mamba1"
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
        Sizes { key_heads: 1, value_dim: 1, ..case.sizes() }
    }

    /// `A[n] = −(n + 1)`, the published initialisation; a step for each channel from the gate drawn for its first dim.
    fn adapt(&self, case: &Case, x: &mut Inputs) {
        let (mut rng, n) = (case.rng(23), x.sizes.key_dim);
        x.beta = x.g.chunks_exact(n).map(|g| -g[0]).collect();
        x.g = x.beta.iter().flat_map(|dt| (1..=n).map(move |n| -dt * n as f64)).collect();
        x.skip = (0..x.sizes.value_heads).map(|_| 1.0 + 0.3 * rng.normal()).collect();
        x.scale = 1.0;
    }
}

/// Inputs from a model's own arrays: x, dt `[T, D]`, a `[D, N]` (negative), b, c `[T, N]`, d `[D]` or empty.
///
/// # Errors
/// Those of [`Inputs::check`]: lengths, values that are not finite, `dt·A` above 0.
pub fn inputs(
    channels: usize,
    state_dim: usize,
    x: Vec<f64>,
    dt: Vec<f64>,
    a: &[f64],
    b: Vec<f64>,
    c: Vec<f64>,
    d: Vec<f64>,
) -> Result<Inputs, AlgebraError> {
    let size = crate::error::checked_size("a [D, N]", &[channels, state_dim])?;
    crate::error::check_length("a [D, N]", size, a.len())?;
    let tokens = x.len() / channels.max(1);
    let sizes = Sizes { tokens, key_heads: 1, value_heads: channels, key_dim: state_dim, value_dim: 1 };
    sizes.check()?;
    let gate = |(i, dt): (usize, &f64)| {
        let (dt, row) = (*dt, i % channels * state_dim);
        a[row..row + state_dim].iter().map(move |a| dt * a)
    };
    let g = dt.iter().enumerate().flat_map(gate).collect();
    let x = Inputs { g, beta: dt, decay: DecayKind::Diagonal, skip: d, ..Inputs::new(sizes, c, b, x, 1.0) };
    Mamba1.check(&x)?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The published loop over channels and state dims.
    #[test]
    fn agrees_with_the_published_loop() {
        let (tokens, d, n) = (11, 3, 4);
        let mut rng = Rng::new(9);
        let mut normal = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<_>>();
        let (x, b, c, skip, h0) =
            (normal(tokens * d), normal(tokens * n), normal(tokens * n), normal(d), normal(d * n));
        let dt: Vec<f64> = normal(tokens * d).iter().map(|x| crate::gates::softplus(*x)).collect();
        let a: Vec<f64> = normal(d * n).iter().map(|a| -a.exp()).collect();
        let all = inputs(d, n, x.clone(), dt.clone(), &a, b.clone(), c.clone(), skip.clone()).unwrap();
        let run = Mamba1.run(&all, &h0).unwrap();
        let mut h = h0; // [D, N]
        for t in 0..tokens {
            for ch in 0..d {
                let mut y = skip[ch] * x[t * d + ch];
                for i in 0..n {
                    let (h, dt) = (&mut h[ch * n + i], dt[t * d + ch]);
                    *h = (dt * a[ch * n + i]).exp() * *h + dt * b[t * n + i] * x[t * d + ch];
                    y += c[t * n + i] * *h;
                }
                // Sums of a few numbers of size 10.
                assert!((y - run.o[t * d + ch]).abs() < 1e-13);
            }
        }
        assert!(crate::matrix::distance(&h, &run.state) < 1e-13);
    }

    #[test]
    fn wrong_arrays_are_typed_errors() {
        let one = || vec![1.0];
        let make = |d, n, a: &[f64]| inputs(d, n, one(), one(), a, one(), one(), vec![]);
        assert!(make(1, 1, &[-1.0]).is_ok());
        assert!(matches!(make(1, 1, &[1.0]), Err(AlgebraError::PositiveLogGate { .. })));
        assert!(matches!(make(1, 2, &[-1.0]), Err(AlgebraError::Length { .. })));
        assert!(matches!(make(0, 1, &[]), Err(AlgebraError::Dimension { .. })));
        assert!(make(usize::MAX, 2, &[]).is_err());
    }
}
