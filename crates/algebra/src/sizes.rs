//! Sizes of a run.

use crate::error::{AlgebraError, checked_size};
use serde::{Deserialize, Serialize};

/// Sizes of one run. Value head `j` reads key head `j / (value_heads / key_heads)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// T, may be 0.
    pub tokens: usize,
    /// H.
    pub key_heads: usize,
    /// HV, a multiple of H.
    pub value_heads: usize,
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
}

impl Sizes {
    /// Values in a state `[HV, K, V]`; saturates for sizes that [`Self::check`] refuses.
    pub fn state_len(&self) -> usize {
        self.value_heads.saturating_mul(self.key_dim).saturating_mul(self.value_dim)
    }

    /// Value heads per key head.
    pub fn ratio(&self) -> usize {
        self.value_heads / self.key_heads.max(1)
    }

    /// Whether the sizes are possible.
    ///
    /// # Errors
    /// [`AlgebraError::Dimension`] for a size of 0 (tokens excepted), heads that do not divide, or products too large.
    pub fn check(&self) -> Result<(), AlgebraError> {
        let Self { tokens, key_heads, value_heads, key_dim, value_dim } = *self;
        for (what, value) in
            [("key_heads", key_heads), ("value_heads", value_heads), ("key_dim", key_dim), ("value_dim", value_dim)]
        {
            if value == 0 {
                return Err(AlgebraError::Dimension { what, value, reason: "must be at least 1" });
            }
        }
        if !value_heads.is_multiple_of(key_heads) {
            return Err(AlgebraError::Dimension {
                what: "value_heads",
                value: value_heads,
                reason: "must be a multiple of key_heads",
            });
        }
        checked_size("q, k [T, H, K]", &[tokens, key_heads, key_dim])?;
        checked_size("v [T, HV, V]", &[tokens, value_heads, value_dim])?;
        checked_size("gates [T, HV, K]", &[tokens, value_heads, key_dim])?;
        checked_size("state [HV, K, V]", &[value_heads, key_dim, value_dim])?;
        Ok(())
    }
}
