//! Operators to store: segments of the gated delta rule, and matrices made to round badly.

use super::super::Pair;
use super::super::round::{exponent, power_of_two};
use crate::operator::Operator;
use crate::rng::Rng;
use crate::transition::Transition;

/// Log-gates of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gates {
    Off,
    /// `‖T‖₂` above 0.99.
    Slow,
    Typical,
    Fast,
    Reset,
}

impl Gates {
    pub(crate) const ALL: [Self; 5] = [Self::Off, Self::Slow, Self::Typical, Self::Fast, Self::Reset];

    fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Off => 0.0,
            Self::Slow => -rng.power(-9.0, -4.5),
            Self::Typical => -rng.power(-3.0, -0.5),
            Self::Fast => -rng.between(2.0, 30.0),
            Self::Reset if rng.chance(0.2) => -90.0,
            Self::Reset => -1e-3,
        }
    }
}

/// Keys and write strengths of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Random keys of norm 1, beta in (0, 1).
    Random,
    /// Keys from a cone, as trained heads have them; beta in (0, 1).
    Cone,
    /// Two keys over and over, beta 1 at half of the tokens.
    Repeated,
    /// beta 2: an orthogonal transition.
    Reflect,
    /// Every second key 0.
    Zero,
    /// beta below 1e-4: a transition near the identity.
    Faint,
}

impl Keys {
    pub(crate) const ALL: [Self; 6] =
        [Self::Random, Self::Cone, Self::Repeated, Self::Reflect, Self::Zero, Self::Faint];
}

/// Sizes of the values of a segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Writes {
    Unit,
    Mixed,
    /// Nothing is written: `S = 0`.
    None,
    /// Times this.
    Scaled(f64),
}

/// One head's tokens.
pub(crate) struct Tokens {
    pub(crate) dims: (usize, usize),
    pub(crate) k: Vec<f64>,
    pub(crate) v: Vec<f64>,
    pub(crate) g: Vec<f64>,
    pub(crate) beta: Vec<f64>,
}

impl Tokens {
    pub(crate) fn draw(
        rng: &mut Rng,
        dims: (usize, usize),
        n: usize,
        gates: Gates,
        keys: Keys,
        writes: Writes,
    ) -> Self {
        let (kd, vd) = dims;
        let pool = [rng.direction(kd), rng.direction(kd)];
        let mut x = Self { dims, k: vec![], v: vec![], g: vec![], beta: vec![] };
        for t in 0..n {
            x.g.push(gates.draw(rng));
            let mut key = match keys {
                Keys::Repeated => pool[rng.up_to(1)].clone(),
                _ => rng.direction(kd),
            };
            if keys == Keys::Cone {
                key.iter_mut().zip(&pool[0]).for_each(|(k, p)| *k += p);
                crate::rng::normalise(&mut key);
            }
            if keys == Keys::Zero && t % 2 == 0 {
                key.fill(0.0);
            }
            x.beta.push(match keys {
                Keys::Reflect => 2.0,
                Keys::Repeated if rng.chance(0.5) => 1.0,
                Keys::Faint => rng.power(-6.0, -4.0),
                _ => 1.0 / (1.0 + (-rng.normal()).exp()),
            });
            let size = match writes {
                Writes::Unit => 1.0,
                Writes::Mixed => rng.power(-4.0, 4.0),
                Writes::None => 0.0,
                Writes::Scaled(s) => s,
            };
            x.k.extend(key);
            x.v.extend((0..vd).map(|_| size * rng.normal()));
        }
        x
    }

    pub(crate) fn log(&self) -> f64 {
        self.g.iter().sum()
    }

    pub(crate) fn pair(&self) -> Pair {
        Pair::gated_delta_rule(self.dims.0, self.dims.1, &self.k, &self.v, &self.g, &self.beta).unwrap()
    }

    /// Token by token, K + V columns from `[I | 0]`.
    pub(crate) fn operator(&self) -> Operator {
        let (kd, vd) = self.dims;
        let columns = kd + vd;
        let mut state = vec![0.0; kd * columns];
        state.iter_mut().step_by(columns + 1).for_each(|s| *s = 1.0);
        for (t, (key, value)) in self.k.chunks_exact(kd).zip(self.v.chunks_exact(vd)).enumerate() {
            state.iter_mut().for_each(|s| *s *= self.g[t].exp());
            let mut u: Vec<f64> = std::iter::repeat_n(0.0, kd).chain(value.iter().copied()).collect();
            for (row, k) in state.chunks_exact(columns).zip(key) {
                u.iter_mut().zip(row).for_each(|(u, s)| *u -= k * s);
            }
            for (row, k) in state.chunks_exact_mut(columns).zip(key) {
                row.iter_mut().zip(&u).for_each(|(s, u)| *s += self.beta[t] * k * u);
            }
        }
        let rows = state.chunks_exact(columns);
        let matrix = rows.clone().flat_map(|r| r[..kd].iter().copied()).collect();
        let written = rows.flat_map(|r| r[kd..].iter().copied()).collect();
        Operator::new(kd, vd, Transition::Dense { matrix }, written).unwrap()
    }
}

/// The number halfway between two neighbours of `bits` significant bits, at about `x`, that rounds up (or down) in
/// magnitude.
pub(crate) fn tie(x: f64, bits: u32, rounds_up: bool) -> f64 {
    let quantum = power_of_two(exponent(x) - bits as i32 + 1);
    let below = (x.abs() / quantum).floor();
    let odd = below % 2.0 == 1.0;
    let below = if odd == rounds_up { below } else { below + 1.0 };
    ((below + 0.5) * quantum).copysign(x)
}

/// A matrix `[rows, columns]` of equal signs whose every entry is a tie that rounds the same way, just above a power of
/// two (where the relative error is the largest), of norm just below `norm`.
pub(crate) fn ties(rows: usize, columns: usize, bits: u32, rounds_up: bool, norm: f64) -> Vec<f64> {
    let entry = norm / ((rows * columns) as f64).sqrt();
    let power = power_of_two(exponent(entry * 0.98));
    vec![tie(power, bits, rounds_up); rows * columns]
}
