//! The inputs of a recurrence and what a run of it gives.

use crate::error::{AlgebraError, check_finite, check_length, check_log_gates, checked_size};
use serde::{Deserialize, Serialize};
use std::ops::Range;

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
        checked_size("state [HV, K, V]", &[value_heads, key_dim, value_dim])?;
        Ok(())
    }
}

/// Inputs of a run, f64, row-major, token axis first.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// The sizes that all the arrays follow.
    pub sizes: Sizes,
    /// Queries `[T, H, K]`.
    pub q: Vec<f64>,
    /// Keys `[T, H, K]`.
    pub k: Vec<f64>,
    /// Values `[T, HV, V]`.
    pub v: Vec<f64>,
    /// Log-gates `[T, HV]`, natural log, each <= 0.
    pub g: Vec<f64>,
    /// Write strengths `[T, HV]`, usually in `[0, 2]`.
    pub beta: Vec<f64>,
    /// Factor of the outputs, usually `K^-0.5`.
    pub scale: f64,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Outputs `[T, HV, V]`.
    pub o: Vec<f64>,
    /// State after the last token `[HV, K, V]`.
    pub state: Vec<f64>,
}

impl Inputs {
    /// Checks sizes, lengths and values.
    ///
    /// # Errors
    /// Impossible sizes, a wrong length, a value that is not finite, a log-gate above 0.
    pub fn check(&self) -> Result<(), AlgebraError> {
        self.sizes.check()?;
        let s = self.sizes;
        for (what, values, len) in [
            ("q [T, H, K]", &self.q, s.tokens * s.key_heads * s.key_dim),
            ("k [T, H, K]", &self.k, s.tokens * s.key_heads * s.key_dim),
            ("v [T, HV, V]", &self.v, s.tokens * s.value_heads * s.value_dim),
            ("beta [T, HV]", &self.beta, s.tokens * s.value_heads),
        ] {
            check_length(what, len, values.len())?;
            check_finite(what, values)?;
        }
        check_length("g [T, HV]", s.tokens * s.value_heads, self.g.len())?;
        check_log_gates("g [T, HV]", &self.g)?;
        check_finite("scale", std::slice::from_ref(&self.scale))
    }

    /// Checks the inputs and a state `[HV, K, V]` that goes with them.
    ///
    /// # Errors
    /// Those of [`Self::check`], and a state of a wrong length or with values that are not finite.
    pub fn check_with_state(&self, state: &[f64]) -> Result<(), AlgebraError> {
        self.check()?;
        check_length("state [HV, K, V]", self.sizes.state_len(), state.len())?;
        check_finite("state", state)
    }

    /// The inputs of the tokens in `range` alone.
    ///
    /// # Errors
    /// [`AlgebraError::TokenRange`], and those of [`Self::check`].
    pub fn slice(&self, range: Range<usize>) -> Result<Self, AlgebraError> {
        self.check()?;
        let Range { start, end } = range;
        let s = self.sizes;
        if start > end || end > s.tokens {
            return Err(AlgebraError::TokenRange { start, end, tokens: s.tokens });
        }
        Ok(self.cut(start..end))
    }

    /// [`Self::slice`] of inputs that were checked, with a range that lies inside them.
    pub(crate) fn cut(&self, range: Range<usize>) -> Self {
        let s = self.sizes;
        let cut = |x: &[f64], row: usize| x[range.start * row..range.end * row].to_vec();
        Self {
            sizes: Sizes { tokens: range.len(), ..s },
            q: cut(&self.q, s.key_heads * s.key_dim),
            k: cut(&self.k, s.key_heads * s.key_dim),
            v: cut(&self.v, s.value_heads * s.value_dim),
            g: cut(&self.g, s.value_heads),
            beta: cut(&self.beta, s.value_heads),
            scale: self.scale,
        }
    }

    /// The tokens of `self`, then those of `next`; the scale is that of `self`.
    ///
    /// # Errors
    /// [`AlgebraError::ShapeMismatch`] when heads or dims differ.
    pub fn followed_by(&self, next: &Self) -> Result<Self, AlgebraError> {
        let as_long = Sizes { tokens: self.sizes.tokens, ..next.sizes };
        if as_long != self.sizes {
            return Err(AlgebraError::ShapeMismatch {
                what: "followed_by",
                left: format!("{:?}", self.sizes),
                right: format!("{:?}", next.sizes),
            });
        }
        let join = |a: &[f64], b: &[f64]| [a, b].concat();
        Ok(Self {
            sizes: Sizes { tokens: self.sizes.tokens + next.sizes.tokens, ..self.sizes },
            q: join(&self.q, &next.q),
            k: join(&self.k, &next.k),
            v: join(&self.v, &next.v),
            g: join(&self.g, &next.g),
            beta: join(&self.beta, &next.beta),
            scale: self.scale,
        })
    }

    /// The key row `[K]` that value head `hv` reads at token `t`.
    ///
    /// # Panics
    /// Outside of the sizes, as any index does.
    pub fn key(&self, t: usize, hv: usize) -> &[f64] {
        &self.k[self.key_row(t, hv)]
    }

    /// The query row `[K]` that value head `hv` reads at token `t`.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn query(&self, t: usize, hv: usize) -> &[f64] {
        &self.q[self.key_row(t, hv)]
    }

    /// The value row `[V]` of value head `hv` at token `t`.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn value(&self, t: usize, hv: usize) -> &[f64] {
        let row = (t * self.sizes.value_heads + hv) * self.sizes.value_dim;
        &self.v[row..row + self.sizes.value_dim]
    }

    /// Rounds every number to the nearest f32, for a subject that computes in f32: the oracle then sees the very inputs
    /// that the subject sees.
    pub fn round_to_f32(&mut self) {
        for array in [&mut self.q, &mut self.k, &mut self.v, &mut self.g, &mut self.beta] {
            round_to_f32(array);
        }
        round_to_f32(std::slice::from_mut(&mut self.scale));
    }

    fn key_row(&self, t: usize, hv: usize) -> Range<usize> {
        let head = hv / self.sizes.ratio().max(1);
        let row = (t * self.sizes.key_heads + head) * self.sizes.key_dim;
        row..row + self.sizes.key_dim
    }
}

/// Rounds each value to the nearest f32.
pub fn round_to_f32(values: &mut [f64]) {
    values.iter_mut().for_each(|x| *x = f64::from(*x as f32));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Inputs {
        let sizes = Sizes { tokens: 3, key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 1 };
        Inputs {
            sizes,
            q: vec![0.5; 6],
            k: (0..6).map(f64::from).collect(),
            v: (0..6).map(f64::from).collect(),
            g: vec![-0.1; 6],
            beta: vec![0.5; 6],
            scale: 0.7,
        }
    }

    #[test]
    fn slices_join_to_the_whole() {
        let x = sample();
        for cut in 0..=3 {
            let (a, b) = (x.slice(0..cut).unwrap(), x.slice(cut..3).unwrap());
            assert_eq!(a.followed_by(&b).unwrap(), x);
        }
        assert_eq!(x.key(2, 1), [4.0, 5.0]);
        assert_eq!(x.value(2, 1), [5.0]);
        assert!(matches!(x.slice(2..4), Err(AlgebraError::TokenRange { .. })));
    }

    #[test]
    fn bad_inputs_are_typed_errors() {
        let broken = |f: &dyn Fn(&mut Inputs)| {
            let mut x = sample();
            f(&mut x);
            x.check().unwrap_err()
        };
        use AlgebraError::*;
        assert!(matches!(broken(&|x| x.g[1] = 0.1), PositiveLogGate { index: 1, .. }));
        assert!(matches!(broken(&|x| x.k[3] = f64::NAN), NonFinite { index: 3, .. }));
        assert!(matches!(broken(&|x| x.v.truncate(5)), Length { .. }));
        assert!(matches!(broken(&|x| x.sizes.key_heads = 3), Dimension { .. }));
        assert!(matches!(broken(&|x| x.sizes.key_heads = 0), Dimension { .. }));
        assert!(matches!(broken(&|x| x.sizes.tokens = usize::MAX), Dimension { .. }));
        assert!(sample().check_with_state(&[0.0; 3]).is_err());
    }

    #[test]
    fn rounding_gives_f32_values() {
        let mut x = sample();
        x.round_to_f32();
        assert_eq!(x.g[0], f64::from(-0.1f32));
        assert_ne!(x.g[0], -0.1);
    }
}
