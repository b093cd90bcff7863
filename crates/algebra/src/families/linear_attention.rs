//! Plain linear attention: `S += k vᵀ; o = scale · Sᵀq`. Nothing decays, so segments add up and `T = 1`.
//!
//! The normaliser of Katharopoulos et al. (2020), `o / (scale · q·z)` with `z += k`, needs no state of its own: it is a value
//! column of ones ([`with_normaliser`]), and the operator of a segment carries it like any other column.

use crate::family::{DecayKind, Family, UpdateKind};
use crate::inputs::Inputs;
use crate::sizes::Sizes;

/// Linear attention without a gate.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinearAttention;

impl Family for LinearAttention {
    fn name(&self) -> &'static str {
        "linear_attention"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::None
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }
}

/// The same inputs with a last value column of ones, `[T, HV, V + 1]`: that column of the state is the normaliser `z`, and
/// that of the outputs `scale · q·z`.
pub fn with_normaliser(x: &Inputs) -> Inputs {
    let Sizes { value_dim, .. } = x.sizes;
    let v = x.v.chunks_exact(value_dim.max(1)).flat_map(|v| v.iter().copied().chain([1.0])).collect();
    Inputs { sizes: Sizes { value_dim: value_dim + 1, ..x.sizes }, v, ..x.clone() }
}

/// Outputs `[T, HV, V + 1]` of [`with_normaliser`] divided by their last column plus `eps`: `[T, HV, V]`.
pub fn normalise(o: &[f64], value_dim: usize, eps: f64) -> Vec<f64> {
    let rows = o.chunks_exact(value_dim + 1);
    rows.flat_map(|row| row[..value_dim].iter().map(move |o| o / (row[value_dim] + eps))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens() {
        assert_eq!(Golden::open("linear_attn").hold(&LinearAttention, DecayKind::None), 11);
    }

    /// The golden's keys and queries are `|x| + 0.01` there, so that the normaliser is positive; it starts from zero.
    #[test]
    fn normalised_goldens() {
        let golden = Golden::open("linear_attn");
        for case in golden.cases() {
            let (mut x, _) = golden.inputs(&case, DecayKind::None);
            x.q.iter_mut().chain(&mut x.k).for_each(|x| *x = x.abs() + 0.01);
            let x = with_normaliser(&x);
            let run = LinearAttention.run(&x, &LinearAttention.zero_state(&x.sizes)).unwrap();
            let o = normalise(&run.o, x.sizes.value_dim - 1, 1e-10);
            let want = golden.values(&format!("{case}/o_norm_abs"));
            assert_eq!(o.len(), want.len());
            let largest = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            for (got, want) in o.iter().zip(&want) {
                // One rounding to f32 in the file; sums that nearly cancel keep the f64 rounding of their terms.
                assert!((got - want).abs() <= 6e-8 * want.abs() + 1e-13 * largest, "{case}: {got:e} {want:e}");
            }
        }
    }
}
