//! Subjects that are wrong on purpose: each must fail the laws that its defect breaks, or those laws check nothing.

use super::subject::{ChainStep, Limits, OracleSubject, Subject, SubjectError};
use super::{Law, Options, Regression, check, every_cut, every_length, regressions, run_laws};
use crate::inputs::{Inputs, Run};
use crate::matrix::transpose;
use crate::operator::Operator;
use crate::rerotate::Decay;
use crate::sizes::Sizes;
use crate::strategy::{Case, Kind};
use crate::transition::Transition;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mutation {
    /// T := 1: operators are added up.
    TransitionOne,
    /// T := Tᵀ, which one token cannot show: its transition is symmetric.
    TransposedTransition,
    /// `S += k uᵀ` first, then the decay.
    DecayAfterDelta,
    /// `earlier ∘ later`.
    SwappedComposition,
    /// The right S, but `T1·T2` in place of `T2·T1`.
    SwappedProduct,
    /// T a thousandth too large.
    Growing,
    /// The operator covers the seam too.
    SeamCountedTwice,
    /// The second sequence of a batch starts from the first one's state.
    LeakingBatch,
    /// A member of a batch without a token comes back empty.
    EmptyMember,
    /// A member of a batch of one token is not run.
    SingleMember,
    /// Each chain step rounds the state to f32.
    RoundedChain,
    /// Value head j reads key head `j mod H`.
    InterleavedHeads,
    /// Beta above 1 is cut to 1.
    ClampedBeta,
    /// The last key dim is left out, as by a kernel whose tiles do not cover K.
    ShortKeys,
    /// The start state is lost when there are no tokens.
    EmptyRunForgets,
    /// Steps of a chain behind the twelfth are left out, as by a table that is too short; their outputs are zero.
    ShortTable,
    /// A state that is handed from one decoding step to the next is kept in f32.
    RoundedDecode,
    /// A moved operator is applied where it was computed.
    MovedInPlace,
    /// A moved operator is turned the wrong way.
    MovedBackwards,
    /// Of a moved operator only S is turned.
    MovedStateAlone,
}

struct Mutant(Mutation, OracleSubject);

/// Keys and queries without their last dim.
fn short_keys(x: &Inputs) -> Inputs {
    let mut x = x.clone();
    let dim = x.sizes.key_dim;
    x.k.iter_mut().chain(&mut x.q).skip(dim - 1).step_by(dim).for_each(|x| *x = 0.0);
    x
}

fn mutant(mutation: Mutation) -> Mutant {
    Mutant(mutation, OracleSubject::default())
}

fn with_transition(op: &Operator, f: impl Fn(Vec<f64>) -> Vec<f64>) -> Operator {
    let matrix = f(op.transition().to_dense(op.key_dim()));
    let transition = Transition::Dense { matrix };
    Operator::new(op.key_dim(), op.value_dim(), transition, op.state().to_vec()).unwrap()
}

fn decay_after_delta(x: &Inputs, s0: &[f64]) -> Run {
    let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
    let (mut state, mut o) = (s0.to_vec(), vec![0.0; x.v.len()]);
    for t in 0..tokens {
        for (hv, s) in state.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let row = t * value_heads + hv;
            for j in 0..value_dim {
                let (k, q) = (x.key(t, hv), x.query(t, hv));
                let read: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * k[i]).sum();
                let u = x.beta[row] * (x.value(t, hv)[j] - read);
                for i in 0..key_dim {
                    let e = &mut s[i * value_dim + j];
                    *e = x.g[row].exp() * (*e + k[i] * u);
                    o[row * value_dim + j] += x.scale * q[i] * *e;
                }
            }
        }
    }
    Run { o, state }
}

/// The same inputs with one key head a value head, taken in the wrong order.
fn interleaved(x: &Inputs) -> Inputs {
    let mut wrong = x.clone();
    wrong.sizes.key_heads = x.sizes.value_heads;
    let pick = |from: &[f64]| {
        let heads = x.sizes.key_heads;
        let row = |t: usize, hv: usize| (t * heads + hv % heads) * x.sizes.key_dim;
        (0..x.sizes.tokens)
            .flat_map(|t| (0..x.sizes.value_heads).map(move |hv| (t, hv)))
            .flat_map(|(t, hv)| from[row(t, hv)..row(t, hv) + x.sizes.key_dim].to_vec())
            .collect::<Vec<_>>()
    };
    (wrong.q, wrong.k) = (pick(&x.q), pick(&x.k));
    wrong
}

impl Mutant {
    /// The chain with its moved steps as the defect has them.
    fn moved_wrong(&mut self, sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        let mut all = Run { o: vec![], state: s0.to_vec() };
        for step in steps {
            let alone;
            let step = match *step {
                ChainStep::Moved { operators, .. } if self.0 == Mutation::MovedInPlace => ChainStep::Apply(operators),
                ChainStep::Moved { operators, rotation, delta } if self.0 == Mutation::MovedBackwards => {
                    ChainStep::Moved { operators, rotation, delta: -delta }
                }
                ChainStep::Moved { operators, rotation, delta } => {
                    let moved = rotation.rerotate_heads(operators, Decay::Scalar, delta)?;
                    let left =
                        |(m, o): (&Operator, &Operator)| with_transition(m, |_| o.transition().to_dense(o.key_dim()));
                    alone = moved.iter().zip(operators).map(left).collect::<Vec<_>>();
                    ChainStep::Apply(&alone)
                }
                other => other,
            };
            let run = self.1.chain(sizes, &all.state, &[step])?;
            all.o.extend(run.o);
            all.state = run.state;
        }
        Ok(all)
    }
}

impl Subject for Mutant {
    fn name(&self) -> String {
        format!("mutant/{:?}", self.0)
    }

    fn limits(&self) -> Limits {
        self.1.limits()
    }

    fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError> {
        match self.0 {
            Mutation::DecayAfterDelta => Ok(decay_after_delta(x, s0)),
            Mutation::InterleavedHeads => self.1.run(&interleaved(x), s0),
            Mutation::ClampedBeta => {
                let mut x = x.clone();
                x.beta.iter_mut().for_each(|b| *b = b.min(1.0));
                self.1.run(&x, s0)
            }
            Mutation::ShortKeys => self.1.run(&short_keys(x), s0),
            Mutation::RoundedDecode if x.sizes.tokens == 1 => {
                let mut run = self.1.run(x, s0)?;
                crate::inputs::round_to_f32(&mut run.state);
                Ok(run)
            }
            Mutation::EmptyRunForgets if x.sizes.tokens == 0 => self.1.run(x, &vec![0.0; s0.len()]),
            _ => self.1.run(x, s0),
        }
    }

    fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError> {
        let first = if self.0 == Mutation::SeamCountedTwice { 0 } else { first };
        let short = if self.0 == Mutation::ShortKeys { short_keys(x) } else { x.clone() };
        let mut heads = self.1.operator(&short, first)?;
        for op in &mut heads {
            let k = op.key_dim();
            *op = match self.0 {
                Mutation::TransitionOne => {
                    let state = op.state().to_vec();
                    Operator::new(k, op.value_dim(), Transition::IDENTITY, state)?
                }
                Mutation::TransposedTransition => with_transition(op, |t| transpose(&t, k)),
                Mutation::Growing => with_transition(op, |t| t.iter().map(|t| 1.001 * t).collect()),
                _ => continue,
            };
        }
        Ok(heads)
    }

    fn chain(&mut self, sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        match self.0 {
            Mutation::ShortTable => {
                let mut run = self.1.chain(sizes, s0, &steps[..steps.len().min(12)])?;
                run.o.resize(sizes.tokens * sizes.value_heads * sizes.value_dim, 0.0);
                return Ok(run);
            }
            Mutation::MovedInPlace | Mutation::MovedBackwards | Mutation::MovedStateAlone => {
                return self.moved_wrong(sizes, s0, steps);
            }
            Mutation::RoundedChain => {}
            _ => return self.1.chain(sizes, s0, steps),
        }
        let mut all = Run { o: vec![], state: s0.to_vec() };
        for step in steps {
            let run = self.1.chain(sizes, &all.state, std::slice::from_ref(step))?;
            all.o.extend(run.o);
            all.state = run.state;
            crate::inputs::round_to_f32(&mut all.state);
        }
        Ok(all)
    }

    fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
        let mut runs = self.1.batch(xs)?;
        if self.0 == Mutation::LeakingBatch && xs.len() > 1 {
            runs[1] = self.1.run(&xs[1].0, &runs[0].state)?;
        }
        for (run, (x, s0)) in runs.iter_mut().zip(xs) {
            match (self.0, x.sizes.tokens) {
                (Mutation::EmptyMember, 0) => run.state.fill(0.0),
                (Mutation::SingleMember, 1) => run.state.clone_from(s0),
                _ => {}
            }
        }
        Ok(runs)
    }

    fn compose(&mut self, later: &[Operator], earlier: &[Operator]) -> Result<Vec<Operator>, SubjectError> {
        let right = self.1.compose(later, earlier)?;
        let swapped = self.1.compose(earlier, later)?;
        Ok(match self.0 {
            Mutation::SwappedComposition => swapped,
            Mutation::SwappedProduct => right
                .iter()
                .zip(&swapped)
                .map(|(r, s)| with_transition(r, |_| s.transition().to_dense(s.key_dim())))
                .collect(),
            _ => right,
        })
    }
}

const OPTIONS: Options = Options { seed: 5, cases: 48, max_len: 40 };

fn failing(mutation: Mutation) -> Vec<Law> {
    let reports = run_laws(&mut mutant(mutation), &OPTIONS, &mut |_, _| ());
    Law::ALL.into_iter().zip(reports).filter(|(_, r)| !r.passed).map(|(law, _)| law).collect()
}

#[test]
fn every_defect_fails_the_laws_it_breaks() {
    use Law::*;
    let expected: [(Mutation, &[Law]); 20] = [
        (
            Mutation::TransitionOne,
            &[Operator, SplitInvariance, ApplyCompose, ShortLengths, OrderSensitivity, Contraction, Chain],
        ),
        (Mutation::TransposedTransition, &[Operator, SplitInvariance, ApplyCompose, OrderSensitivity, Chain]),
        (Mutation::DecayAfterDelta, &[Oracle, ShortLengths]),
        (Mutation::SwappedComposition, &[SplitInvariance, ApplyCompose]),
        (Mutation::SwappedProduct, &[Associativity, SplitInvariance]),
        (
            Mutation::Growing,
            &[Operator, Identity, SplitInvariance, ApplyCompose, ShortLengths, OrderSensitivity, Contraction, Chain],
        ),
        (Mutation::SeamCountedTwice, &[Operator, Identity, SplitInvariance, Chain, Convolution]),
        (Mutation::ShortKeys, &[Oracle, Operator, ShortLengths, Rerotation]),
        (Mutation::LeakingBatch, &[Batch]),
        (Mutation::EmptyMember, &[Batch]),
        (Mutation::SingleMember, &[Batch]),
        (Mutation::RoundedChain, &[Identity, SplitInvariance, ApplyCompose, OrderSensitivity, Chain]),
        (Mutation::InterleavedHeads, &[Oracle, ShortLengths]),
        (Mutation::ClampedBeta, &[Oracle, ShortLengths]),
        (Mutation::EmptyRunForgets, &[Oracle, ShortLengths]),
        (Mutation::ShortTable, &[Cuts]),
        (Mutation::RoundedDecode, &[Cuts, ShortLengths]),
        (Mutation::MovedInPlace, &[Rerotation]),
        (Mutation::MovedBackwards, &[Rerotation]),
        (Mutation::MovedStateAlone, &[Rerotation]),
    ];
    for (mutation, laws) in expected {
        let found = failing(mutation);
        let missed: Vec<_> = laws.iter().filter(|law| !found.contains(law)).collect();
        assert!(missed.is_empty(), "{mutation:?} passes {missed:?}");
    }
    let caught = |law: &Law| expected.iter().any(|(_, laws)| laws.contains(law));
    assert!(Law::ALL.iter().all(caught), "a law that no defect fails checks nothing");
}

/// What only one law can see, no other one reports.
#[test]
fn defects_of_batches_cuts_and_moves_fail_nothing_else() {
    for (mutation, law) in [
        (Mutation::EmptyMember, Law::Batch),
        (Mutation::SingleMember, Law::Batch),
        (Mutation::ShortTable, Law::Cuts),
        (Mutation::MovedInPlace, Law::Rerotation),
        (Mutation::MovedBackwards, Law::Rerotation),
        (Mutation::MovedStateAlone, Law::Rerotation),
    ] {
        assert_eq!(failing(mutation), [law], "{mutation:?}");
    }
    let case = Case { seed: 4, kind: Kind::Typical, tokens: 9, key_heads: 1, ratio: 1, key_dim: 4, value_dim: 4 };
    let rounded = &mut mutant(Mutation::RoundedDecode);
    assert!(!every_cut(rounded, &case).unwrap().holds() && !every_length(rounded, &case).unwrap().holds());
    let forgets = &mut mutant(Mutation::EmptyRunForgets);
    assert!(!every_cut(forgets, &case).unwrap().holds() && every_length(forgets, &case).unwrap().holds());
    let transposed = &mut mutant(Mutation::TransposedTransition);
    assert!(every_cut(transposed, &case).unwrap().holds() && !every_length(transposed, &case).unwrap().holds());
}

/// A failure prints as a test and as a line to keep, and both say the same.
#[test]
fn a_failure_prints_as_a_test_and_as_a_line_to_keep() {
    let mut subject = mutant(Mutation::ClampedBeta);
    let report = run_laws(&mut subject, &OPTIONS, &mut |_, _| ()).remove(0);
    let kept = Regression::of_failure("gated_delta_rule", &report).unwrap();
    let again = regressions(&format!("{kept} # beta above 1 was cut")).unwrap();
    assert_eq!(again, std::slice::from_ref(&kept));
    assert!(!kept.check(&mut subject).unwrap().holds());
    assert!(kept.check(&mut OracleSubject::default()).unwrap().holds());
    let test = report.test().unwrap();
    assert!(test.starts_with(&format!("#[test]\nfn oracle_{:#x}() {{\n", kept.case.seed)), "{test}");
    assert!(test.contains(&format!("check(Law::Oracle, &mut subject, &{})", kept.case)), "{test}");
    assert!(test.contains("let mut subject = subject();") && test.contains("// mutant/ClampedBeta: "), "{test}");
    let fine = run_laws(&mut OracleSubject::default(), &OPTIONS, &mut |_, _| ()).remove(0);
    assert!(fine.test().is_none() && Regression::of_failure("gated_delta_rule", &fine).is_none());
}

#[test]
fn a_failure_shrinks_and_its_line_reproduces_it() {
    let mut subject = mutant(Mutation::DecayAfterDelta);
    let reports = run_laws(&mut subject, &OPTIONS, &mut |_, _| ());
    let report = &reports[0];
    let line = report.failure.as_ref().unwrap();
    assert!(line.starts_with("check(Law::Oracle, &mut subject, &Case { seed: 0x"), "{line}");
    assert!(line.contains("// ") && line.contains("error"), "{line}");
    let seed = line.split("0x").nth(1).and_then(|s| s.split(',').next()).unwrap();
    let smallest = |kind| Case {
        seed: u64::from_str_radix(seed, 16).unwrap(),
        kind,
        tokens: 1,
        key_heads: 1,
        ratio: 1,
        key_dim: 4,
        value_dim: 4,
    };
    // A single decaying token shows it, so the sizes shrink to the smallest there are.
    let printed = |case: &Case| line.contains(&case.to_string());
    let case = Kind::ALL.into_iter().map(smallest).find(printed).expect(line);
    assert!(!check(Law::Oracle, &mut subject, &case).unwrap().holds());
    assert!(check(Law::Oracle, &mut OracleSubject::default(), &case).unwrap().holds());
}
