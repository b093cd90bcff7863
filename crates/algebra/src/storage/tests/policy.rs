//! The chosen forms keep their targets, and slow heads are never stored coarsely.

use super::super::{COMPACT, Cells, EXACT, Form, Head, HeadTransition, StorageError, TransitionForm, choose};
use super::heads::{Gates, Keys, Tokens, Writes};
use super::{Held, Outcome, apply, chain};
use crate::error::AlgebraError;
use crate::matrix::frobenius;
use crate::operator::Operator;
use crate::rng::Rng;

const K: usize = 16;

fn head(tokens: &Tokens, operator: &Operator, head_norm: f64, factors: bool) -> Head {
    Head {
        key_dim: K,
        value_dim: K,
        state_norm: operator.state_norm(),
        head_norm,
        transition: HeadTransition::Dense {
            norm: operator.transition_norm(),
            log_gamma: tokens.log(),
            tokens: factors.then_some(tokens.g.len()),
        },
    }
}

/// The tokens of 64 segments of a head, their operators, and the largest norm of a state in their chain.
fn segments(n: usize, gates: Gates, keys: Keys) -> (Vec<Tokens>, Vec<Operator>, f64) {
    let mut rng = Rng::new(21);
    let tokens: Vec<Tokens> = (0..64).map(|_| Tokens::draw(&mut rng, (K, K), n, gates, keys, Writes::Unit)).collect();
    let operators: Vec<Operator> = tokens.iter().map(Tokens::operator).collect();
    let (mut h, mut head_norm) = (vec![0.0; K * K], 0.0f64);
    for operator in &operators {
        h = apply(operator, &h);
        head_norm = head_norm.max(frobenius(&h));
    }
    (tokens, operators, head_norm)
}

fn hold(form: Form, tokens: &Tokens, operator: &Operator) -> Held {
    match form {
        Form::Pair { .. } => Held::of_pair(form, tokens),
        Form::Split { .. } => Held::new(form, operator.clone()),
    }
}

/// 64 segments from zero and from a state.
fn run(pool: &[Held]) -> Outcome {
    let order: Vec<usize> = (0..64).map(|i| i % pool.len()).collect();
    let random = Rng::new(1).direction(K * K);
    chain(pool, &order, &random).worse(chain(pool, &order, &vec![0.0; K * K]))
}

#[test]
fn composed_states_keep_the_bound_they_were_chosen_for() {
    let (mut pairs, mut absent, mut slow) = (0, 0, 0);
    for gates in Gates::ALL {
        for (i, keys) in Keys::ALL.into_iter().enumerate() {
            // Shorter and longer than K.
            let n = [K / 4, 4 * K][i % 2];
            let (tokens, operators, head_norm) = segments(n, gates, keys);
            for bound in [2e-6, EXACT, 2e-4, COMPACT] {
                let pool: Vec<Held> = tokens
                    .iter()
                    .zip(&operators)
                    .map(|(t, o)| {
                        let form = choose(&head(t, o, head_norm, gates != Gates::Slow), bound).unwrap();
                        match form {
                            Form::Pair { .. } => pairs += 1,
                            Form::Split { transition: TransitionForm::Absent { .. }, .. } => absent += 1,
                            Form::Split { .. } if o.transition_norm() > 0.99 => slow += 1,
                            Form::Split { .. } => {}
                        }
                        hold(form, t, o)
                    })
                    .collect();
                let (distinct, repeated) = (run(&pool), run(&pool[..8]));
                let what = format!("{bound:e} {gates:?} {keys:?} {n}");
                assert!(distinct.broken <= 1.0 && repeated.broken <= 1.0, "{what}");
                assert!(distinct.relative <= bound, "{what}: {:e}", distinct.relative);
                // Eight segments eight times: their roundings add up where a head erases nothing.
                assert!(repeated.relative <= 1.5 * bound, "{what}: {:e}", repeated.relative);
            }
        }
    }
    assert!(pairs > 100 && absent > 100 && slow > 100, "{pairs} {absent} {slow}");
}

/// The head that coarse forms fail on.
#[test]
fn a_slow_head_is_never_stored_coarsely() {
    let (tokens, operators, head_norm) = segments(4 * K, Gates::Slow, Keys::Faint);
    assert!(operators.iter().all(|o| o.transition_norm() > 0.99));
    for bound in [1e-6, EXACT, 1e-4, 2e-4, COMPACT, 0.1, 1e3] {
        match choose(&head(&tokens[0], &operators[0], head_norm, false), bound).unwrap() {
            Form::Split { transition: TransitionForm::Residual { cells, .. }, state } => {
                assert!(cells != Cells::Bf16 && state != Cells::Bf16, "{bound:e}");
            }
            // Under a bound this lax even this transition does not matter to what the segment wrote.
            Form::Split { transition: TransitionForm::Absent { .. }, .. } => assert!(bound > 1.0),
            other => panic!("{bound:e}: {other:?}"),
        }
    }
    // Eight segments eight times, which is what adds equal roundings up.
    let error = |transition: &dyn Fn(&Tokens) -> TransitionForm, state| {
        let pool: Vec<Held> = (0..8)
            .map(|i| hold(Form::Split { transition: transition(&tokens[i]), state }, &tokens[i], &operators[i]))
            .collect();
        run(&pool).relative
    };
    let residual = |cells| move |t: &Tokens| TransitionForm::Residual { log_gamma: t.log(), cells };
    let bf16 = error(&|_| TransitionForm::Dense(Cells::Bf16), Cells::F32);
    assert!(bf16 > 5.0 * COMPACT, "{bf16:e}");
    let f16 = error(&|_| TransitionForm::Dense(Cells::F16), Cells::F32);
    assert!(f16 > COMPACT, "{f16:e}");
    // γI + D keeps the same head within the target, with cells no larger.
    let kept = error(&residual(Cells::Int16), Cells::Int16);
    assert!(kept < 0.1 * COMPACT, "{kept:e}");
    let kept = error(&residual(Cells::F32), Cells::F24);
    assert!(kept < EXACT, "{kept:e}");
}

fn dense(norm: f64, state_norm: f64, tokens: Option<usize>) -> Head {
    let transition = HeadTransition::Dense { norm, log_gamma: -0.01, tokens };
    Head { key_dim: 128, value_dim: 128, state_norm, head_norm: 1.0, transition }
}

#[test]
fn the_bands_are_those_documented() {
    use TransitionForm::{Absent, Dense, LogDiagonal, LogScalar, Residual};
    let slow = |cells| Residual { log_gamma: -0.01, cells };
    for (bound, state, fast, slow_cells, drop) in [
        (1e-5, Cells::F32, Cells::F32, Cells::F32, 5e-7),
        (EXACT, Cells::F24, Cells::F24, Cells::F32, 3e-6),
        (2e-4, Cells::Int16, Cells::Int16, Cells::F24, 2e-5),
        (COMPACT, Cells::Int16, Cells::Int16, Cells::Int16, 3e-4),
    ] {
        let expect = |h: Head, transition| {
            assert_eq!(choose(&h, bound), Ok(Form::Split { transition, state }), "{bound:e}");
        };
        expect(dense(0.999, 1.0, None), slow(slow_cells));
        expect(dense(0.5, 1.0, Some(120)), slow(slow_cells));
        expect(dense(0.49, 1.0, None), Dense(fast));
        match choose(&dense(0.9 * drop, 1.0, None), bound).unwrap() {
            Form::Split { transition: Absent { bound: b, .. }, .. } => {
                // A quotient of two decimal constants.
                assert!((b / drop - 1.0).abs() < 1e-12, "{b:e}");
            }
            other => panic!("{other:?}"),
        }
        // The same transition beside a segment that writes little.
        expect(dense(0.9 * drop, 1e-3, None), Dense(fast));
        let other = |transition| Head { transition, ..dense(0.0, 1.0, None) };
        expect(other(HeadTransition::Scalar), LogScalar);
        expect(other(HeadTransition::Diagonal), LogDiagonal);
        assert!(matches!(choose(&dense(0.9, 1.0, Some(16)), bound), Ok(Form::Pair { .. })));
    }
}

#[test]
fn impossible_questions_are_typed_errors() {
    let good = dense(0.9, 1.0, None);
    assert_eq!(choose(&good, 1e-9), Err(StorageError::TooStrict { bound: 1e-9, floor: 1e-6 }));
    let not_a_norm =
        |h: &Head, bound| matches!(choose(h, bound), Err(StorageError::Algebra(AlgebraError::NotANorm { .. })));
    assert!(not_a_norm(&good, f64::NAN) && not_a_norm(&good, f64::INFINITY));
    assert!(not_a_norm(&dense(f64::NAN, 1.0, None), EXACT) && not_a_norm(&dense(0.9, -1.0, None), EXACT));
    assert!(not_a_norm(&Head { head_norm: f64::NAN, ..good }, EXACT));
    for log_gamma in [0.1, f64::NAN] {
        let transition = HeadTransition::Dense { norm: 0.9, log_gamma, tokens: None };
        assert!(matches!(choose(&Head { transition, ..good }, EXACT), Err(StorageError::Algebra(_))));
    }
}
