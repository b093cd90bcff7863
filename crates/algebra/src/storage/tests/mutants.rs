//! Forms that do a little worse than they say, and bounds that leave a term out: the attacks must find each of them.

use super::super::round::{exponent, nearest, power_of_two};
use super::super::{Bound, Cells, Form, TransitionForm};
use super::chains::bits;
use super::heads::{Gates, Keys, Tokens, Writes, tie, ties};
use super::{Held, attack};
use crate::operator::Operator;
use crate::rng::Rng;
use crate::transition::Transition;

const FLOATS: [Cells; 4] = [Cells::F32, Cells::F24, Cells::F16, Cells::Bf16];
const ROWS: usize = 15;
const COLUMNS: usize = 4;

fn plain(cells: Cells) -> Form {
    Form::Split { transition: TransitionForm::Dense(cells), state: cells }
}

/// What is held when `mutant` changes every entry before the form sees it; the bound is the form's own.
fn mutated(form: Form, exact: &Operator, mutant: &dyn Fn(f64) -> f64) -> Held {
    let k = exact.key_dim();
    let matrix = exact.transition().to_dense(k).iter().map(|&x| mutant(x)).collect();
    let state = exact.state().iter().map(|&x| mutant(x)).collect();
    let other = Operator::new(k, exact.value_dim(), Transition::Dense { matrix }, state).unwrap();
    Held { stored: Held::new(form, other).stored, ..Held::new(form, exact.clone()) }
}

fn broken(held: Held) -> f64 {
    [1, 4, 64]
        .into_iter()
        .map(|n| attack(std::slice::from_ref(&held), n, 1.0, &mut Rng::new(3)).broken)
        .fold(0.0, f64::max)
}

/// An operator of equal entries that are the worst for `mutant`, and with `S` only.
fn worst_for(mutant: &dyn Fn(f64) -> f64, cells: Cells) -> [Operator; 2] {
    let round = |x: f64| nearest(x, bits(cells), 1e-30, 1e-30);
    let share = |x: f64| (round(mutant(x)) - x).abs() / x;
    // Ties and their surroundings just above a power of two, where the relative error is the largest.
    let start = 1.0 / 32.0;
    let quantum = power_of_two(exponent(start) - bits(cells) as i32 + 1);
    let worst = (0..4000)
        .map(|i| start + quantum * 0.25 * f64::from(i % (1 << (bits(cells) - 3).min(11))))
        .max_by(|a, b| share(*a).total_cmp(&share(*b)))
        .unwrap();
    let of = |t: f64| {
        let transition = Transition::Dense { matrix: vec![t; ROWS * ROWS] };
        Operator::new(ROWS, COLUMNS, transition, vec![worst; ROWS * COLUMNS]).unwrap()
    };
    [of(worst), of(0.0)]
}

fn is_found(name: &str, cells: Cells, mutant: &dyn Fn(f64) -> f64) {
    for exact in worst_for(mutant, cells) {
        let honest = broken(Held::new(plain(cells), exact.clone()));
        assert!(honest <= 1.0, "{name} {cells:?}: the form itself is at {honest}");
        let found = broken(mutated(plain(cells), &exact, mutant));
        assert!(found > 1.2, "{name} {cells:?} went unnoticed: {found}");
    }
}

#[test]
fn rounding_once_more_breaks_the_bound() {
    for cells in FLOATS {
        // Through a scale that is no power of two, as a scale that brings the largest entry to 1 would be.
        for scale in [0.7, 1.1, 1.0 / 3.0] {
            is_found("rounds twice", cells, &|x| nearest(x * scale, bits(cells), 1e-30, 1e-30) / scale);
        }
    }
}

#[test]
fn one_bit_fewer_breaks_the_bound() {
    for cells in FLOATS {
        is_found("one bit fewer", cells, &|x| nearest(x, bits(cells) - 1, 1e-30, 1e-30));
    }
}

#[test]
fn truncation_breaks_the_bound() {
    for cells in FLOATS {
        is_found("truncates", cells, &|x| {
            let quantum = power_of_two(exponent(x) - bits(cells) as i32 + 1);
            (x / quantum).trunc() * quantum
        });
    }
}

/// A state whose first row sets the scale of every column to 2^-10 and whose other entries are `rest` steps.
fn on_the_grid(rest: f64) -> Operator {
    let step = power_of_two(-10);
    let state = (0..ROWS * COLUMNS).map(|i| step * if i < COLUMNS { 32767.0 } else { rest }).collect();
    Operator::new(ROWS, COLUMNS, Transition::Dense { matrix: vec![0.0; ROWS * ROWS] }, state).unwrap()
}

#[test]
fn integers_that_truncate_or_round_once_more_break_the_bound() {
    let step = power_of_two(-10);
    let form = plain(Cells::Int16);
    for (rest, mutant) in [
        (8.9, (&|x: f64| (x / step).trunc() * step) as &dyn Fn(f64) -> f64),
        // Half of a step, then a whole one: 8.74 becomes 8.5, that 8.
        (8.74, &|x: f64| (x / step * 2.0).floor() * 0.5 * step),
        (7.0, &|x: f64| (x / step / 2.0).round_ties_even() * 2.0 * step),
    ] {
        let exact = on_the_grid(rest);
        assert!(broken(Held::new(form, exact.clone())) <= 1.0);
        let found = broken(mutated(form, &exact, mutant));
        assert!(found > 1.2, "{rest}: {found}");
    }
    // The honest form comes close: 14 of 15 rows are half a step off.
    let tied = broken(Held::new(form, on_the_grid(8.5)));
    assert!(tied > 0.95 && tied <= 1.0, "{tied}");
}

#[test]
fn one_integer_scale_for_the_whole_matrix_breaks_the_bound() {
    let step = power_of_two(-10);
    // The first column is large, the others lie at half of its step.
    let state: Vec<f64> = (0..ROWS * COLUMNS).map(|i| step * if i % COLUMNS == 0 { 32767.0 } else { 0.5 }).collect();
    let exact =
        Operator::new(ROWS, COLUMNS, Transition::Dense { matrix: vec![0.0; ROWS * ROWS] }, state.clone()).unwrap();
    let honest = Held::new(plain(Cells::Int16), exact.clone());
    let rounded = state.iter().map(|x| (x / step).round_ties_even() * step).collect();
    let stored = Operator::new(ROWS, COLUMNS, exact.transition().clone(), rounded).unwrap();
    assert!(broken(honest.clone()) <= 1.0);
    assert!(broken(Held { stored, ..honest }) > 1.2);
}

#[test]
fn binary16_without_a_scale_breaks_the_bound() {
    for size in [1e-7, 1e6] {
        let state: Vec<f64> = (0..8).map(|i| size * f64::from(i + 1)).collect();
        let exact = Operator::new(2, 4, Transition::Dense { matrix: vec![0.0; 4] }, state.clone()).unwrap();
        let honest = Held::new(plain(Cells::F16), exact.clone());
        // Saturating, as kernels do.
        let raw = state.iter().map(|&x| half::f16::from_f64(x).to_f64().min(65504.0)).collect();
        let stored = Operator::new(2, 4, exact.transition().clone(), raw).unwrap();
        assert!(broken(honest.clone()) <= 1.0);
        assert!(broken(Held { stored, ..honest }) > 2.0);
    }
}

#[test]
fn a_residual_taken_with_the_unrounded_factor_breaks_the_bound() {
    let mut rng = Rng::new(2);
    let tokens = Tokens::draw(&mut rng, (8, 4), 6, Gates::Slow, Keys::Faint, Writes::Unit);
    let exact = tokens.operator();
    let log_gamma = tokens.log();
    let form = Form::Split { transition: TransitionForm::Residual { log_gamma, cells: Cells::F32 }, state: Cells::F32 };
    let honest = Held::new(form, exact.clone());
    let gamma = log_gamma.exp();
    let mut matrix = honest.stored.transition().to_dense(8);
    matrix.iter_mut().step_by(9).for_each(|x| *x += f64::from(gamma as f32) - gamma);
    let stored = Operator::new(8, 4, Transition::Dense { matrix }, honest.stored.state().to_vec()).unwrap();
    // A large incoming state, so that T counts and S does not.
    let at = |held: Held| attack(&[held], 64, 1e6, &mut Rng::new(1)).broken;
    assert!(at(honest.clone()) <= 1.0);
    assert!(at(Held { stored, ..honest }) > 1.2);
}

#[test]
fn log_sums_in_half_precision_break_the_bound() {
    for log in [-0.7001, -3.3] {
        let of = |log| Operator::new(2, 1, Transition::Scalar { log }, vec![0.0; 2]).unwrap();
        let form = Form::Split { transition: TransitionForm::LogScalar, state: Cells::F32 };
        let honest = Held::new(form, of(log));
        assert!(broken(honest.clone()) <= 1.0);
        for rounded in [half::f16::from_f64(log).to_f64(), half::bf16::from_f64(log).to_f64()] {
            assert!(broken(Held { stored: of(rounded), ..honest.clone() }) > 10.0);
        }
    }
}

#[test]
fn factors_rounded_once_more_break_the_bound() {
    for cells in FLOATS {
        let b = bits(cells);
        // One token of equal entries, every one a tie that rounds down, in the key and in what it writes.
        let entry = |x: f64| tie(x, b, false);
        let tokens =
            |k: f64, v: f64| Tokens { dims: (8, 4), k: vec![k; 8], v: vec![v; 4], g: vec![-0.5], beta: vec![1.0] };
        let form = Form::Pair { cells };
        let honest = Held::of_pair(form, &tokens(entry(0.25), entry(0.5)));
        let share = broken(honest.clone());
        assert!(share <= 1.0 && share > 0.9, "{cells:?}: {share}");
        // A bit fewer, towards zero.
        let down = |x: f64| x - power_of_two(exponent(x) - b as i32 + 1);
        let stored = Held::of_pair(form, &tokens(down(entry(0.25)), down(entry(0.5)))).stored;
        assert!(broken(Held { stored, ..honest }) > 1.2, "{cells:?}");
    }
}

#[test]
fn a_bound_that_leaves_a_term_out_is_broken() {
    let of = |t: Vec<f64>, s| Operator::new(15, 4, Transition::Dense { matrix: t }, s).unwrap();
    let exact = of(ties(15, 15, 11, false, 1.0), ties(15, 4, 11, false, 1.0));
    let held = Held::new(plain(Cells::F16), exact);
    let share = broken(held.clone());
    assert!(share <= 1.0, "{share}");
    let without = |change: &dyn Fn(&mut Bound)| {
        let mut held = held.clone();
        change(&mut held.bound);
        broken(held)
    };
    assert!(without(&|b| b.transition_error = 0.0) > 1.2);
    assert!(without(&|b| b.state_error = 0.0) > 1.2);
    assert!(without(&|b| b.state_norm = 0.0) > 1.2);
    // An error that is not carried on, and states taken to be no larger than what a segment writes.
    assert!(without(&|b| b.growth = 0.0) > 1.2);
    assert!(without(&|b| b.transition_norm = 0.0) > 1.2);
}
