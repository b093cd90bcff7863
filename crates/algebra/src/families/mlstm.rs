//! mLSTM (xLSTM, Beck et al. 2024): a matrix memory with a normaliser and an exponential input gate,
//! `C = e^f C + e^ĩ k vᵀ; n = e^f n + e^ĩ k; h = Cᵀq / max(|nᵀq|, 1)`, kept as `(C, n, m)` with a running maximum `m` as a
//! log-scale. How `(C, n, m)` composes, exactly, is in [`crate::log_scale`]. The state is `[K, V + 2]` = `C | n | m`.
//!
//! The forget gate is `f = ln sigmoid(f̃)`, as in the published models. (With an exponential forget gate `f` may be above 0
//! and a segment's `e^F` above 1; such gates are refused.)

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::gates::log_sigmoid;
use crate::inputs::{Extra, Heads, Inputs, Run};
use crate::log_scale::{LOG_ZERO, add, log_scale, rescale};
use crate::matrix::frobenius;
use crate::sizes::Sizes;
use crate::strategy::{Case, Kind};

/// The matrix LSTM. Extra: `log_input` `[T, HV]`, the input gate `ĩ`, any finite number.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mlstm;

impl Family for Mlstm {
    fn name(&self) -> &'static str {
        "mlstm"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Scalar
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }

    fn extras(&self) -> &'static [&'static str] {
        &["log_input"]
    }

    fn state_columns(&self, value_dim: usize) -> usize {
        value_dim.saturating_add(2)
    }

    fn log_scaled(&self) -> bool {
        true
    }

    /// Input gates from a normal; from −700 to 700 where values are huge, which no state in true units could hold.
    fn adapt(&self, case: &Case, x: &mut Inputs) {
        let mut rng = case.rng(24);
        let gate = |_| match case.kind {
            Kind::HugeValues => rng.between(-700.0, 700.0),
            Kind::MixedValues | Kind::Anything => rng.between(-30.0, 30.0),
            Kind::TinyValues => rng.between(-700.0, -600.0),
            _ => 2.0 * rng.normal(),
        };
        x.extras = vec![log_input((0..x.sizes.tokens * x.sizes.value_heads).map(gate).collect())];
    }

    /// q, k `[T, H, K]`, v `[T, HV, V]`, g, log_input `[T, HV]`, s0 `[HV, K, V + 2]` to o `[T, HV, V]` and the state.
    fn run(&self, x: &Inputs, s0: &[f64]) -> Result<Run, AlgebraError> {
        self.check_with_state(x, s0)?;
        let input = x.extra("log_input", Heads::Value, 1)?;
        let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
        let columns = self.state_columns(value_dim);
        let mut state = s0.to_vec(); // [HV, K, V + 2]
        let mut o = Vec::with_capacity(tokens * value_heads * value_dim); // [T, HV, V]
        for t in 0..tokens {
            for (hv, s) in state.chunks_exact_mut(key_dim * columns).enumerate() {
                let kept = add(x.log_gate(t, hv, 0), log_scale(s, columns));
                let write = x.extra_row(input, t, hv)[0];
                let m = kept.max(write);
                rescale(s, columns, kept - m, m);
                let strength = (write - m).exp();
                for (k, s) in x.key(t, hv).iter().zip(s.chunks_exact_mut(columns)) {
                    let ones = x.value(t, hv).iter().chain([&1.0]);
                    s.iter_mut().zip(ones).for_each(|(s, v)| *s += strength * k * v);
                }
                let read = self.read(x.query(t, hv), s, x.scale, columns);
                let under = denominator(&read, m);
                let value = |o: &f64| if under > 0.0 { o / under } else { 0.0 };
                o.extend(read[..value_dim].iter().map(value));
            }
        }
        Ok(Run { o, state })
    }

    /// An error `δ` of the state moves the numerator and the denominator by `δ‖q‖` each.
    fn output_scale(&self, x: &Inputs, t: usize, hv: usize, peak: f64, state: &[f64]) -> f64 {
        let columns = self.state_columns(x.sizes.value_dim);
        let under = denominator(&self.read(x.query(t, hv), state, x.scale, columns), log_scale(state, columns));
        let ratio = peak * frobenius(x.query(t, hv)) * x.scale.abs() / under;
        if ratio.is_finite() { ratio * (1.0 + ratio) } else { f64::MAX }
    }

    /// Gates are differences of log-scales, whose roundings are relative to the largest of them.
    fn conditioning(&self, x: &Inputs) -> f64 {
        let gates = x.extras.iter().flat_map(|e| &e.values);
        gates.fold(1.0, |m: f64, i| m.max(i.abs()))
    }
}

impl Mlstm {
    /// `scale · (C | n)ᵀ q`, `[V + 1]`.
    fn read(&self, q: &[f64], state: &[f64], scale: f64, columns: usize) -> Vec<f64> {
        let mut out = vec![0.0; columns - 1];
        for (q, s) in q.iter().zip(state.chunks_exact(columns)) {
            out.iter_mut().zip(s).for_each(|(o, s)| *o += scale * q * s);
        }
        out
    }
}

/// `max(|nᵀq|, e^(−m))`: the 1 of the true state, in units of `e^m`.
fn denominator(read: &[f64], m: f64) -> f64 {
    read.last().map_or(0.0, |n| n.abs()).max((-m).exp())
}

fn log_input(values: Vec<f64>) -> Extra {
    Extra { name: "log_input", heads: Heads::Value, dim: 1, idle: LOG_ZERO, values }
}

/// Inputs from a model's own gates before their functions: forget and input `[T, HV]`.
///
/// # Errors
/// Those of [`Inputs::check`].
pub fn inputs(
    sizes: Sizes,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    forget: &[f64],
    input: Vec<f64>,
) -> Result<Inputs, AlgebraError> {
    let scale = (sizes.key_dim.max(1) as f64).sqrt().recip();
    let g = forget.iter().map(|&f| log_sigmoid(f)).collect();
    let x =
        Inputs { g, decay: DecayKind::Scalar, extras: vec![log_input(input)], ..Inputs::new(sizes, q, k, v, scale) };
    Mlstm.check(&x)?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::distance;
    use crate::operator::{apply_heads, compose_heads};
    use crate::strategy::Rounding;

    fn case(kind: Kind, seed: u64) -> Case {
        Case { seed, kind, tokens: 40, key_heads: 2, ratio: 1, key_dim: 6, value_dim: 3 }
    }

    /// The same inputs in true units, without a maximum, as long as no gate overflows.
    #[test]
    fn agrees_with_the_recurrence_in_true_units() {
        let (x, _) = Mlstm.inputs(&case(Kind::Typical, 3), Rounding::F64);
        let run = Mlstm.run(&x, &Mlstm.zero_state(&x.sizes)).unwrap();
        for hv in 0..2 {
            let (mut c, mut n) = (vec![0.0; 18], vec![0.0; 6]);
            for t in 0..40 {
                let (f, i) = (x.g[t * 2 + hv].exp(), x.extras[0].values[t * 2 + hv].exp());
                let (q, k, v) = (x.query(t, hv), x.key(t, hv), x.value(t, hv));
                (0..18).for_each(|e| c[e] = f * c[e] + i * k[e / 3] * v[e % 3]);
                (0..6).for_each(|e| n[e] = f * n[e] + i * k[e]);
                let nq: f64 = (0..6).map(|e| x.scale * n[e] * q[e]).sum();
                for j in 0..3 {
                    let cq: f64 = (0..6).map(|e| x.scale * c[e * 3 + j] * q[e]).sum();
                    let (got, want) = (run.o[(t * 2 + hv) * 3 + j], cq / nq.abs().max(1.0));
                    // Sums of terms up to e^8.
                    assert!((got - want).abs() < 1e-11 * want.abs().max(1.0), "{got} {want}");
                }
            }
        }
    }

    /// Starting from `m = 0`, as published code does, is another unit for the same state.
    #[test]
    fn outputs_do_not_depend_on_the_unit() {
        let (x, s0) = Mlstm.inputs(&case(Kind::MixedValues, 8), Rounding::F64);
        let mut other = s0.clone();
        for s in other.chunks_exact_mut(6 * 5) {
            let m = log_scale(s, 5);
            rescale(s, 5, m, 0.0);
        }
        let (a, b) = (Mlstm.run(&x, &s0).unwrap(), Mlstm.run(&x, &other).unwrap());
        let largest = a.o.iter().fold(0.0, |m: f64, o| m.max(o.abs()));
        // Gates of size 30 in an exponent, 40 tokens, quotients of cancelled sums.
        assert!(distance(&a.o, &b.o) < 1e-10 * largest, "{:e}", distance(&a.o, &b.o) / largest);
    }

    /// The composed log-scale is the running maximum of the sequential run, also where true units overflow or vanish.
    #[test]
    fn composed_scale_is_the_running_maximum() {
        for kind in [Kind::Typical, Kind::HugeValues, Kind::TinyValues, Kind::HardReset, Kind::AllZeroKeys] {
            for seed in 0..10 {
                let (x, s0) = Mlstm.inputs(&case(kind, seed), Rounding::F64);
                let want = Mlstm.run(&x, &s0).unwrap();
                assert!(want.o.iter().all(|o| o.is_finite()));
                let (a, b) = (Mlstm.operator(&x, 0..17).unwrap(), Mlstm.operator(&x, 17..40).unwrap());
                let whole = compose_heads(&b, &a).unwrap().strict().unwrap();
                let got = apply_heads(&whole, &s0).unwrap().strict().unwrap();
                for (got, want) in got.chunks_exact(30).zip(want.state.chunks_exact(30)) {
                    let (got, want) = (log_scale(got, 5), log_scale(want, 5));
                    // Sums of up to 40 gates and a scale of up to 700.
                    assert!((got - want).abs() <= 1e-13 * want.abs().max(1.0), "{kind:?} {got} {want}");
                }
            }
        }
    }

    /// Why the segment starts from minus infinity: from 0 the composed scale is not the sequential one.
    #[test]
    fn a_segment_started_from_scale_zero_composes_to_another_unit() {
        let sizes = Sizes { tokens: 1, key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1 };
        let one = |v: f64| vec![v];
        let x = inputs(sizes, one(1.0), one(1.0), one(1.0), &[100.0], one(-50.0)).unwrap();
        let own = Mlstm.operator(&x, 0..1).unwrap();
        assert_eq!(log_scale(own[0].state(), 3), -50.0);
        let from_zero = Mlstm.run(&x, &[0.0, 0.0, 0.0]).unwrap().state;
        // ln sigmoid(100) is −4e-44.
        assert!(log_scale(&from_zero, 3).abs() < 1e-40);
    }

    #[test]
    fn wrong_gates_are_typed_errors() {
        let sizes = Sizes { tokens: 1, key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1 };
        let make = |f: f64, i: Vec<f64>| inputs(sizes, vec![1.0], vec![1.0], vec![1.0], &[f], i);
        assert!(make(0.0, vec![900.0]).is_ok());
        assert!(matches!(make(f64::NAN, vec![0.0]), Err(AlgebraError::NonFinite { .. })));
        assert!(matches!(make(0.0, vec![f64::INFINITY]), Err(AlgebraError::NonFinite { .. })));
        assert!(matches!(make(0.0, vec![]), Err(AlgebraError::Length { .. })));
    }
}
