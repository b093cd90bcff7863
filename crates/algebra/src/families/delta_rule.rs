//! Delta rule (DeltaNet): `u = β(v − Sᵀk); S += k uᵀ`, so `A = I − β k kᵀ` and nothing decays.

use crate::family::{DecayKind, Family, UpdateKind};

/// The delta rule without a gate.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeltaRule;

impl Family for DeltaRule {
    fn name(&self) -> &'static str {
        "delta_rule"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::None
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Delta
    }

    fn conv_kernel(&self) -> Option<usize> {
        Some(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens() {
        assert_eq!(Golden::open("delta_rule").hold(&DeltaRule, DecayKind::None), 18);
    }
}
