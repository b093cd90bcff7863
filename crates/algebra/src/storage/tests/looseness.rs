//! How far the bounds lie above what happens: not at all in the worst case, and within a known factor in the usual one.

use super::super::norms::{frobenius_up, spectral_up};
use super::super::{Bound, Cells, Form, TransitionForm};
use super::chains::bits;
use super::heads::{Gates, Keys, Tokens, Writes, tie, ties};
use super::{Held, Outcome, apply, attack, chain, worst_state};
use crate::matrix::distance;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::transition::Transition;

const K: usize = 16;
const FLOATS: [Cells; 4] = [Cells::F32, Cells::F24, Cells::F16, Cells::Bf16];

fn dense(matrix: Vec<f64>, state: Vec<f64>) -> Operator {
    Operator::new(15, 4, Transition::Dense { matrix }, state).unwrap()
}

/// The worst case comes within `least` of the bound.
fn reaches(held: Held, segments: usize, least: f64) {
    let what = format!("{:?}", held.bound);
    let out = attack(&[held], segments, 1.0, &mut Rng::new(6));
    assert!(out.share >= least && out.broken <= 1.0, "{} of {what}", out.share);
}

#[test]
fn every_bound_is_reached() {
    for cells in FLOATS {
        let form = Form::Split { transition: TransitionForm::Dense(cells), state: cells };
        let (t, s) = (ties(15, 15, bits(cells), false, 1.0), ties(15, 4, bits(cells), false, 1.0));
        // To 1 only the margins of the norms are missing.
        reaches(Held::new(form, dense(t.clone(), vec![0.0; 60])), 3, 0.99);
        reaches(Held::new(form, dense(vec![0.0; 225], s.clone())), 3, 0.99);
        reaches(Held::new(form, dense(t.clone(), s)), 3, 0.99);
        // D = ties beside γ = 1/2; in f64 the sum loses bits that f32's ties need.
        let mut sum: Vec<f64> = t.iter().map(|t| t / 4.0).collect();
        sum.iter_mut().step_by(16).for_each(|x| *x += 0.5);
        let transition = TransitionForm::Residual { log_gamma: 0.5f64.ln(), cells };
        reaches(Held::new(Form::Split { transition, state: cells }, dense(sum, vec![0.0; 60])), 3, 0.99);
    }
    // 14 of 15 rows are half a step off: √(14/15) of the bound.
    let step = 2f64.powi(-19);
    let grid = |columns| (0..15 * columns).map(|i| step * if i < columns { 32767.0 } else { 8.5 }).collect::<Vec<_>>();
    let form = Form::Split { transition: TransitionForm::Dense(Cells::Int16), state: Cells::Int16 };
    reaches(Held::new(form, dense(grid(15), vec![0.0; 60])), 1, 0.96);
    reaches(Held::new(form, dense(vec![0.0; 225], grid(4))), 1, 0.96);
    // One token that writes and erases nothing: only its decay is left, and half of what a step of the log-sum is.
    let decay = |log| Tokens { dims: (15, 4), k: vec![0.2; 15], v: vec![0.0; 4], g: vec![log], beta: vec![0.0] };
    reaches(Held::of_pair(Form::Pair { cells: Cells::F32 }, &decay(tie(-1.0, 24, false))), 3, 0.99);
    for (transition, t) in [
        (TransitionForm::LogScalar, Transition::Scalar { log: tie(-1.0, 24, false) }),
        (TransitionForm::LogDiagonal, Transition::Diagonal { log: vec![tie(-1.0, 24, false); 15] }),
        (
            TransitionForm::Absent { head_norm: 0.0, bound: 1.0 },
            Transition::Dense { matrix: ties(15, 15, 24, true, 0.5) },
        ),
    ] {
        let exact = Operator::new(15, 4, t, vec![0.0; 60]).unwrap();
        reaches(Held::new(Form::Split { transition, state: Cells::F32 }, exact), 3, 0.99);
    }
}

/// Signs that make `‖T‖₂` small do nothing for its rounding errors: these are all positive. A bound from `‖T‖₂` in
/// place of `‖|T|‖₂` would be `√8` too small.
#[test]
fn errors_may_align_where_the_entries_do_not() {
    for cells in FLOATS {
        // The Sylvester matrix of 8 rows, a quarter of it: norm √8/4.
        let entry = |i: usize| {
            let positive = ((i / 8) & (i % 8)).count_ones().is_multiple_of(2);
            let size = tie(0.25, bits(cells), positive);
            if positive { size } else { -size }
        };
        let matrix = (0..64).map(entry).collect();
        let exact = Operator::new(8, 1, Transition::Dense { matrix }, vec![0.0; 8]).unwrap();
        let form = Form::Split { transition: TransitionForm::Dense(cells), state: cells };
        let held = Held::new(form, exact);
        // bf16's ties lie up to 3·2^-8 above the power of two, where the relative error is smaller.
        let share = attack(std::slice::from_ref(&held), 1, 1.0, &mut Rng::new(6));
        assert!(share.share > 0.98 && share.broken <= 1.0, "{cells:?} {}", share.share);
        let naive = held.bound.transition_error / 8f64.sqrt();
        assert!(held.measured().bound.transition_error > 2.0 * naive);
    }
}

/// Of `S` alone, of `T` alone in its worst direction, and of a chain of 64, from zero and from its worst state.
fn shares(pool: &[Held], rng: &mut Rng) -> [Outcome; 3] {
    let long: Vec<usize> = (0..64).map(|i| i % pool.len()).collect();
    let zero = vec![0.0; pool[0].exact.state().len()];
    let t = chain(pool, &[0], &worst_state(pool, &[0], 1e9, rng));
    let both = chain(pool, &long, &worst_state(pool, &long, 3.0, rng)).worse(chain(pool, &long, &zero));
    [chain(pool, &[0], &zero), t, both]
}

/// The error of the chain of 64 from its worst state over the bound that knows the norms on the way.
fn known_share(pool: &[Held], rng: &mut Rng) -> f64 {
    let long: Vec<usize> = (0..64).map(|i| i % pool.len()).collect();
    let mut h = worst_state(pool, &long, 3.0, rng);
    let (mut held, mut incoming, mut following) = (h.clone(), vec![], vec![]);
    let mut rest = Operator::identity(K, K).unwrap();
    for (&i, &last) in long.iter().zip(long.iter().rev()) {
        incoming.push(frobenius_up(&h));
        h = apply(&pool[i].exact, &h);
        held = apply(&pool[i].stored, &held);
        following.push(spectral_up(&rest.transition().to_dense(K), K));
        rest = Operator::compose(&rest, &pool[last].stored).unwrap().value;
    }
    following.reverse();
    let bounds: Vec<Bound> = long.iter().map(|&i| pool[i].bound).collect();
    let share = distance(&h, &held) / Bound::error_of_known_chain(&bounds, &incoming, &following).unwrap();
    // f64 is far below what even f32 cells lose here.
    assert!(share <= 1.0 + 1e-6, "{share}");
    share
}

#[test]
fn usual_segments_take_a_known_share_of_their_bounds() {
    let mut rng = Rng::new(12);
    for gates in [Gates::Slow, Gates::Typical] {
        for keys in [Keys::Random, Keys::Cone, Keys::Faint] {
            let tokens: Vec<Tokens> =
                (0..8).map(|_| Tokens::draw(&mut rng, (K, K), K, gates, keys, Writes::Unit)).collect();
            for cells in Cells::ALL {
                let of = |make: &dyn Fn(&Tokens) -> Held| tokens.iter().map(make).collect::<Vec<_>>();
                let plain = Form::Split { transition: TransitionForm::Dense(cells), state: cells };
                let residual = |t: &Tokens| {
                    let transition = TransitionForm::Residual { log_gamma: t.log(), cells };
                    Form::Split { transition, state: cells }
                };
                for (name, pool) in [
                    ("dense", of(&|t| Held::new(plain, t.operator()))),
                    ("residual", of(&|t| Held::new(residual(t), t.operator()))),
                    ("pair", of(&|t| Held::of_pair(Form::Pair { cells }, t))),
                ] {
                    let [s, t, both] = shares(&pool, &mut rng);
                    let known = known_share(&pool, &mut rng);
                    let what = format!("{name} {cells:?} {gates:?} {keys:?}: {} {} {known}", s.share, t.share);
                    // Errors are spread over the step of the format: 1/√3 of the largest for integers, 0.4 of it over
                    // the binade of a float. A pair's are sums of n = 16 such terms of either sign: 1/√n of that again.
                    let pair = if name == "pair" { 0.2 } else { 1.0 };
                    assert!(s.share > 0.3 * pair, "{what}");
                    // Signs that do not align leave 2/√K = 0.5 of the norm. All entries of the diagonal of a dense T
                    // near the identity are rounded alike, by as little as they happen to be off.
                    let alike = name == "dense" && keys == Keys::Faint;
                    assert!(t.share > 0.15 * pair || alike, "{what}");
                    // Along a chain errors add up with either sign too, and states are seldom in the worst direction.
                    assert!(known > 0.02 * pair || alike, "{what}");
                    // Without the norms of the products this holds for heads that decay.
                    assert!(both.share > 0.03 * pair || alike || gates == Gates::Slow, "{what}: {}", both.share);
                    assert!(both.seen >= both.share);
                }
            }
        }
    }
}
