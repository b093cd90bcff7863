//! Property tests that try to break every bound, mutants that must break it, and how loose it is.

mod chains;
pub(super) mod heads;
mod looseness;
mod mutants;
mod policy;
mod round_trip;

use super::{Bound, ChainError, Form};
use crate::matrix::{distance, frobenius};
use crate::operator::{Operator, compose_heads};
use crate::rng::{Rng, normalise};
use crate::transition::Transition;

/// One segment: what it is, what is held of it, and the bound that came with it.
#[derive(Debug, Clone)]
struct Held {
    exact: Operator,
    stored: Operator,
    bound: Bound,
}

impl Held {
    fn new(form: Form, exact: Operator) -> Self {
        let stored = form.encode(&exact).unwrap();
        Self { stored: stored.decode().unwrap(), bound: *stored.bound(), exact }
    }

    /// Of factors: the exact operator is the one that they stand for.
    fn of_pair(form: Form, tokens: &heads::Tokens) -> Self {
        let stored = form.encode(&tokens.pair()).unwrap();
        Self { stored: stored.decode().unwrap(), bound: *stored.bound(), exact: tokens.operator() }
    }

    /// With the errors that were made instead of those that could be.
    fn measured(&self) -> Self {
        Self { bound: Bound::measured(&self.exact, &self.stored).unwrap(), ..self.clone() }
    }
}

/// What a chain did.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// Largest (error − rounding of f64)/bound over the chain's prefixes: above 1 when a bound is broken.
    broken: f64,
    /// Error after the last segment relative to `max(‖h_in‖, ‖S_out‖)`.
    relative: f64,
    /// Error after the last segment over the bound of the composed chain.
    share: f64,
    /// The same over the bound of the running state, which has seen the norms of the computed states.
    seen: f64,
}

impl Outcome {
    fn worse(self, other: Self) -> Self {
        Self {
            broken: self.broken.max(other.broken),
            relative: self.relative.max(other.relative),
            share: self.share.max(other.share),
            seen: self.seen.max(other.seen),
        }
    }
}

/// `T·h + S`, whatever an absent `T` has to say about it.
fn apply(operator: &Operator, h: &[f64]) -> Vec<f64> {
    operator.apply(h).unwrap().value
}

/// Carries `h` through the chain `order` of `pool`, exactly and as stored, and holds the error of every prefix to the
/// bound of the composed chain and to that of the running state.
fn chain(pool: &[Held], order: &[usize], h: &[f64]) -> Outcome {
    let incoming = frobenius(h);
    let (mut exact, mut held, mut total) = (h.to_vec(), h.to_vec(), Bound::EMPTY);
    let (mut running, mut written) = (ChainError::start(incoming), vec![0.0; h.len()]);
    // What f64 may lose: each of the two products sums K terms, of magnitudes up to √K times the norm.
    let mut noise = 0.0;
    let mut out = Outcome::default();
    for &at in order {
        let Held { exact: e, stored: s, bound } = &pool[at];
        let k = e.key_dim() as f64;
        let terms = if matches!(e.transition(), Transition::Dense { .. }) { (k + 4.0) * k.sqrt() } else { 4.0 };
        noise = bound.growth.max(bound.transition_norm) * noise
            + terms
                * f64::EPSILON
                * (bound.transition_norm * (frobenius(&exact) + frobenius(&held)) + 2.0 * bound.state_norm);
        exact = apply(e, &exact);
        held = apply(s, &held);
        written = apply(e, &written);
        total = total.then(bound);
        running.apply(bound);
        running.observe(frobenius(&held) + noise);
        let error = distance(&exact, &held);
        let limits = [total.error(incoming), running.error()].map(|l| l.max(f64::MIN_POSITIVE));
        out.broken = limits.iter().fold(out.broken, |m, l| m.max((error - noise) / l));
        (out.share, out.seen) = (error / limits[0], error / limits[1]);
        out.relative = error / incoming.max(frobenius(&written)).max(f64::MIN_POSITIVE);
    }
    out
}

/// Right and left singular vector of the largest singular value of an `[n, n]` matrix, by power iteration.
fn worst_direction(a: &[f64], n: usize, rng: &mut Rng) -> (Vec<f64>, Vec<f64>) {
    let (mut x, mut y) = (rng.direction(n), vec![0.0; n]);
    for _ in 0..60 {
        for (y, row) in y.iter_mut().zip(a.chunks_exact(n)) {
            *y = row.iter().zip(&x).map(|(a, x)| a * x).sum();
        }
        normalise(&mut y);
        x.fill(0.0);
        for (row, y) in a.chunks_exact(n).zip(&y) {
            x.iter_mut().zip(row).for_each(|(x, a)| *x += a * y);
        }
        normalise(&mut x);
    }
    if frobenius(&x) == 0.0 {
        x = rng.direction(n);
    }
    (x, y)
}

/// The incoming state of norm `size` that the composed chain's error in `T` grows the most, in the value direction in
/// which it adds up with the error in `S`.
fn worst_state(pool: &[Held], order: &[usize], size: f64, rng: &mut Rng) -> Vec<f64> {
    let Some(first) = order.first() else { return vec![] };
    let (k, v) = (pool[*first].exact.key_dim(), pool[*first].exact.value_dim());
    let whole = |pick: fn(&Held) -> &Operator| {
        let one = vec![Operator::identity(k, v).unwrap()];
        order.iter().fold(one, |c, &i| compose_heads(std::slice::from_ref(pick(&pool[i])), &c).unwrap().value)
    };
    let (exact, held) = (&whole(|h| &h.exact)[0], &whole(|h| &h.stored)[0]);
    let minus = |a: Vec<f64>, b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f64>>();
    let delta = minus(held.transition().to_dense(k), &exact.transition().to_dense(k));
    let (x, y) = worst_direction(&delta, k, rng);
    let state = minus(held.state().to_vec(), exact.state());
    let mut w = vec![0.0; v];
    for (row, y) in state.chunks_exact(v).zip(&y) {
        w.iter_mut().zip(row).for_each(|(w, s)| *w += s * y);
    }
    normalise(&mut w);
    if frobenius(&w) == 0.0 {
        w = rng.direction(v);
    }
    x.iter().flat_map(|x| w.iter().map(move |w| size * x * w)).collect()
}

/// Chains of `n` segments: drawn at random, one of them over and over, and in turn; from zero, from a random state and
/// from the worst one, of norm `size`.
fn attack(pool: &[Held], n: usize, size: f64, rng: &mut Rng) -> Outcome {
    let Some(first) = pool.first() else { return Outcome::default() };
    let len = first.exact.state().len();
    let orders: [Vec<usize>; 3] =
        [(0..n).map(|_| rng.up_to(pool.len() - 1)).collect(), vec![0; n], (0..n).map(|i| i % pool.len()).collect()];
    let mut out = Outcome::default();
    for order in &orders {
        let random = rng.direction(len).iter().map(|x| size * x).collect::<Vec<_>>();
        for h in [vec![0.0; len], random, worst_state(pool, order, size, rng)] {
            out = out.worse(chain(pool, order, &h));
        }
    }
    out
}
