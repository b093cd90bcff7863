//! The recurrences of linear layers, 16 tokens at a time (chunk-parallel), beside the recurrent form of [`crate::chain`].
//!
//! One token of a head: `S = diag(e^g)·S; u = v, β·v or β·(v − Sᵀk); S += k uᵀ; o = Sᵀq`. Over a chunk with the sums `b_i` of
//! its gates up to token i and `e(j, i) = e^(Σ g_m, j < m <= i)` that is
//!
//! * `x_i = u_i − w_i·S`, `o_i = (q_i ⊙ e^(b_i))·S + Σ_{j<=i} a_ij x_j`, `S ← e^(b_last)·S + Σ_j (k_j ⊙ e(j, last)) x_j`,
//! * `a_ij = Σ_d q_id k_jd e(j, i)_d`; without a delta `u` is what is written and `w = 0`,
//! * with one `(I + G) U = β V` and `(I + G) W = β (K ⊙ e^b)`, `G_ij = β_i Σ_d k_id k_jd e(j, i)_d` for `j < i`,
//!
//! the WY form of gated delta nets (Yang et al. 2024), of which gated linear attention is the case without `G`.
//! [`CHUNK_PREPARE`] computes what needs no state, [`CHUNK_CHAIN`] walks the chains. Exponents are sums of gates and never
//! differences of sums, so a gate of −90 costs no digit.

mod numbers;
mod prepare;
mod walk;

use crate::chain::{DECAY_DIAGONAL, UPDATE_ADD, UPDATE_DELTA, UPDATE_STRENGTH};
use crate::manifest::Constant;
use crate::tables::CHUNK_TOKENS;

pub use prepare::CHUNK_PREPARE;
pub use walk::CHUNK_CHAIN;

/// K and the decay as for the recurrent form; of updates those that are a product of keys and what is written.
const KEY: Constant = crate::chain::CONSTANTS[0];
const DECAY: Constant = crate::chain::CONSTANTS[1];
const UPDATE: Constant = Constant { name: "UPDATE", legal: &[UPDATE_ADD, UPDATE_STRENGTH, UPDATE_DELTA] };
const ROTATION: Constant = crate::chain::CONSTANTS[3];

/// Where things are in the `work` buffer between the two kernels, in words (f32).
///
/// First the sums of the gates `[chunks, HV, D]` with D = K for a diagonal decay and 1 otherwise, filled up to a multiple of
/// four; then a record a row and value head: `qe [K] | ke [K] | w [K]` (delta only) `| a [16] | u [V]`, filled up likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// K.
    pub key: usize,
    /// V.
    pub value: usize,
    /// HV.
    pub value_heads: usize,
    /// D, sums of a chunk and value head.
    pub sums: usize,
    /// Whether records have a `w`.
    pub delta: bool,
}

impl Layout {
    /// The layout for these sizes and constants.
    #[must_use]
    pub const fn new(key: usize, value: usize, value_heads: usize, decay: u32, update: u32) -> Self {
        let sums = if decay == DECAY_DIAGONAL { key } else { 1 };
        Self { key, value, value_heads, sums, delta: update == UPDATE_DELTA }
    }

    /// Words of `work` for a pass of `rows` rows in `chunks` chunks.
    #[must_use]
    pub const fn words(&self, rows: usize, chunks: usize) -> usize {
        self.records(chunks) + rows * self.value_heads * self.record()
    }

    /// Where the records start.
    const fn records(&self, chunks: usize) -> usize {
        (chunks * self.value_heads * self.sums).next_multiple_of(4)
    }

    /// Words of a record.
    const fn record(&self) -> usize {
        self.u() + self.value.next_multiple_of(4)
    }

    const fn ke(&self) -> usize {
        self.key
    }

    const fn w(&self) -> usize {
        2 * self.key
    }

    const fn a(&self) -> usize {
        if self.delta { 3 * self.key } else { 2 * self.key }
    }

    const fn u(&self) -> usize {
        self.a() + CHUNK_TOKENS
    }
}
