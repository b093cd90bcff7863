//! Rotation of q and k in the rows of a chain.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::rope::{ROPE, RopeParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::recurrence::Pairing;
use crate::tensor::Tensor;

/// Rotates the first `rot` dimensions of q and k in place by each row's position.
#[derive(Debug)]
pub struct Rope<'a> {
    /// Tables of the pass, whose angles are those of `rot` dimensions.
    pub tables: &'a BufferRange,
    /// `[rows, ≥ 2·heads·K]`: q, then k, then whatever follows.
    pub x: &'a Tensor,
    /// Key heads H.
    pub heads: u32,
    /// Key size K.
    pub key: u32,
    /// Rotated dimensions, even, at most K.
    pub rot: u32,
    /// Their pairs.
    pub pairing: Pairing,
}

impl Operation for Rope<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (heads, key, rot) = (self.heads, self.key, self.rot);
        let fits = heads > 0 && rot > 0 && rot.is_multiple_of(2) && rot <= key;
        ensure("rope", fits && 2 * u64::from(heads) * u64::from(key) <= u64::from(self.x.cols()), || {
            format!("{rot} dimensions of q and k of {heads} heads of {key} in rows of {}", self.x.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let heads = 2 * self.heads;
        let params = RopeParams { row: self.x.cols(), heads, head: self.key, rot: self.rot };
        let constants = vec![u32::from(self.pairing == Pairing::Interleaved)];
        let grid = [(heads * self.rot / 2).div_ceil(64), self.x.rows(), 1];
        let bindings = vec![self.tables.clone(), self.x.range()];
        Ok(vec![launch("rope", caps, ROPE.id, constants, &params, bindings, grid)?])
    }
}
