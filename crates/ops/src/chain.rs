//! Chains of any recurrence, token by token.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::chain::CHAIN;

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::recurrence::{Decay, Recurrence};
use crate::tensor::Tensor;

/// Walks the chains of one launch of the pass in the recurrent form.
#[derive(Debug)]
pub struct Chain<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// The recurrence.
    pub recurrence: Recurrence,
    /// `[rows, 2·H·K + HV·V]`: q (scaled), k and v; for a rank-one update then a and b.
    pub qkv: &'a Tensor,
    /// `[rows, …]`: g, then β, as [`Recurrence::gate_row`] says; one row for a fixed decay.
    pub gates: &'a Tensor,
    /// `[rows, HV·V]`.
    pub out: &'a Tensor,
    /// Which launch, an upper bound of its chains, and whether any builds an operator.
    pub launch: (u32, u32, bool),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

/// Checks the tensors of a chain against its recurrence.
pub(crate) fn check(op: &'static str, r: &Recurrence, qkv: &Tensor, gates: &Tensor) -> Result<(), OpError> {
    r.check(op)?;
    ensure(op, qkv.cols() == r.row(), || format!("rows of q, k and v of {}, {r:?} has {}", qkv.cols(), r.row()))?;
    ensure(op, gates.cols() == r.gate_row(), || {
        format!("rows of gates of {}, {r:?} has {}", gates.cols(), r.gate_row())
    })?;
    let enough = matches!(r.decay, Decay::Fixed) || r.gate_row() == 1 || gates.rows() >= qkv.rows();
    ensure(op, enough, || format!("gates of {} rows, {} of q, k and v", gates.rows(), qkv.rows()))
}

impl Operation for Chain<'_> {
    fn check(&self) -> Result<(), OpError> {
        check("chain", &self.recurrence, self.qkv, self.gates)?;
        ensure("chain", self.out.cols() == self.recurrence.out(), || {
            format!("outputs of {}, {:?} has {}", self.out.cols(), self.recurrence, self.recurrence.out())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let r = &self.recurrence;
        let mut bindings = vec![self.tables.clone(), self.qkv.range(), self.gates.range(), self.out.range()];
        bindings.extend(self.slabs.iter().cloned());
        let grid = [r.columns(self.launch.2).div_ceil(32), r.value_heads, self.launch.1];
        let params = r.params(self.launch.0);
        Ok(vec![launch("chain", caps, CHAIN.id, r.constants(), &params, bindings, grid)?])
    }
}
