//! Mamba-2 (SSD): `h[p,n] = e^(dt·A) h[p,n] + dt·x[p]·B[n]; y[p] = Σ_n h[p,n] C[n] + D·x[p]`.
//!
//! In the names of linear attention: a group of heads shares its key `B` and query `C` (key heads are the groups), `x` is
//! the value, `dt` the write strength, `dt·A` the scalar log-gate, and the state is kept key axis first, `S = hᵀ`.

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::softplus;
use crate::inputs::Inputs;
use crate::sizes::Sizes;
use crate::strategy::Case;

/// The state-space duality of Mamba-2.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mamba2;

impl Family for Mamba2 {
    fn name(&self) -> &'static str {
        "mamba2"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Scalar
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

    /// `dt = g / A` with `−A` from 1 to 16, `D` about 1, no scale.
    fn adapt(&self, case: &Case, x: &mut Inputs) {
        let (mut rng, heads) = (case.rng(21), x.sizes.value_heads);
        let a: Vec<f64> = (0..heads).map(|_| -rng.between(1.0, 16.0)).collect();
        x.beta = x.g.iter().enumerate().map(|(i, g)| (g / a[i % heads]).max(0.0)).collect();
        x.skip = (0..heads).map(|_| 1.0 + 0.3 * rng.normal()).collect();
        x.scale = 1.0;
    }
}

/// `clamp(softplus(x + dt_bias), low, high)`: the step. Published limits are (0, ∞) but for a few training configs.
pub fn step(x: f64, dt_bias: f64, limits: (f64, f64)) -> f64 {
    softplus(x + dt_bias).max(limits.0).min(limits.1)
}

/// `A = −e^(A_log)`, per head.
pub fn rate(a_log: f64) -> f64 {
    -a_log.exp()
}

/// Inputs from a model's own arrays: x `[T, H, P]`, dt `[T, H]`, a `[H]` (negative), b, c `[T, G, N]`, d `[H]` or empty.
/// `sizes` in the names of linear attention: key heads G, value heads H, key dim N, value dim P.
///
/// # Errors
/// Those of [`Inputs::check`]: lengths, values that are not finite, `dt·A` above 0.
pub fn inputs(
    sizes: Sizes,
    x: Vec<f64>,
    dt: Vec<f64>,
    a: &[f64],
    b: Vec<f64>,
    c: Vec<f64>,
    d: Vec<f64>,
) -> Result<Inputs, AlgebraError> {
    crate::error::check_length("a [H]", sizes.value_heads, a.len())?;
    let g = dt.iter().zip(a.iter().cycle()).map(|(dt, a)| dt * a).collect();
    let x = Inputs { g, beta: dt, decay: DecayKind::Scalar, skip: d, ..Inputs::new(sizes, c, b, x, 1.0) };
    Mamba2.check(&x)?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{Golden, outputs};
    use crate::matrix::{distance, frobenius};

    /// `[H, P, N]` to `[H, N, P]`.
    fn key_first(state: &[f64], p: usize, n: usize) -> Vec<f64> {
        let head = |h: &[f64]| (0..n * p).map(|i| h[i % p * n + i / p]).collect::<Vec<_>>();
        state.chunks_exact(p * n).flat_map(head).collect()
    }

    #[test]
    fn goldens() {
        let golden = Golden::open("mamba2_ssd");
        let cases = golden.cases();
        assert_eq!(cases.len(), 14);
        for case in cases {
            let get = |name: &str| golden.values(&format!("{case}/{name}"));
            let shape = |name: &str| golden.get(&format!("{case}/{name}")).unwrap().shape;
            let (x, b) = (shape("x"), shape("B"));
            let sizes = Sizes { tokens: x[0], key_heads: b[1], value_heads: x[1], key_dim: b[2], value_dim: x[2] };
            let x = inputs(sizes, get("x"), get("dt"), &get("A"), get("B"), get("C"), get("D")).unwrap();
            let turned = |name: &str| key_first(&get(name), sizes.value_dim, sizes.key_dim);
            let s0 = turned("s0");
            let run = Mamba2.run(&x, &s0).unwrap();
            outputs(&case, &run.o, &get("y"), &x, &s0);
            let operators = Mamba2.operator(&x, 0..sizes.tokens).unwrap();
            let own: Vec<f64> = operators.iter().flat_map(|o| o.state().to_vec()).collect();
            for (got, name) in [(&run.state, "s_final"), (&own, "s_zero")] {
                let want = turned(name);
                // Exact inputs: a few hundred f64 roundings.
                assert!(distance(got, &want) <= 1e-13 * frobenius(&want), "{case}/{name}");
            }
            for (operator, t) in operators.iter().zip(get("t_c")) {
                // The log-sum is in the tens at most where its exponential is not 0.
                assert!((operator.transition_norm() - t).abs() <= 1e-12 * t + 1e-300, "{case}/t_c");
            }
        }
    }

    #[test]
    fn steps_are_the_published_ones() {
        let ops = Golden::open("ops");
        let (x, bias) = (ops.values("mamba_dt/x"), ops.values("mamba_dt/dt_bias"));
        let (open, clamped) = (ops.values("mamba_dt/dt"), ops.values("mamba_dt/dt_clamped"));
        for (i, &x) in x.iter().enumerate() {
            let near = |got: f64, want: f64| assert!((got - want).abs() <= 1e-14 * want.abs(), "{got:e} {want:e}");
            near(step(x, bias[i % 6], (0.0, f64::INFINITY)), open[i]);
            near(step(x, bias[i % 6], (0.01, 2.0)), clamped[i]);
        }
        assert_eq!(rate(0.0), -1.0);
        let sizes = Sizes { tokens: 1, key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1 };
        let one = || vec![1.0];
        assert!(inputs(sizes, one(), one(), &[], one(), one(), vec![]).is_err());
        assert!(inputs(sizes, one(), one(), &[1.0], one(), one(), vec![]).is_err());
        assert!(inputs(sizes, one(), one(), &[-1.0], one(), one(), vec![]).is_ok());
    }
}
