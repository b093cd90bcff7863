//! Gated delta product (Siems et al. 2025): the gate once, then several delta writes a token, each with its own key, value
//! and strength: `A = Π_j (I − β_j k_j k_jᵀ) · e^g`. Reads come after the last write.

use crate::family::{DecayKind, Family, UpdateKind};

/// The gated delta rule with `STEPS` Householder steps a token.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatedDeltaProduct<const STEPS: usize>;

impl<const STEPS: usize> Family for GatedDeltaProduct<STEPS> {
    fn name(&self) -> &'static str {
        match STEPS {
            2 => "gated_delta_product_2",
            3 => "gated_delta_product_3",
            4 => "gated_delta_product_4",
            _ => "gated_delta_product",
        }
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Scalar
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Delta
    }

    fn writes(&self) -> usize {
        STEPS
    }

    fn conv_kernel(&self) -> Option<usize> {
        Some(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::GatedDeltaRule;
    use crate::inputs::Inputs;
    use crate::matrix::{distance, matmul};
    use crate::sizes::Sizes;
    use crate::strategy::{Case, Kind, Rounding};

    fn inputs() -> (Inputs, Vec<f64>) {
        let case = Case { seed: 6, kind: Kind::Typical, tokens: 9, key_heads: 1, ratio: 2, key_dim: 4, value_dim: 3 };
        GatedDeltaProduct::<3>.inputs(&case, Rounding::F64)
    }

    /// A token of three steps is three tokens of one, of which only the first decays and only the last is read.
    #[test]
    fn is_the_gated_delta_rule_over_single_steps() {
        let (x, s0) = inputs();
        let (heads, keys) = (2, 4);
        let mut single = Inputs { writes: 1, sizes: Sizes { tokens: 27, ..x.sizes }, ..x.clone() };
        single.g = x.g.chunks_exact(heads).flat_map(|g| [g, &[0.0; 2], &[0.0; 2]].concat()).collect();
        single.q = x.q.chunks_exact(keys).flat_map(|q| [&[0.0; 4], &[0.0; 4], q].concat()).collect();
        let (one, many) = (GatedDeltaRule.run(&single, &s0).unwrap(), GatedDeltaProduct::<3>.run(&x, &s0).unwrap());
        assert_eq!(one.state, many.state);
        let read: Vec<f64> = one.o.chunks_exact(18).flat_map(|o| o[12..].to_vec()).collect();
        assert_eq!(read, many.o);
    }

    #[test]
    fn transition_is_the_product_of_its_steps() {
        let (x, _) = inputs();
        for (hv, operator) in GatedDeltaProduct::<3>.operator(&x, 4..5).unwrap().iter().enumerate() {
            let mut product: Vec<f64> = (0..16).map(|n| if n % 5 == 0 { x.g[8 + hv].exp() } else { 0.0 }).collect();
            for row in 12..15 {
                let (k, beta) = (x.key(row, hv), x.beta[row * 2 + hv]);
                let step: Vec<f64> =
                    (0..16).map(|n| if n % 5 == 0 { 1.0 } else { 0.0 } - beta * k[n / 4] * k[n % 4]).collect();
                product = matmul(&step, &product, 4, 4, 4);
            }
            // Four products of entries below 1.
            assert!(distance(&product, &operator.transition().to_dense(4)) < 1e-15);
        }
    }
}
