//! The run step, token by token.

use super::steps::Columns;
use super::{ChainParams, DECAY_DIAGONAL, DECAY_SCALAR, LOG_ZERO, Rule, UPDATE_ADD, UPDATE_DELTA, UPDATE_RANK_ONE};

/// The rows of a pass.
pub(super) struct Tokens<'a> {
    pub(super) p: ChainParams,
    pub(super) rule: Rule,
    pub(super) qkv: &'a [f32],
    pub(super) gates: &'a [f32],
}

/// What one token has for one head.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// a and b of a rank-one update.
    rank_one: [&'a [f32]; 2],
    strength: f32,
}

impl Tokens<'_> {
    /// Runs rows of one head.
    pub(super) fn runner(&self, head: usize) -> impl FnMut(&mut Columns, usize, usize, usize) -> Vec<f32> {
        let mut decays = vec![1.0; self.rule.k];
        let mut u = Vec::new();
        move |state: &mut Columns, first, rows, _| {
            let mut o = vec![0.0; rows * self.rule.v];
            for (row, o) in (first..).zip(o.chunks_exact_mut(self.rule.v.max(1))) {
                self.decay(state, row, head, &mut decays);
                self.step(state, &self.token(row, head), &decays, &mut u, o);
            }
            o
        }
    }

    fn token(&self, row: usize, head: usize) -> Token<'_> {
        let (p, k, v) = (&self.p, self.rule.k, self.rule.v);
        let (heads, value_heads) = (p.heads as usize, p.value_heads as usize);
        let key_head = head / (value_heads / heads);
        let qkv = &self.qkv[row * p.row as usize..];
        let keys = heads * k;
        let values = 2 * keys + (value_heads * v).next_multiple_of(4);
        let extra = |i: usize| match self.rule.update {
            UPDATE_RANK_ONE => &qkv[values + i * keys + key_head * k..][..k],
            _ => &[],
        };
        let strength = match self.rule.update {
            UPDATE_ADD | UPDATE_RANK_ONE => 1.0,
            _ => self.gates[row * p.gate_row as usize + p.strength as usize + head],
        };
        Token {
            q: &qkv[key_head * k..][..k],
            k: &qkv[keys + key_head * k..][..k],
            v: &qkv[2 * keys + head * v..][..v],
            rank_one: [extra(0), extra(1)],
            strength,
        }
    }

    /// The factors of the token, and its gates into the log-sums.
    fn decay(&self, state: &mut Columns, row: usize, head: usize, decays: &mut [f32]) {
        let gates = |n: usize| &self.gates[row * self.p.gate_row as usize + head * n..][..n];
        let gates = match self.rule.decay {
            DECAY_SCALAR => gates(1),
            DECAY_DIAGONAL => gates(self.rule.k),
            _ => return,
        };
        match gates {
            [g] if self.rule.decay == DECAY_SCALAR => decays.fill(g.exp()),
            _ => decays.iter_mut().zip(gates).for_each(|(d, g)| *d = g.exp()),
        }
        for (sum, g) in state.logs.iter_mut().flatten().zip(gates) {
            *sum = (*sum + g).max(LOG_ZERO);
        }
    }

    fn step(&self, state: &mut Columns, token: &Token<'_>, decays: &[f32], u: &mut Vec<f32>, o: &mut [f32]) {
        let (v, width, active) = (self.rule.v, state.width, state.active);
        u.clear();
        u.resize(active, 0.0);
        // What is read of the state, of before the decay for a rank-one update.
        let reads = match self.rule.update {
            UPDATE_DELTA => token.k,
            UPDATE_RANK_ONE => token.rank_one[0],
            _ => &[],
        };
        let after = self.rule.update == UPDATE_DELTA;
        for ((row, read), decay) in state.data.chunks_exact_mut(width).zip(reads).zip(decays) {
            for (s, u) in row.iter_mut().zip(u.iter_mut()) {
                *s *= if after { *decay } else { 1.0 };
                *u += *read * *s;
            }
        }
        let rank_one = self.rule.update == UPDATE_RANK_ONE;
        let write = |c: usize| match c {
            c if c < v => token.v[c],
            c if c < 2 * v => token.v[c - v],
            _ => 0.0,
        };
        if !rank_one {
            for (c, u) in u.iter_mut().enumerate() {
                *u = token.strength * (write(c) - *u);
            }
        }
        for (i, ((row, key), q)) in state.data.chunks_exact_mut(width).zip(token.k).zip(token.q).enumerate() {
            match self.rule.update {
                UPDATE_DELTA => row.iter_mut().zip(&*u).for_each(|(s, u)| *s += *key * *u),
                UPDATE_RANK_ONE => {
                    let b = token.rank_one[1][i];
                    for (c, (s, u)) in row.iter_mut().zip(&*u).enumerate() {
                        *s = decays[i] * *s + b * *u + *key * write(c);
                    }
                }
                _ => row.iter_mut().zip(&*u).for_each(|(s, u)| *s = decays[i] * *s + *key * *u),
            }
            o.iter_mut().zip(&*row).for_each(|(o, s)| *o += *q * *s);
        }
    }
}
