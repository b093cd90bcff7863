//! Chains of mLSTM.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::mlstm::{MLSTM_CHAIN, MlstmParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::pass::Form;
use crate::recurrence::{Rotation, rotation_constant};
use crate::tensor::Tensor;

/// The sizes of mLSTM: state `[HV, K, V + 2]` = `C | n | m`, operators with a log-sum of forget gates a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mlstm {
    /// Key heads H.
    pub heads: u32,
    /// Value heads HV, a multiple of H.
    pub value_heads: u32,
    /// K.
    pub key: u32,
    /// V.
    pub value: u32,
    /// How keys are rotated, where operators are to be moved.
    pub rotation: Option<Rotation>,
}

impl Mlstm {
    /// Checks that the sizes belong together and can be addressed.
    ///
    /// # Errors
    /// [`OpError::Shape`].
    pub fn check(&self, op: &'static str) -> Result<(), OpError> {
        let Self { heads, value_heads, key, value, rotation } = *self;
        let some = [heads, value_heads, key, value].iter().all(|n| (1..1 << 14).contains(n));
        let slot = 2 * u64::from(value_heads) * u64::from(key) * (u64::from(value) + 2);
        ensure(op, some && value_heads.is_multiple_of(heads.max(1)) && slot < 1 << 30, || {
            format!("{heads} key heads of {key}, {value_heads} value heads of {value}")
        })?;
        rotation.map_or(Ok(()), |rotation| rotation.check(op, key))
    }

    /// Elements of a row of q, k and v.
    #[must_use]
    pub fn row(&self) -> u32 {
        2 * self.heads * self.key + self.out()
    }

    /// Elements of a row of outputs.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.value_heads * self.value
    }

    /// Elements of a row of gates: forget gates, then input gates.
    #[must_use]
    pub fn gate_row(&self) -> u32 {
        2 * self.value_heads
    }

    /// Words of a state.
    #[must_use]
    pub fn state_words(&self) -> u32 {
        self.value_heads * self.key * (self.value + 2)
    }

    /// Words of a transition in a form; none is dense.
    #[must_use]
    pub fn form_words(&self, form: Form) -> u32 {
        if form == Form::Scalar { self.value_heads } else { 0 }
    }

    /// Words of a slot.
    #[must_use]
    pub fn slot_words(&self, operator: bool) -> u32 {
        if operator { 2 * self.state_words() + self.value_heads } else { self.state_words() }
    }
}

/// Walks the chains of one launch of the pass.
#[derive(Debug)]
pub struct MlstmChain<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// The sizes.
    pub sizes: Mlstm,
    /// `[rows, 2·H·K + HV·V]`: q (scaled), k and v.
    pub qkv: &'a Tensor,
    /// `[rows, 2·HV]`: forget gates (logarithms ≤ 0), then input gates (logarithms).
    pub gates: &'a Tensor,
    /// `[rows, HV·V]`.
    pub out: &'a Tensor,
    /// Which launch, an upper bound of its chains, and whether any builds an operator.
    pub launch: (u32, u32, bool),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Operation for MlstmChain<'_> {
    fn check(&self) -> Result<(), OpError> {
        let s = &self.sizes;
        s.check("mlstm_chain")?;
        let fits = self.qkv.cols() == s.row() && self.gates.cols() == s.gate_row() && self.out.cols() == s.out();
        ensure("mlstm_chain", fits && self.gates.rows() >= self.qkv.rows(), || {
            let rows = [self.qkv, self.gates, self.out].map(|t| (t.rows(), t.cols()));
            format!("q k v, gates and outputs of {rows:?} for {s:?}")
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let Mlstm { heads, value_heads, key, value, rotation } = self.sizes;
        let row = self.sizes.row();
        let (pairing, rot) = (rotation_constant(rotation), rotation.map_or(0, |r| r.dims));
        let params = MlstmParams { heads, value_heads, key, value, row, launch: self.launch.0, pairing, rot };
        let mut bindings = vec![self.tables.clone(), self.qkv.range(), self.gates.range(), self.out.range()];
        bindings.extend(self.slabs.iter().cloned());
        let grid = [1, value_heads, self.launch.1];
        Ok(vec![launch("mlstm_chain", caps, MLSTM_CHAIN.id, Vec::new(), &params, bindings, grid)?])
    }
}
