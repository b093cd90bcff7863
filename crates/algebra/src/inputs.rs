//! The inputs of a recurrence and what a run of it gives.

use crate::error::{AlgebraError, check_finite, check_length, check_log_gates, checked_size};
use crate::family::DecayKind;
use crate::sizes::Sizes;
use std::ops::Range;

/// Over which heads an [`Extra`] runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heads {
    /// H.
    Key,
    /// HV.
    Value,
}

/// An array of a family that has more inputs than [`Inputs`] names, `[T, H or HV, dim]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Extra {
    /// Its name in the family.
    pub name: &'static str,
    /// Its head axis.
    pub heads: Heads,
    /// Values a head and token.
    pub dim: usize,
    /// The value with which a token changes nothing (together with `k = v = g = beta = 0`); fills up shorter members of a
    /// batch.
    pub idle: f64,
    /// The values.
    pub values: Vec<f64>,
}

/// Inputs of a run, f64, row-major, token axis first. What a family does not have is left out by [`Inputs::new`].
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// The sizes that all the arrays follow.
    pub sizes: Sizes,
    /// Queries `[T, H, K]`.
    pub q: Vec<f64>,
    /// Keys `[T·W, H, K]`.
    pub k: Vec<f64>,
    /// Values `[T·W, HV, V]`.
    pub v: Vec<f64>,
    /// Log-gates, natural log, each <= 0, in the layout that [`Self::decay`] says.
    pub g: Vec<f64>,
    /// Write strengths `[T·W, HV]`, for a delta update usually in `[0, 2]`; empty where every write counts fully.
    pub beta: Vec<f64>,
    /// Factor of the outputs, usually `K^-0.5`.
    pub scale: f64,
    /// Layout of [`Self::g`]: `none` empty, `fixed` `[HV]`, `scalar` `[T, HV]`, `diagonal` `[T, HV, K]`.
    pub decay: DecayKind,
    /// W, the writes a token makes one after the other; 1 in all but products of Householder steps.
    pub writes: usize,
    /// `D` `[HV]`, by which a token's last value is added to its output; empty where there is none.
    pub skip: Vec<f64>,
    /// Further arrays, of families that have them.
    pub extras: Vec<Extra>,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Outputs `[T, HV, V]`.
    pub o: Vec<f64>,
    /// State after the last token `[HV, K, V]` (further columns where the family has them).
    pub state: Vec<f64>,
}

impl Inputs {
    /// Inputs without gates, write strengths, skip and extras, one write a token. The other fields are public:
    ///
    /// ```
    /// use seam_algebra::{DecayKind, Inputs, Sizes};
    /// let sizes = Sizes { tokens: 1, key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 1 };
    /// let plain = Inputs::new(sizes, vec![1.0, 0.0], vec![0.0, 1.0], vec![3.0], 1.0);
    /// let gated = Inputs { g: vec![-0.5], beta: vec![0.9], decay: DecayKind::Scalar, ..plain };
    /// assert!(gated.check().is_ok());
    /// ```
    pub fn new(sizes: Sizes, q: Vec<f64>, k: Vec<f64>, v: Vec<f64>, scale: f64) -> Self {
        let (g, beta, skip, extras) = (vec![], vec![], vec![], vec![]);
        Self { sizes, q, k, v, g, beta, scale, decay: DecayKind::None, writes: 1, skip, extras }
    }

    /// Checks sizes, lengths and values.
    ///
    /// # Errors
    /// Impossible sizes, a wrong length, a value that is not finite, a log-gate above 0.
    pub fn check(&self) -> Result<(), AlgebraError> {
        self.sizes.check()?;
        let s = self.sizes;
        if self.writes == 0 {
            return Err(AlgebraError::Dimension { what: "writes", value: 0, reason: "must be at least 1" });
        }
        checked_size("k [T·W, H, K]", &[s.tokens, self.writes, s.key_heads, s.key_dim])?;
        checked_size("v [T·W, HV, V]", &[s.tokens, self.writes, s.value_heads, s.value_dim])?;
        let rows = s.tokens * self.writes;
        for (what, values, len) in [
            ("q [T, H, K]", &self.q, s.tokens * s.key_heads * s.key_dim),
            ("k [T·W, H, K]", &self.k, rows * s.key_heads * s.key_dim),
            ("v [T·W, HV, V]", &self.v, rows * s.value_heads * s.value_dim),
            ("beta [T·W, HV]", &self.beta, if self.beta.is_empty() { 0 } else { rows * s.value_heads }),
            ("skip [HV]", &self.skip, if self.skip.is_empty() { 0 } else { s.value_heads }),
        ] {
            check_length(what, len, values.len())?;
            check_finite(what, values)?;
        }
        let what = match self.decay {
            DecayKind::None => "g (without decay)",
            DecayKind::Fixed => "g [HV]",
            DecayKind::Scalar => "g [T, HV]",
            DecayKind::Diagonal => "g [T, HV, K]",
        };
        check_length(what, self.decay.rows(s.tokens) * self.gate_row(), self.g.len())?;
        check_log_gates(what, &self.g)?;
        for extra in &self.extras {
            let len = checked_size(extra.name, &[s.tokens, self.heads(extra.heads), extra.dim])?;
            check_length(extra.name, len, extra.values.len())?;
            check_finite(extra.name, &extra.values)?;
        }
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
        let (s, w) = (self.sizes, self.writes);
        let cut = |x: &[f64], row: usize| x[range.start * row..range.end * row].to_vec();
        let optional = |x: &[f64], row: usize| if x.is_empty() { vec![] } else { cut(x, row) };
        Self {
            sizes: Sizes { tokens: range.len(), ..s },
            q: cut(&self.q, s.key_heads * s.key_dim),
            k: cut(&self.k, w * s.key_heads * s.key_dim),
            v: cut(&self.v, w * s.value_heads * s.value_dim),
            g: if self.decay == DecayKind::Fixed { self.g.clone() } else { cut(&self.g, self.gate_row()) },
            beta: optional(&self.beta, w * s.value_heads),
            scale: self.scale,
            decay: self.decay,
            writes: w,
            skip: self.skip.clone(),
            extras: self
                .extras
                .iter()
                .map(|e| Extra { values: cut(&e.values, self.heads(e.heads) * e.dim), ..e.clone() })
                .collect(),
        }
    }

    /// The tokens of `self`, then those of `next`; scale and skip are those of `self`.
    ///
    /// # Errors
    /// [`AlgebraError::ShapeMismatch`] when heads, dims, layouts or the fixed gates differ.
    pub fn followed_by(&self, next: &Self) -> Result<Self, AlgebraError> {
        let kind = |x: &Self| {
            let extras: Vec<_> = x.extras.iter().map(|e| (e.name, e.heads, e.dim)).collect();
            (Sizes { tokens: 0, ..x.sizes }, x.decay, x.writes, extras)
        };
        // No token has no write strengths, whether the family has them or not.
        let strengths = |x: &Self| x.beta.is_empty() && x.sizes.tokens > 0;
        let fixed_differ = self.decay == DecayKind::Fixed && self.g != next.g;
        let both = self.sizes.tokens > 0 && next.sizes.tokens > 0;
        if kind(self) != kind(next) || fixed_differ || (both && strengths(self) != strengths(next)) {
            return Err(AlgebraError::ShapeMismatch {
                what: "followed_by",
                left: format!("{:?}", kind(self)),
                right: format!("{:?}", kind(next)),
            });
        }
        let join = |a: &[f64], b: &[f64]| [a, b].concat();
        Ok(Self {
            sizes: Sizes { tokens: self.sizes.tokens + next.sizes.tokens, ..self.sizes },
            q: join(&self.q, &next.q),
            k: join(&self.k, &next.k),
            v: join(&self.v, &next.v),
            g: if self.decay == DecayKind::Fixed { self.g.clone() } else { join(&self.g, &next.g) },
            beta: join(&self.beta, &next.beta),
            scale: self.scale,
            decay: self.decay,
            writes: self.writes,
            skip: self.skip.clone(),
            extras: self
                .extras
                .iter()
                .zip(&next.extras)
                .map(|(a, b)| Extra { values: join(&a.values, &b.values), ..a.clone() })
                .collect(),
        })
    }

    /// The key row `[K]` that value head `hv` reads at write `row` (token `row` unless tokens write more than once, else
    /// write `row mod W` of token `row / W`).
    ///
    /// # Panics
    /// Outside of the sizes, as any index does.
    pub fn key(&self, row: usize, hv: usize) -> &[f64] {
        &self.k[self.key_row(row, hv)]
    }

    /// The query row `[K]` that value head `hv` reads at token `t`.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn query(&self, t: usize, hv: usize) -> &[f64] {
        &self.q[self.key_row(t, hv)]
    }

    /// The value row `[V]` of value head `hv` at write `row`.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn value(&self, row: usize, hv: usize) -> &[f64] {
        let row = (row * self.sizes.value_heads + hv) * self.sizes.value_dim;
        &self.v[row..row + self.sizes.value_dim]
    }

    /// The log-gate of key dim `i` of value head `hv` at token `t`, in any layout.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn log_gate(&self, t: usize, hv: usize, i: usize) -> f64 {
        let Sizes { value_heads, key_dim, .. } = self.sizes;
        match self.decay {
            DecayKind::None => 0.0,
            DecayKind::Fixed => self.g[hv],
            DecayKind::Scalar => self.g[t * value_heads + hv],
            DecayKind::Diagonal => self.g[(t * value_heads + hv) * key_dim + i],
        }
    }

    /// The write strength of value head `hv` at write `row`; 1 where the family has none.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn strength(&self, row: usize, hv: usize) -> f64 {
        if self.beta.is_empty() { 1.0 } else { self.beta[row * self.sizes.value_heads + hv] }
    }

    /// The extra array `name`, `[T, heads, dim]`.
    ///
    /// # Errors
    /// [`AlgebraError::Layout`] when there is none of this name and shape.
    pub fn extra(&self, name: &'static str, heads: Heads, dim: usize) -> Result<&Extra, AlgebraError> {
        let is = |e: &&Extra| (e.name, e.heads, e.dim) == (name, heads, dim);
        self.extras.iter().find(is).ok_or_else(|| AlgebraError::Layout {
            family: "inputs",
            what: name,
            expected: format!("an extra array over the {heads:?} heads, {dim} values each"),
            found: format!("{:?}", self.extras.iter().map(|e| (e.name, e.heads, e.dim)).collect::<Vec<_>>()),
        })
    }

    /// The row `[dim]` of `extra` that value head `hv` reads at token `t`.
    ///
    /// # Panics
    /// As [`Self::key`].
    pub fn extra_row<'a>(&self, extra: &'a Extra, t: usize, hv: usize) -> &'a [f64] {
        let head = match extra.heads {
            Heads::Key => hv / self.sizes.ratio().max(1),
            Heads::Value => hv,
        };
        let row = (t * self.heads(extra.heads) + head) * extra.dim;
        &extra.values[row..row + extra.dim]
    }

    /// Rounds every number to the nearest f32, for a subject that computes in f32: the oracle then sees the very inputs
    /// that the subject sees.
    pub fn round_to_f32(&mut self) {
        for array in [&mut self.q, &mut self.k, &mut self.v, &mut self.g, &mut self.beta, &mut self.skip] {
            round_to_f32(array);
        }
        self.extras.iter_mut().for_each(|e| round_to_f32(&mut e.values));
        round_to_f32(std::slice::from_mut(&mut self.scale));
    }

    /// Number of heads on an axis.
    pub(crate) fn heads(&self, heads: Heads) -> usize {
        match heads {
            Heads::Key => self.sizes.key_heads,
            Heads::Value => self.sizes.value_heads,
        }
    }

    /// Log-gates a token (a whole segment, for a fixed decay).
    pub(crate) fn gate_row(&self) -> usize {
        match self.decay {
            DecayKind::None => 0,
            DecayKind::Fixed | DecayKind::Scalar => self.sizes.value_heads,
            DecayKind::Diagonal => self.sizes.value_heads * self.sizes.key_dim,
        }
    }

    fn key_row(&self, row: usize, hv: usize) -> Range<usize> {
        let head = hv / self.sizes.ratio().max(1);
        let row = (row * self.sizes.key_heads + head) * self.sizes.key_dim;
        row..row + self.sizes.key_dim
    }
}

/// Rounds each value to the nearest f32.
pub fn round_to_f32(values: &mut [f64]) {
    values.iter_mut().for_each(|x| *x = f64::from(*x as f32));
}

/// Rounds each value to the nearest bf16, ties to even.
pub(crate) fn round_to_bf16(values: &mut [f64]) {
    for x in values {
        let bits = (*x as f32).to_bits();
        let up = 0x7fff + (bits >> 16 & 1);
        *x = f64::from(f32::from_bits(bits.wrapping_add(up) & 0xffff_0000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_values_are_the_nearest() {
        let mut x = [1.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -5.3, 0.0, 1e-3];
        round_to_bf16(&mut x);
        assert_eq!(&x[..3], &[1.0, 1.0, 1.0 + 4.0 / 256.0], "ties go to even");
        assert_eq!(x[3..], [-5.3125, 0.0, 0.00099945068359375]);
    }

    fn sample() -> Inputs {
        let sizes = Sizes { tokens: 3, key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 1 };
        let count = |n: i32| (0..n).map(f64::from).collect::<Vec<_>>();
        let plain = Inputs::new(sizes, vec![0.5; 6], count(6), count(6), 0.7);
        Inputs { g: vec![-0.1; 6], beta: vec![0.5; 6], decay: DecayKind::Scalar, ..plain }
    }

    fn every_layout() -> Vec<Inputs> {
        let (none, fixed) = (DecayKind::None, DecayKind::Fixed);
        let extra = |heads, n: usize| Extra { name: "e", heads, dim: 2, idle: 0.0, values: vec![0.25; n] };
        vec![
            sample(),
            Inputs { g: vec![], beta: vec![], decay: none, skip: vec![1.0, 2.0], ..sample() },
            Inputs { g: vec![-0.1, -0.2], decay: fixed, ..sample() },
            Inputs { g: (0..12).map(|i| -f64::from(i)).collect(), decay: DecayKind::Diagonal, ..sample() },
            Inputs { extras: vec![extra(Heads::Key, 6), extra(Heads::Value, 12)], ..sample() },
            Inputs { k: vec![0.5; 12], v: vec![1.0; 12], beta: vec![0.5; 12], writes: 2, ..sample() },
        ]
    }

    #[test]
    fn slices_join_to_the_whole_in_every_layout() {
        for x in every_layout() {
            for cut in 0..=3 {
                let (a, b) = (x.slice(0..cut).unwrap(), x.slice(cut..3).unwrap());
                assert_eq!(a.followed_by(&b).unwrap(), x);
            }
            assert!(matches!(x.slice(2..4), Err(AlgebraError::TokenRange { .. })));
        }
        let x = sample();
        assert_eq!(x.key(2, 1), [4.0, 5.0]);
        assert_eq!(x.value(2, 1), [5.0]);
    }

    #[test]
    fn unlike_inputs_do_not_join() {
        let all = every_layout();
        for (i, j) in (0..all.len()).flat_map(|i| (0..all.len()).map(move |j| (i, j))) {
            assert_eq!(all[i].followed_by(&all[j]).is_ok(), i == j, "{i} {j}");
        }
        let other_gates = Inputs { g: vec![-0.1, -0.3], ..all[2].clone() };
        assert!(matches!(all[2].followed_by(&other_gates), Err(AlgebraError::ShapeMismatch { .. })));
    }

    #[test]
    fn gates_are_read_in_every_layout() {
        let all = every_layout();
        assert_eq!(all[0].log_gate(2, 1, 0), -0.1);
        assert_eq!(all[1].log_gate(2, 1, 1), 0.0);
        assert_eq!(all[2].log_gate(2, 1, 0), -0.2);
        assert_eq!(all[3].log_gate(1, 1, 1), -7.0);
        assert_eq!((all[1].strength(2, 1), all[0].strength(2, 1)), (1.0, 0.5));
        assert_eq!(all[4].extra_row(&all[4].extras[1], 2, 1), [0.25; 2]);
        assert!(all[4].extra("e", Heads::Key, 2).is_ok());
        for (x, heads, dim) in [(&all[0], Heads::Key, 2), (&all[4], Heads::Key, 3)] {
            assert!(matches!(x.extra("e", heads, dim), Err(AlgebraError::Layout { .. })));
        }
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
        assert!(matches!(broken(&|x| x.q[3] = f64::INFINITY), NonFinite { index: 3, .. }));
        assert!(matches!(broken(&|x| x.g[2] = f64::NEG_INFINITY), NonFinite { index: 2, .. }));
        assert!(matches!(broken(&|x| x.scale = f64::NAN), NonFinite { .. }));
        assert!(matches!(broken(&|x| x.v.truncate(5)), Length { .. }));
        assert!(matches!(broken(&|x| x.beta.truncate(5)), Length { .. }));
        assert!(matches!(broken(&|x| x.skip = vec![1.0]), Length { .. }));
        assert!(matches!(broken(&|x| x.sizes.key_heads = 3), Dimension { .. }));
        for zero in [
            |x: &mut Inputs| x.sizes.key_heads = 0,
            |x: &mut Inputs| x.sizes.value_heads = 0,
            |x: &mut Inputs| x.sizes.key_dim = 0,
            |x: &mut Inputs| x.writes = 0,
        ] {
            assert!(matches!(broken(&zero), Dimension { value: 0, .. }));
        }
        assert!(matches!(broken(&|x| x.sizes.tokens = usize::MAX), Dimension { .. }));
        assert!(matches!(broken(&|x| x.writes = usize::MAX), Dimension { .. }));
        for kind in [DecayKind::None, DecayKind::Fixed, DecayKind::Diagonal] {
            assert!(matches!(broken(&|x| x.decay = kind), Length { .. }));
        }
        let extra = |values| Extra { name: "e", heads: Heads::Value, dim: 1, idle: 0.0, values };
        assert!(matches!(broken(&|x| x.extras = vec![extra(vec![0.0; 5])]), Length { what: "e", .. }));
        assert!(matches!(broken(&|x| x.extras = vec![extra(vec![f64::NAN; 6])]), NonFinite { what: "e", .. }));
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
