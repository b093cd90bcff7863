//! The laws themselves: each takes a case apart, asks the subject and measures.

use super::Law;
use super::measure::{Measured, Reference, Space, operator_errors, relative_error};
use super::subject::{ChainStep, Subject, SubjectError, Tolerances};
use crate::family::{DecayKind, Family, UpdateKind};
use crate::inputs::{Inputs, Run};
use crate::operator::{Operator, apply_heads};
use crate::sizes::Sizes;
use crate::strategy::{Case, Kind};

/// A mistake (two segments swapped, a wrong tail) must move the oracle's state by at least this share, or the case says
/// nothing about it.
pub(super) const VISIBLE: f64 = 1e-3;

/// Holds `subject` against one law on one case.
///
/// # Errors
/// [`SubjectError::NotApplicable`] when the law says nothing about the case or the subject does not do it; any other error
/// is a failure of the subject.
pub fn check(law: Law, subject: &mut dyn Subject, case: &Case) -> Result<Measured, SubjectError> {
    if let Some(why) = law.silent_on(subject.family()) {
        return Err(SubjectError::NotApplicable { why: why.into() });
    }
    let case = match law {
        // Order can only be seen where two segments are there and something is written.
        Law::OrderSensitivity => Case { kind: Kind::Typical, tokens: case.tokens.max(2), ..*case },
        Law::Convolution => Case { tokens: case.tokens.max(super::warm_up::tokens(subject.family())), ..*case },
        _ => *case,
    };
    let mut c = Check::new(subject, &case)?;
    match law {
        Law::Oracle => c.oracle_agreement(),
        Law::Operator => c.operator_agreement(),
        Law::Identity => c.identity(),
        Law::Associativity => c.associativity(),
        Law::SplitInvariance => c.split_invariance(),
        Law::ApplyCompose => c.apply_compose(),
        Law::ShortLengths => c.short_lengths(),
        Law::OrderSensitivity => c.order_sensitivity(),
        Law::Contraction => c.contraction(),
        Law::Batch => c.batch(),
        Law::Cuts => c.cuts(),
        Law::Chain => c.chain(),
        Law::Convolution => c.convolution(None).map(|_| ()),
        Law::Rerotation => c.rerotation(),
    }?;
    Ok(c.worst)
}

/// A subject with a case, and the worst error so far.
pub(super) struct Check<'a> {
    pub(super) subject: &'a mut dyn Subject,
    pub(super) family: &'static dyn Family,
    pub(super) tolerances: Tolerances,
    pub(super) case: Case,
    pub(super) x: Inputs,
    pub(super) s0: Vec<f64>,
    pub(super) worst: Measured,
}

impl<'a> Check<'a> {
    pub(super) fn new(subject: &'a mut dyn Subject, case: &Case) -> Result<Self, SubjectError> {
        let (limits, family) = (subject.limits(), subject.family());
        if case.tokens > limits.max_tokens {
            let why = format!("{} tokens, at most {}", case.tokens, limits.max_tokens);
            return Err(SubjectError::NotApplicable { why });
        }
        case.sizes().check()?;
        family.sizes(case).check()?;
        let (x, s0) = family.inputs(case, limits.rounding);
        let tolerances = limits.tolerances.times(family.conditioning(&x));
        Ok(Self { subject, family, tolerances, case: *case, x, s0, worst: Measured::NOTHING })
    }
}

pub(super) type Done = Result<(), SubjectError>;

impl Check<'_> {
    pub(super) fn tokens(&self) -> usize {
        self.x.sizes.tokens
    }

    fn zeros(&self) -> Vec<f64> {
        self.family.zero_state(&self.x.sizes)
    }

    pub(super) fn space(&self) -> Space {
        Space::new(self.family, &self.x.sizes)
    }

    pub(super) fn reference(&self) -> Result<Reference, SubjectError> {
        Ok(Reference::new(self.family, &self.x, &self.s0)?)
    }

    /// Scales `[HV]` for the `S` of the operator of tokens `first..T`.
    fn operator_scale(&self, first: usize) -> Result<Vec<f64>, SubjectError> {
        self.scale_of(&self.x.slice(first..self.tokens())?)
    }

    /// Scales `[HV]` for the `S` of the operator of all tokens of `x`.
    pub(super) fn scale_of(&self, x: &Inputs) -> Result<Vec<f64>, SubjectError> {
        Ok(Reference::new(self.family, x, &self.zeros())?.state_scale)
    }

    pub(super) fn note_state(&mut self, part: &'static str, got: &[f64], want: &Reference) -> Done {
        let error = self.space().error(part, got, &want.run.state, &want.state_scale)?;
        self.worst.note(part, error, self.tolerances.state);
        Ok(())
    }

    pub(super) fn note_run(&mut self, got: &Run, want: &Reference) -> Done {
        self.note_state("state", &got.state, want)?;
        let error = relative_error("outputs", &got.o, &want.run.o, &want.output_scale)?;
        self.worst.note("outputs", error, self.tolerances.output);
        Ok(())
    }

    pub(super) fn note_operators(&mut self, got: &[Operator], want: &[Operator], scale: &[f64]) -> Done {
        let (transition, state) = operator_errors(got, want, scale)?;
        self.worst.note("operator T", transition, self.tolerances.transition);
        self.worst.note("operator S", state, self.tolerances.state);
        Ok(())
    }

    fn identities(&self) -> Result<Vec<Operator>, SubjectError> {
        Ok(self.family.identity(&self.x.sizes)?)
    }

    /// Runs the chain of `steps` from the case's start state.
    pub(super) fn walk(&mut self, steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        let tokens = steps.iter().map(|step| match step {
            ChainStep::Run(x) => x.sizes.tokens,
            ChainStep::Apply(_) | ChainStep::Moved { .. } => 0,
        });
        let sizes = Sizes { tokens: tokens.sum(), ..self.x.sizes };
        self.subject.chain(&sizes, &self.s0, steps)
    }

    fn oracle_agreement(&mut self) -> Done {
        let want = self.reference()?;
        let got = self.subject.run(&self.x, &self.s0)?;
        self.note_run(&got, &want)
    }

    fn operator_agreement(&mut self) -> Done {
        let mut rng = self.case.rng(2);
        let first = if rng.chance(0.3) { 0 } else { rng.up_to(self.tokens()) };
        let want = self.family.operator(&self.x, first..self.tokens())?;
        let scale = self.operator_scale(first)?;
        let got = self.subject.operator(&self.x, first)?;
        self.note_operators(&got, &want, &scale)
    }

    fn identity(&mut self) -> Done {
        let (id, want) = (self.identities()?, self.reference()?);
        let scale = self.operator_scale(0)?;
        let whole = self.subject.operator(&self.x, 0)?;
        let left = self.subject.compose(&id, &whole)?;
        self.note_operators(&left, &whole, &scale)?;
        let right = self.subject.compose(&whole, &id)?;
        self.note_operators(&right, &whole, &scale)?;
        let none = self.subject.operator(&self.x, self.tokens())?;
        self.note_operators(&none, &id, &scale)?;
        let x = self.x.clone();
        let steps = [ChainStep::Apply(&id), ChainStep::Run(&x), ChainStep::Apply(&none)];
        let run = self.walk(&steps)?;
        self.note_run(&run, &want)
    }

    fn associativity(&mut self) -> Done {
        let mut rng = self.case.rng(3);
        let second = rng.up_to(self.tokens());
        let first = rng.up_to(second);
        let scale = self.operator_scale(0)?;
        let a = self.subject.operator(&self.x.slice(0..first)?, 0)?;
        let b = self.subject.operator(&self.x.slice(first..second)?, 0)?;
        let c = self.subject.operator(&self.x.slice(second..self.tokens())?, 0)?;
        let cb = self.subject.compose(&c, &b)?;
        let left = self.subject.compose(&cb, &a)?;
        let ba = self.subject.compose(&b, &a)?;
        let right = self.subject.compose(&c, &ba)?;
        self.note_operators(&left, &right, &scale)
    }

    fn split_invariance(&mut self) -> Done {
        let cut = self.case.rng(4).up_to(self.tokens());
        let (head, tail) = (self.x.slice(0..cut)?, self.x.slice(cut..self.tokens())?);
        let a = self.subject.operator(&head, 0)?;
        let b = self.subject.operator(&tail, 0)?;
        let whole = self.family.operator(&self.x, 0..self.tokens())?;
        let composed = self.subject.compose(&b, &a)?;
        let scale = self.operator_scale(0)?;
        self.note_operators(&composed, &whole, &scale)?;
        let scale = self.operator_scale(cut)?;
        let running = self.subject.operator(&self.x, cut)?;
        self.note_operators(&running, &b, &scale)?;
        let want = self.reference()?;
        let run = self.walk(&[ChainStep::Run(&head), ChainStep::Run(&tail)])?;
        self.note_run(&run, &want)
    }

    fn apply_compose(&mut self) -> Done {
        let cut = self.case.rng(5).up_to(self.tokens());
        let want = self.reference()?;
        let a = self.subject.operator(&self.x.slice(0..cut)?, 0)?;
        let b = self.subject.operator(&self.x.slice(cut..self.tokens())?, 0)?;
        let in_turn = self.walk(&[ChainStep::Apply(&a), ChainStep::Apply(&b)])?;
        self.note_state("state, applied in turn", &in_turn.state, &want)?;
        let composed = self.subject.compose(&b, &a)?;
        let at_once = self.walk(&[ChainStep::Apply(&composed)])?;
        self.note_state("state, applied composed", &at_once.state, &want)?;
        let outside = apply_heads(&composed, &self.s0)?.strict()?;
        self.note_state("state, applied in f64", &outside, &want)
    }

    fn short_lengths(&mut self) -> Done {
        let empty = self.x.slice(0..0)?;
        let run = self.subject.run(&empty, &self.s0)?;
        let scale = vec![1.0; self.x.sizes.value_heads];
        // Nothing is computed, so nothing may be rounded.
        let moved = self.space().error("state after no token", &run.state, &self.s0, &scale)?;
        self.worst.note("state after no token", moved, 0.0);
        crate::error::check_length("outputs of no token", 0, run.o.len())?;
        let (none, id) = (self.subject.operator(&empty, 0)?, self.identities()?);
        self.note_operators(&none, &id, &scale)?;
        let still = self.walk(&[])?;
        let moved = self.space().error("state after no step", &still.state, &self.s0, &scale)?;
        self.worst.note("state after no step", moved, 0.0);
        if self.tokens() == 0 {
            return Ok(());
        }
        let t = self.case.rng(6).up_to(self.tokens() - 1);
        self.x = self.x.slice(t..t + 1)?;
        self.oracle_agreement()?;
        let want = self.family.operator(&self.x, 0..1)?;
        let scale = self.operator_scale(0)?;
        let got = self.subject.operator(&self.x, 0)?;
        self.note_operators(&got, &want, &scale)
    }

    fn order_sensitivity(&mut self) -> Done {
        let cut = 1 + self.case.rng(7).up_to(self.tokens() - 2);
        let (a, b) = (self.x.slice(0..cut)?, self.x.slice(cut..self.tokens())?);
        let forward = self.reference()?;
        let swapped = Reference::new(self.family, &b.followed_by(&a)?, &self.s0)?;
        let (op_a, op_b) = (self.subject.operator(&a, 0)?, self.subject.operator(&b, 0)?);
        let ab = self.walk(&[ChainStep::Apply(&op_a), ChainStep::Apply(&op_b)])?;
        let ba = self.walk(&[ChainStep::Apply(&op_b), ChainStep::Apply(&op_a)])?;
        let (space, commutes) = (self.space(), self.commutes());
        let mut visible = commutes;
        for hv in 0..self.x.sizes.value_heads {
            let unit = space.unit(space.head(&swapped.run.state, hv), space.head(&forward.run.state, hv));
            let scale = forward.state_scale[hv].max(swapped.state_scale[hv] * unit);
            let apart = |x: &[f64], y: &[f64]| space.distance(space.head(y, hv), space.head(x, hv)).0 / scale;
            let want = apart(&forward.run.state, &swapped.run.state);
            if want >= VISIBLE || commutes {
                visible = true;
                let error = (apart(&ab.state, &ba.state) - if commutes { 0.0 } else { want }).abs();
                // Two states, each within its tolerance.
                self.worst.note("distance of the two orders", error, 2.0 * self.tolerances.state);
            }
        }
        if visible {
            Ok(())
        } else {
            Err(SubjectError::NotApplicable { why: "the two orders give the same state".into() })
        }
    }

    /// Whether segments commute: they do where nothing decays and nothing is taken out.
    fn commutes(&self) -> bool {
        (self.family.decay(), self.family.update()) == (DecayKind::None, UpdateKind::Add)
    }

    fn contraction(&mut self) -> Done {
        let bound = self.family.transition_bound(&self.x)?;
        let operators = self.subject.operator(&self.x, 0)?;
        crate::error::check_length("operators of the heads [HV]", bound.len(), operators.len())?;
        for (operator, bound) in operators.iter().zip(bound) {
            let above = (operator.transition_norm() - bound).max(0.0);
            self.worst.note("norm of T above its bound", above, self.tolerances.contraction);
        }
        Ok(())
    }

    fn batch(&mut self) -> Done {
        let rounding = self.subject.limits().rounding;
        let mut rng = self.case.rng(8);
        let mut xs = vec![(self.x.clone(), self.s0.clone())];
        for _ in 0..1 + rng.up_to(2) {
            let other = Case {
                seed: rng.next_u64(),
                kind: Kind::ALL[rng.up_to(Kind::ALL.len() - 1)],
                // A third each: no token, one, any number.
                tokens: [0, 1, rng.up_to(self.tokens())][rng.up_to(2)].min(self.tokens()),
                ..self.case
            };
            let (mut x, s0) = self.family.inputs(&other, rounding);
            // Fixed gates and D belong to a layer, and a batch runs through one.
            x.skip.clone_from(&self.x.skip);
            if x.decay == DecayKind::Fixed {
                x.g.clone_from(&self.x.g);
            }
            xs.push((x, s0));
        }
        let together = self.subject.batch(&xs)?;
        crate::error::check_length("runs of the batch", xs.len(), together.len())?;
        for ((x, s0), got) in xs.iter().zip(&together) {
            let alone = self.subject.run(x, s0)?;
            let mut want = Reference::new(self.family, x, s0)?;
            want.run = alone;
            let state = self.space().error("state", &got.state, &want.run.state, &want.state_scale)?;
            self.worst.note("state in a batch", state, self.tolerances.batch);
            let o = relative_error("outputs", &got.o, &want.run.o, &want.output_scale)?;
            self.worst.note("outputs in a batch", o, self.tolerances.batch);
        }
        Ok(())
    }

    fn chain(&mut self) -> Done {
        enum Piece {
            Run(std::ops::Range<usize>, Box<Inputs>),
            Apply(Vec<Operator>),
        }
        let want = self.reference()?;
        let mut rng = self.case.rng(9);
        let mut cuts: Vec<usize> = (0..rng.up_to(5)).map(|_| rng.up_to(self.tokens())).collect();
        cuts.extend([0, self.tokens()]);
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        for range in cuts.windows(2).map(|w| w[0]..w[1]) {
            let x = self.x.slice(range.clone())?;
            match rng.up_to(2) {
                0 => pieces.push(Piece::Run(range, Box::new(x))),
                1 => pieces.push(Piece::Apply(self.subject.operator(&x, 0)?)),
                // A seam is recomputed, the rest comes from the operator.
                _ => {
                    let seam = rng.up_to(8).min(range.len());
                    let rows = range.start..range.start + seam;
                    pieces.push(Piece::Run(rows, Box::new(x.slice(0..seam)?)));
                    pieces.push(Piece::Apply(self.subject.operator(&x, seam)?));
                }
            }
        }
        let steps: Vec<ChainStep<'_>> = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Run(_, x) => ChainStep::Run(x),
                Piece::Apply(operators) => ChainStep::Apply(operators),
            })
            .collect();
        let got = self.walk(&steps)?;
        self.note_state("state", &got.state, &want)?;
        let (heads, dim) = (self.x.sizes.value_heads, self.x.sizes.value_dim);
        let (mut outputs, mut scale) = (Vec::new(), Vec::new());
        for piece in &pieces {
            if let Piece::Run(rows, _) = piece {
                let (from, to) = (rows.start * heads, rows.end * heads);
                outputs.extend_from_slice(&want.run.o[from * dim..to * dim]);
                scale.extend_from_slice(&want.output_scale[from..to]);
            }
        }
        let error = relative_error("outputs", &got.o, &outputs, &scale)?;
        self.worst.note("outputs", error, self.tolerances.output);
        Ok(())
    }
}
