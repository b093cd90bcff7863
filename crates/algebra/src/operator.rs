//! The segment operator of one head: the affine map `h -> T·h + S`, and how two of them compose.

use crate::absence::{Absence, Checked, worse};
use crate::error::{AlgebraError, check_finite, check_length, check_norm, checked_size};
use crate::matrix::frobenius;
use crate::transition::Transition;

/// The pair (T, S) of one value head. `S` is `[K, V]`, key axis first, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    key_dim: usize,
    value_dim: usize,
    transition: Transition,
    state: Vec<f64>,
    log_scaled: bool,
}

impl Operator {
    /// An operator from its parts: `transition` for `key_dim`, `state` `[key_dim, value_dim]`.
    ///
    /// # Errors
    /// A size of 0, a wrong length, a value that is not finite, a log-gate above 0.
    pub fn new(
        key_dim: usize,
        value_dim: usize,
        transition: Transition,
        state: Vec<f64>,
    ) -> Result<Self, AlgebraError> {
        for (what, value) in [("key_dim", key_dim), ("value_dim", value_dim)] {
            if value == 0 {
                return Err(AlgebraError::Dimension { what, value, reason: "must be at least 1" });
            }
        }
        let size = checked_size("state [K, V]", &[key_dim, value_dim])?;
        checked_size("transition [K, K]", &[key_dim, key_dim])?;
        check_length("state [K, V]", size, state.len())?;
        check_finite("state", &state)?;
        transition.check(key_dim)?;
        Ok(Self { key_dim, value_dim, transition, state, log_scaled: false })
    }

    /// The same operator, its state's last column read as a log-scale (see [`crate::log_scale`]): it composes and applies
    /// by the law of scaled states.
    pub fn log_scaled(self) -> Self {
        Self { log_scaled: true, ..self }
    }

    /// Whether the last column of the state is a log-scale.
    pub fn is_log_scaled(&self) -> bool {
        self.log_scaled
    }

    /// `(I, 0)`.
    ///
    /// # Errors
    /// A size of 0 or too large.
    pub fn identity(key_dim: usize, value_dim: usize) -> Result<Self, AlgebraError> {
        let size = checked_size("state [K, V]", &[key_dim, value_dim])?;
        Self::new(key_dim, value_dim, Transition::IDENTITY, vec![0.0; size])
    }

    /// Size of the key axis.
    pub fn key_dim(&self) -> usize {
        self.key_dim
    }

    /// Size of the value axis.
    pub fn value_dim(&self) -> usize {
        self.value_dim
    }

    /// `T`.
    pub fn transition(&self) -> &Transition {
        &self.transition
    }

    /// `S`, `[K, V]`.
    pub fn state(&self) -> &[f64] {
        &self.state
    }

    /// `‖T‖₂`; for an absent `T` the recorded norm.
    pub fn transition_norm(&self) -> f64 {
        self.transition.norm(self.key_dim)
    }

    /// `‖S‖_F`, without the log-scale where there is one.
    pub fn state_norm(&self) -> f64 {
        self.norm_of(&self.state)
    }

    fn norm_of(&self, state: &[f64]) -> f64 {
        if !self.log_scaled {
            return frobenius(state);
        }
        let rows = state.chunks_exact(self.value_dim);
        frobenius(&rows.flat_map(|row| &row[..row.len() - 1]).copied().collect::<Vec<_>>())
    }

    /// `T·h + S`, or what the law of scaled states makes of it.
    fn combine(&self, h: &[f64]) -> Vec<f64> {
        if self.log_scaled {
            return crate::log_scale::apply(&self.transition, &self.state, h, self.key_dim, self.value_dim);
        }
        let mut out = self.transition.times(h, self.key_dim, self.value_dim);
        out.iter_mut().zip(&self.state).for_each(|(a, b)| *a += b);
        out
    }

    /// `(T2, S2)∘(T1, S1) = (T2·T1, T2·S1 + S2)`: first `earlier`, then `later`.
    ///
    /// The product takes the smallest exact representation; it is absent when either is, with the product of the norms
    /// as its norm and the stricter bound. When `later` is absent it drops `T2·S1`; `excess` reports if that breaks its
    /// bound.
    ///
    /// # Errors
    /// Shapes that differ, or a product that overflows.
    pub fn compose(later: &Self, earlier: &Self) -> Result<Checked<Self>, AlgebraError> {
        later.same_shape(earlier, "compose")?;
        let (k, v) = (later.key_dim, later.value_dim);
        let state = later.combine(&earlier.state);
        check_finite("composed state", &state)?;
        let excess = match &later.transition {
            Transition::Absent(a) => a.excess(earlier.state_norm()),
            _ => None,
        };
        let transition = match Transition::product(&later.transition, &earlier.transition, k) {
            Some(t) => t,
            None => {
                let bound = [later, earlier]
                    .iter()
                    .filter_map(|o| match &o.transition {
                        Transition::Absent(a) => Some(a.bound),
                        _ => None,
                    })
                    .fold(f64::MAX, f64::min);
                let norm = later.transition_norm() * earlier.transition_norm();
                Transition::Absent(Absence::new(norm, later.norm_of(&state), bound)?)
            }
        };
        let value = Self { log_scaled: later.log_scaled, ..Self::new(k, v, transition, state)? };
        Ok(Checked { value, excess })
    }

    /// `T·h + S` for h `[K, V]`. An absent `T` gives `S`; `excess` reports when `h` is too large for its bound.
    ///
    /// # Errors
    /// A wrong length, values that are not finite, an overflow.
    pub fn apply(&self, h: &[f64]) -> Result<Checked<Vec<f64>>, AlgebraError> {
        check_length("incoming state [K, V]", self.state.len(), h.len())?;
        check_finite("incoming state", h)?;
        let out = self.combine(h);
        check_finite("applied state", &out)?;
        let excess = match &self.transition {
            Transition::Absent(a) => a.excess(self.norm_of(h)),
            _ => None,
        };
        Ok(Checked { value: out, excess })
    }

    /// The same operator with `T` dropped, if `‖T‖₂·head_norm <= bound·‖S‖_F` allows it; `None` if it does not.
    /// `head_norm` is the usual norm of this head's incoming states. A log-scaled operator is never dropped: its norms are
    /// in units of their own, and its `T` is one number.
    ///
    /// # Errors
    /// A norm or bound that is negative or not finite.
    pub fn without_transition(&self, head_norm: f64, bound: f64) -> Result<Option<Self>, AlgebraError> {
        check_norm("usual state norm of the head", head_norm)?;
        if self.log_scaled {
            return Ok(None);
        }
        let absence = Absence::new(self.transition_norm(), self.state_norm(), bound)?;
        Ok(absence.allows(head_norm).then(|| Self { transition: Transition::Absent(absence), ..self.clone() }))
    }

    fn same_shape(&self, other: &Self, what: &'static str) -> Result<(), AlgebraError> {
        let kind = |o: &Self| (o.key_dim, o.value_dim, o.log_scaled);
        if kind(self) == kind(other) {
            return Ok(());
        }
        let shape = |o: &Self| {
            let scaled = if o.log_scaled { ", log-scaled" } else { "" };
            format!("[K {}, V {}{scaled}]", o.key_dim, o.value_dim)
        };
        Err(AlgebraError::ShapeMismatch { what, left: shape(self), right: shape(other) })
    }
}

/// [`Operator::compose`] head by head, `[HV]` operators on both sides; `excess` is the worst of all heads.
///
/// # Errors
/// Different numbers of heads, and those of [`Operator::compose`].
pub fn compose_heads(later: &[Operator], earlier: &[Operator]) -> Result<Checked<Vec<Operator>>, AlgebraError> {
    check_length("operators of the heads [HV]", later.len(), earlier.len())?;
    let mut all = Checked { value: Vec::with_capacity(later.len()), excess: None };
    for (later, earlier) in later.iter().zip(earlier) {
        let one = Operator::compose(later, earlier)?;
        all.value.push(one.value);
        all.excess = worse(all.excess, one.excess);
    }
    Ok(all)
}

/// [`Operator::apply`] head by head on a state `[HV, K, V]`; `excess` is the worst of all heads.
///
/// # Errors
/// A state of another length, and those of [`Operator::apply`].
pub fn apply_heads(operators: &[Operator], state: &[f64]) -> Result<Checked<Vec<f64>>, AlgebraError> {
    let size = operators.iter().map(|o| o.state.len()).sum();
    check_length("incoming state [HV, K, V]", size, state.len())?;
    let mut all = Checked { value: Vec::with_capacity(size), excess: None };
    let mut rest = state;
    for operator in operators {
        let (h, tail) = rest.split_at(operator.state.len());
        rest = tail;
        let one = operator.apply(h)?;
        all.value.extend(one.value);
        all.excess = worse(all.excess, one.excess);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transition::{Absent, Dense, Diagonal, Scalar};

    fn forms() -> Vec<Operator> {
        let s = vec![1.0, -2.0, 0.5, 3.0, 0.25, -1.0];
        let absence = Absence::new(1e-7, frobenius(&s), 1e-4).unwrap();
        [
            Scalar { log: -0.5 },
            Diagonal { log: vec![-0.25, -3.0] },
            Dense { matrix: vec![0.5, 0.1, -0.2, 0.7] },
            Absent(absence),
        ]
        .into_iter()
        .map(|t| Operator::new(2, 3, t, s.clone()).unwrap())
        .collect()
    }

    fn rank(t: &Transition) -> usize {
        match t {
            Scalar { .. } => 0,
            Diagonal { .. } => 1,
            Dense { .. } => 2,
            Absent(_) => 3,
        }
    }

    #[test]
    fn every_mix_of_forms_composes_to_its_smallest_form_and_to_the_dense_product() {
        for a in &forms() {
            for b in &forms() {
                let c = Operator::compose(b, a).unwrap().strict().unwrap();
                let expect = rank(a.transition()).max(rank(b.transition()));
                assert_eq!(rank(c.transition()), expect);
                let dense = crate::matrix::matmul(&b.transition().to_dense(2), &a.transition().to_dense(2), 2, 2, 2);
                // exp(a + b) against exp(a)·exp(b): 3 roundings near 1.
                assert!(crate::matrix::distance(&dense, &c.transition().to_dense(2)) < 1e-15);
                let h = [0.3, -0.1, 2.0, 1.0, 0.7, -0.4];
                let two = b.apply(&a.apply(&h).unwrap().strict().unwrap()).unwrap();
                let one = c.apply(&h).unwrap();
                // A few roundings of entries of size 5.
                assert!(crate::matrix::distance(&two.value, &one.value) < 1e-14);
            }
        }
    }

    #[test]
    fn every_triple_of_forms_is_associative() {
        let compose = |b: &Operator, a: &Operator| Operator::compose(b, a).unwrap().value;
        for (a, b, c) in forms().iter().flat_map(|a| {
            let all = forms();
            all.clone().into_iter().flat_map(move |b| all.clone().into_iter().map(move |c| (a.clone(), b.clone(), c)))
        }) {
            let (left, right) = (compose(&compose(&c, &b), &a), compose(&c, &compose(&b, &a)));
            // A few roundings of entries of size 5.
            assert!(crate::matrix::distance(left.state(), right.state()) < 1e-14);
            let dense = |o: &Operator| o.transition().to_dense(2);
            assert!(crate::matrix::distance(&dense(&left), &dense(&right)) < 1e-15);
            assert_eq!(rank(left.transition()), rank(right.transition()));
            // An absent transition's bound is a product of norms, which may be taken in either order.
            let (l, r) = (left.transition_norm(), right.transition_norm());
            assert!(rank(left.transition()) < 3 || (l > 0.0 && r > 0.0 && l <= 1e-7 && r <= 1e-7));
        }
    }

    #[test]
    fn identity_changes_no_bit() {
        let id = Operator::identity(2, 3).unwrap();
        for a in &forms() {
            assert_eq!(&Operator::compose(&id, a).unwrap().value, a);
            assert_eq!(&Operator::compose(a, &id).unwrap().value, a);
            assert_eq!(id.apply(a.state()).unwrap().value, a.state());
        }
    }

    #[test]
    fn log_sums_underflow_to_an_exact_zero() {
        let far = Operator::new(1, 1, Scalar { log: -5000.0 }, vec![2.0]).unwrap();
        assert_eq!(far.apply(&[1e300]).unwrap().value, [2.0]);
        let lowest = Operator::new(1, 1, Scalar { log: f64::MIN }, vec![0.0]).unwrap();
        let twice = Operator::compose(&lowest, &lowest).unwrap().value;
        assert_eq!(twice.transition(), &Scalar { log: f64::MIN });
    }

    #[test]
    fn absence_follows_the_rule_and_reports_its_excess() {
        let op = Operator::new(1, 2, Dense { matrix: vec![1e-3] }, vec![3.0, 4.0]).unwrap();
        // ‖T‖·n_h = 1e-3·5 against bound·‖S‖ = bound·5.
        assert!(op.without_transition(5.0, 0.9e-3).unwrap().is_none());
        let absent = op.without_transition(5.0, 1.1e-3).unwrap().unwrap();
        let ok = absent.apply(&[3.0, 4.0]).unwrap();
        assert_eq!((ok.value.as_slice(), ok.excess), (&[3.0, 4.0][..], None));
        let broken = absent.apply(&[30.0, 40.0]).unwrap();
        let excess = broken.excess.unwrap();
        assert!((excess.dropped - 0.05).abs() < 1e-15 && (excess.incoming - 50.0).abs() < 1e-12);
        assert!(matches!(broken.strict(), Err(AlgebraError::AbsenceExceeded(_))));
        // A composition that drops T2·S1 reports it too, and an earlier absence stays in force.
        let big = Operator::new(1, 2, Scalar { log: 0.0 }, vec![30.0, 40.0]).unwrap();
        assert!(Operator::compose(&absent, &big).unwrap().excess.is_some());
        let after = Operator::compose(&big, &absent).unwrap();
        assert!(after.excess.is_none());
        match after.value.transition() {
            Absent(a) => assert!((a.transition_norm - 1e-3).abs() < 1e-15 && a.bound == 1.1e-3),
            other => panic!("expected an absent transition, found {other:?}"),
        }
        // A small T that writes nothing may not be dropped: the norm of T alone bounds nothing.
        let silent = Operator::new(1, 1, Dense { matrix: vec![1e-9] }, vec![0.0]).unwrap();
        assert!(silent.without_transition(1.0, 1e-3).unwrap().is_none());
    }

    #[test]
    fn wrong_shapes_and_values_are_typed_errors() {
        use AlgebraError::*;
        let make = |k, v, t, n| Operator::new(k, v, t, vec![0.0; n]);
        let id = Transition::IDENTITY;
        assert!(matches!(make(0, 1, id.clone(), 0), Err(Dimension { .. })));
        assert!(matches!(make(usize::MAX, 2, id.clone(), 0), Err(Dimension { .. })));
        assert!(matches!(make(2, 2, id.clone(), 3), Err(Length { .. })));
        let one_log = Diagonal { log: vec![0.0] };
        assert!(matches!(make(2, 2, one_log, 4), Err(Length { .. })));
        let positive = Scalar { log: 1e-9 };
        assert!(matches!(make(1, 1, positive, 1), Err(PositiveLogGate { .. })));
        for log in [f64::NAN, f64::NEG_INFINITY] {
            assert!(matches!(make(1, 1, Scalar { log }, 1), Err(NonFinite { .. })));
        }
        let nan = Dense { matrix: vec![f64::NAN] };
        assert!(matches!(make(1, 1, nan, 1), Err(NonFinite { .. })));
        let (a, b) = (make(1, 2, id.clone(), 2).unwrap(), make(2, 1, id.clone(), 2).unwrap());
        assert!(matches!(Operator::compose(&a, &b), Err(ShapeMismatch { .. })));
        assert!(matches!(a.apply(&[0.0]), Err(Length { .. })));
        assert!(matches!(a.apply(&[0.0, f64::INFINITY]), Err(NonFinite { .. })));
        assert!(matches!(a.without_transition(1.0, -1.0), Err(NotANorm { .. })));
        let huge = Operator::new(1, 1, Dense { matrix: vec![1e300] }, vec![1e300]).unwrap();
        assert!(matches!(Operator::compose(&huge, &huge), Err(NonFinite { .. })));
        assert!(matches!(apply_heads(&[a], &[0.0; 3]), Err(Length { .. })));
    }
}
