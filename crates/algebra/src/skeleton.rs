//! The one sequential f64 recurrence that the families share, over decay {none, fixed, scalar, diagonal} × update
//! {add, delta}: `S = diag(e^g) S`, then for each write of the token `u = β·v` (add) or `u = β·(v − Sᵀk)` (delta) and
//! `S += k uᵀ`, then `o = scale · Sᵀq + D·v`.

use crate::family::{DecayKind, UpdateKind};
use crate::inputs::{Inputs, Run};
use crate::sizes::Sizes;

/// Runs inputs that were checked from a state `[HV, K, V]` that was checked: q `[T, H, K]`, k `[T·W, H, K]`,
/// v `[T·W, HV, V]`, g in its layout, beta `[T·W, HV]`, skip `[HV]` to o `[T, HV, V]` and the state.
pub(crate) fn run(x: &Inputs, update: UpdateKind, s0: &[f64]) -> Run {
    let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
    let mut state = s0.to_vec(); // [HV, K, V]
    let mut o = vec![0.0; tokens * value_heads * value_dim]; // [T, HV, V]
    for t in 0..tokens {
        for (hv, s) in state.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let mut decay = x.log_gate(t, hv, 0).exp();
            for (i, s) in s.chunks_exact_mut(value_dim).enumerate() {
                if x.decay == DecayKind::Diagonal {
                    decay = x.log_gate(t, hv, i).exp();
                }
                s.iter_mut().for_each(|s| *s *= decay);
            }
            for row in t * x.writes..(t + 1) * x.writes {
                let (k, mut u) = (x.key(row, hv), x.value(row, hv).to_vec()); // [K], [V]
                if update == UpdateKind::Delta {
                    for (k, s) in k.iter().zip(s.chunks_exact(value_dim)) {
                        u.iter_mut().zip(s).for_each(|(u, s)| *u -= s * k);
                    }
                }
                u.iter_mut().for_each(|u| *u *= x.strength(row, hv));
                for (k, s) in k.iter().zip(s.chunks_exact_mut(value_dim)) {
                    s.iter_mut().zip(&u).for_each(|(s, u)| *s += k * u);
                }
            }
            let o = &mut o[(t * value_heads + hv) * value_dim..][..value_dim];
            for (q, s) in x.query(t, hv).iter().zip(s.chunks_exact(value_dim)) {
                o.iter_mut().zip(s).for_each(|(o, s)| *o += x.scale * q * s);
            }
            if let Some(d) = x.skip.get(hv) {
                let v = x.value((t + 1) * x.writes - 1, hv);
                o.iter_mut().zip(v).for_each(|(o, v)| *o += d * v);
            }
        }
    }
    Run { o, state }
}

/// `‖A_t‖₂` `[T, HV]`, or a bound on it where the decay is diagonal and the update a delta: `I − β k kᵀ` is symmetric with
/// the eigenvalues 1 (K − 1 times) and `1 − β‖k‖²`, and the norm of a product is at most the product of the norms.
pub(crate) fn step_norms(x: &Inputs, update: UpdateKind) -> Vec<f64> {
    let Sizes { tokens, value_heads, key_dim, .. } = x.sizes;
    let mut norms = Vec::with_capacity(tokens * value_heads);
    for (t, hv) in (0..tokens).flat_map(|t| (0..value_heads).map(move |hv| (t, hv))) {
        let mut norm = (0..key_dim).map(|i| x.log_gate(t, hv, i)).fold(f64::MIN, f64::max).exp();
        if update == UpdateKind::Delta {
            for row in t * x.writes..(t + 1) * x.writes {
                let k2: f64 = x.key(row, hv).iter().map(|k| k * k).sum();
                let across = if key_dim > 1 { 1.0 } else { 0.0 };
                norm *= (1.0 - x.strength(row, hv) * k2).abs().max(across);
            }
        }
        norms.push(norm);
    }
    norms
}
