//! What a recurrence is: its decay, its update, its heads and sizes, and what follows from them.

use seam_kernels::chain::{
    ChainParams, DECAY_DIAGONAL, DECAY_NONE, DECAY_SCALAR, ROTATION_HALVES, ROTATION_INTERLEAVED, ROTATION_NONE,
    UPDATE_ADD, UPDATE_DELTA, UPDATE_RANK_ONE, UPDATE_STRENGTH,
};

use crate::error::{OpError, ensure};
use crate::pass::Form;

/// What a token's decay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decay {
    /// None: the state only adds up.
    None,
    /// One log-gate a head, the same at every token: `gates` has one row.
    Fixed,
    /// One log-gate a head and token.
    Scalar,
    /// One log-gate a head, token and key dim.
    Diagonal,
}

/// What a token writes into the decayed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Update {
    /// `S += k vᵀ`.
    Add,
    /// `S += k (β v)ᵀ`.
    Strength,
    /// `S += k uᵀ` with `u = β(v − Sᵀk)`.
    Delta,
    /// `S += b (aᵀS₋) + k vᵀ`, where `S₋` is the state before the decay.
    RankOne,
}

/// Which key dims a rotation turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// i and i + dims/2.
    Halves,
    /// 2i and 2i + 1.
    Interleaved,
}

/// The rotation of keys by position, with which operators move: `R·S`, and `R·T·Rᵀ` for a dense T.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rotation {
    /// Which dims turn together.
    pub pairing: Pairing,
    /// The first so many key dims are rotated; even. The frequencies are those of the pass.
    pub dims: u32,
}

impl Rotation {
    /// Checks the dims against K.
    pub(crate) fn check(&self, op: &'static str, key: u32) -> Result<(), OpError> {
        let dims = self.dims;
        ensure(op, dims > 0 && dims.is_multiple_of(2) && dims <= key, || format!("{dims} rotated dims of {key}"))
    }
}

/// A rotation as the kernels name it.
pub(crate) fn rotation_constant(rotation: Option<Rotation>) -> u32 {
    match rotation.map(|r| r.pairing) {
        None => ROTATION_NONE,
        Some(Pairing::Halves) => ROTATION_HALVES,
        Some(Pairing::Interleaved) => ROTATION_INTERLEAVED,
    }
}

/// A recurrence over state `[HV, K, V]`: `S = e^g·S`, the update, `o = Sᵀq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recurrence {
    /// Its decay.
    pub decay: Decay,
    /// Its update.
    pub update: Update,
    /// Key heads H.
    pub heads: u32,
    /// Value heads HV, a multiple of H; value head j reads key head `j / (HV/H)`.
    pub value_heads: u32,
    /// K.
    pub key: u32,
    /// V.
    pub value: u32,
    /// How keys are rotated, where operators are to be moved.
    pub rotation: Option<Rotation>,
}

impl Recurrence {
    /// Checks that the sizes belong together and can be addressed.
    ///
    /// # Errors
    /// [`OpError::Shape`]: no heads or sizes, value heads that are no multiple of the key heads, states beyond 2³⁰ words, a
    /// fixed decay with write strengths a token, rotated dims that are odd or more than K, a rotation under a diagonal
    /// decay (it does not commute with the decays of a pair, so a cached state cannot be moved).
    pub fn check(&self, op: &'static str) -> Result<(), OpError> {
        let Self { heads, value_heads, key, value, .. } = *self;
        let some = [heads, value_heads, key, value].iter().all(|n| (1..1 << 14).contains(n));
        ensure(op, some && value_heads.is_multiple_of(heads.max(1)), || {
            format!("{heads} key heads of {key}, {value_heads} value heads of {value}")
        })?;
        let slot = u64::from(value_heads) * u64::from(key) * (2 * u64::from(value) + u64::from(key));
        ensure(op, slot < 1 << 30, || format!("a slot of {slot} words, at most 2^30 are addressed"))?;
        ensure(op, self.decay != Decay::Fixed || !self.has_strength(), || {
            "a fixed decay has no write strengths".to_owned()
        })?;
        let Some(rotation) = self.rotation else { return Ok(()) };
        rotation.check(op, key)?;
        ensure(op, self.decay != Decay::Diagonal && self.update != Update::RankOne, || {
            "operators of a diagonal decay cannot be moved: a rotation does not commute with the decays of a pair"
                .to_owned()
        })
    }

    fn has_strength(&self) -> bool {
        matches!(self.update, Update::Strength | Update::Delta)
    }

    /// Elements of a row of q, k and v, `2·H·K + HV·V`, and of a and b for a rank-one update, `2·H·K` more. v is filled up
    /// to a multiple of four: kernels read q and k four at a time.
    #[must_use]
    pub fn row(&self) -> u32 {
        let keys = 2 * self.heads * self.key;
        let row = keys + self.out().next_multiple_of(4);
        row + if self.update == Update::RankOne { keys } else { 0 }
    }

    /// Elements of a row of outputs: `HV·V`.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.value_heads * self.value
    }

    /// Elements of g in a row of gates.
    #[must_use]
    pub fn log_gates(&self) -> u32 {
        match self.decay {
            Decay::None => 0,
            Decay::Fixed | Decay::Scalar => self.value_heads,
            Decay::Diagonal => self.value_heads * self.key,
        }
    }

    /// Elements of a row of gates: g, then β; at least 1.
    #[must_use]
    pub fn gate_row(&self) -> u32 {
        let strengths = if self.has_strength() { self.value_heads } else { 0 };
        (self.log_gates() + strengths).max(1)
    }

    /// Words of a state `[HV, K, V]`.
    #[must_use]
    pub fn state_words(&self) -> u32 {
        self.out() * self.key
    }

    /// The form that operators of this recurrence have.
    #[must_use]
    pub fn form(&self) -> Form {
        match (self.update, self.decay) {
            (Update::Delta | Update::RankOne, _) => Form::Dense,
            (_, Decay::None) => Form::Identity,
            (_, Decay::Fixed | Decay::Scalar) => Form::Scalar,
            (_, Decay::Diagonal) => Form::Diagonal,
        }
    }

    /// Words of a transition in that form: `[HV, K, K]`, logarithms `[HV, K]` or `[HV]`, or none.
    #[must_use]
    pub fn transition_words(&self) -> u32 {
        self.form_words(self.form())
    }

    /// Words of a transition in a form.
    #[must_use]
    pub fn form_words(&self, form: Form) -> u32 {
        match form {
            Form::Zero | Form::Identity => 0,
            Form::Scalar => self.value_heads,
            Form::Diagonal => self.value_heads * self.key,
            Form::Dense => self.value_heads * self.key * self.key,
        }
    }

    /// Words of a private slot: `S_run`, and with an operator `S` and the transition.
    #[must_use]
    pub fn slot_words(&self, operator: bool) -> u32 {
        if operator { 2 * self.state_words() + self.transition_words() } else { self.state_words() }
    }

    /// Columns of a chain.
    pub(crate) fn columns(&self, operator: bool) -> u32 {
        let transition = match self.form() {
            Form::Dense => self.key,
            Form::Scalar | Form::Diagonal => 1,
            Form::Identity | Form::Zero => 0,
        };
        if operator { 2 * self.value + transition } else { self.value }
    }

    /// The constants of the chain kernels.
    pub(crate) fn constants(&self) -> Vec<u32> {
        let decay = match self.decay {
            Decay::None => DECAY_NONE,
            Decay::Fixed | Decay::Scalar => DECAY_SCALAR,
            Decay::Diagonal => DECAY_DIAGONAL,
        };
        let update = match self.update {
            Update::Add => UPDATE_ADD,
            Update::Strength => UPDATE_STRENGTH,
            Update::Delta => UPDATE_DELTA,
            Update::RankOne => UPDATE_RANK_ONE,
        };
        vec![self.key, decay, update, rotation_constant(self.rotation)]
    }

    /// The parameters of the chain kernels for one launch.
    pub(crate) fn params(&self, launch: u32) -> ChainParams {
        ChainParams {
            heads: self.heads,
            value_heads: self.value_heads,
            value: self.value,
            row: self.row(),
            gate_row: if self.decay == Decay::Fixed { 0 } else { self.gate_row() },
            strength: self.log_gates(),
            launch,
            rot: self.rotation.map_or(0, |r| r.dims),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recurrence(decay: Decay, update: Update) -> Recurrence {
        Recurrence { decay, update, heads: 2, value_heads: 4, key: 8, value: 6, rotation: None }
    }

    #[test]
    fn rows_and_slots() {
        let gdn = recurrence(Decay::Scalar, Update::Delta);
        assert_eq!((gdn.row(), gdn.gate_row(), gdn.slot_words(true)), (56, 8, 2 * 192 + 256));
        let gla = recurrence(Decay::Diagonal, Update::Add);
        assert_eq!((gla.gate_row(), gla.transition_words(), gla.columns(true)), (32, 32, 13));
        let ring = recurrence(Decay::Fixed, Update::Add);
        assert_eq!((ring.params(3).gate_row, ring.gate_row(), ring.transition_words()), (0, 4, 4));
        let plain = recurrence(Decay::None, Update::Add);
        assert_eq!((plain.gate_row(), plain.form(), plain.columns(true)), (1, Form::Identity, 12));
        let rwkv = recurrence(Decay::Diagonal, Update::RankOne);
        assert_eq!((rwkv.row(), rwkv.gate_row(), rwkv.form()), (88, 32, Form::Dense));
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let good = recurrence(Decay::Scalar, Update::Delta);
        assert!(good.check("chain").is_ok());
        let halves = |dims| Some(Rotation { pairing: Pairing::Halves, dims });
        assert!(Recurrence { rotation: halves(8), ..good }.check("chain").is_ok());
        for bad in [
            Recurrence { heads: 0, ..good },
            Recurrence { value_heads: 0, ..good },
            Recurrence { value_heads: 3, ..good },
            Recurrence { key: 0, ..good },
            Recurrence { value: 0, ..good },
            Recurrence { value_heads: 1 << 13, key: 1 << 13, ..good },
            Recurrence { decay: Decay::Fixed, ..good },
            Recurrence { rotation: halves(3), ..good },
            Recurrence { rotation: halves(10), ..good },
            Recurrence { decay: Decay::Diagonal, rotation: halves(8), ..good },
        ] {
            assert!(matches!(bad.check("chain"), Err(OpError::Shape { op: "chain", .. })), "{bad:?}");
        }
    }
}
