//! States that carry a running maximum as a log-scale, and how they compose.
//!
//! An exponential input gate `e^ĩ` overflows, so mLSTM keeps `(C, n, m)` with `m` a running maximum:
//! ```text
//! m_t = max(f_t + m_{t-1}, ĩ_t)                                      f_t = log-gate <= 0
//! C_t = e^(f_t + m_{t-1} − m_t) C_{t-1} + e^(ĩ_t − m_t) k_t v_tᵀ     n_t likewise with k_t alone
//! ```
//! `(C, n, m)` stands for the true state `e^m · (C, n)`, in which the recurrence is an ordinary scalar decay with writes
//! `e^ĩ`. `m` is a choice of unit and nothing more: outputs do not depend on it. It composes all the same, because
//! `m -> max(F + m, M)` is an affine map of the max-plus algebra, as `h -> T·h + S` is one of the ordinary algebra.
//!
//! **Law.** The operator of a segment is `(F, S, M)`: `F` the sum of its log-gates, `(S, M)` the end state of a run from
//! the zero state, whose log-scale is minus infinity. Then with `[C | n]` written as one matrix
//! ```text
//! (F, S, M) applied to (h, m):        m' = max(F + m, M),    h' = e^(F + m − m') h + e^(M − m') S
//! (F2, S2, M2) ∘ (F1, S1, M1):        F2 + F1,  and the end state that applying the later one to (S1, M1) gives
//! ```
//! Both are exact and associative, `(0, 0, −∞)` is the identity, and `m'` is the very running maximum of the sequential
//! run, not just some bound. Published code starts from `m = 0`; a segment cached so would compose to the same true state
//! in another unit, since its `M` would be `max(F, M)`.
//!
//! In the arrays `m` is the last column of a state `[K, V + 2]` = `C | n | m`, the same in every row; minus infinity is
//! [`LOG_ZERO`].

use crate::transition::Transition;

/// The log-scale of a zero state. It stands for minus infinity: nothing finite is below it, and `e^` of it is 0.
pub const LOG_ZERO: f64 = f64::MIN;

/// The log-scale of one head's state with `columns` columns.
pub(crate) fn log_scale(state: &[f64], columns: usize) -> f64 {
    state.get(columns.wrapping_sub(1)).copied().unwrap_or(LOG_ZERO)
}

/// `a + b` for log-scales, without reaching an infinity.
pub(crate) fn add(a: f64, b: f64) -> f64 {
    (a + b).max(LOG_ZERO)
}

/// `e^(shift) · state` for all columns but the last, which becomes `log_scale`.
pub(crate) fn rescale(state: &mut [f64], columns: usize, shift: f64, log_scale: f64) {
    let factor = shift.exp();
    for row in state.chunks_exact_mut(columns) {
        if let Some((scale, values)) = row.split_last_mut() {
            values.iter_mut().for_each(|x| *x *= factor);
            *scale = log_scale;
        }
    }
}

/// The law above for one head: what the operator `(transition, own)` makes of `incoming`, all `[K, columns]`.
pub(crate) fn apply(
    transition: &Transition,
    own: &[f64],
    incoming: &[f64],
    key_dim: usize,
    columns: usize,
) -> Vec<f64> {
    let (m, mine) = (log_scale(incoming, columns), log_scale(own, columns));
    // A scalar goes into the exponent, where it cannot underflow before it meets m.
    let (mut out, carried) = match transition {
        Transition::Scalar { log } => (incoming.to_vec(), add(*log, m)),
        Transition::Absent(_) => (vec![0.0; incoming.len()], LOG_ZERO),
        other => (other.times(incoming, key_dim, columns), m),
    };
    let top = carried.max(mine);
    rescale(&mut out, columns, carried - top, 0.0);
    let mut own = own.to_vec();
    rescale(&mut own, columns, mine - top, top);
    out.iter_mut().zip(&own).for_each(|(a, b)| *a += b);
    out
}
