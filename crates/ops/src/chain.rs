//! Chains of the gated delta rule.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::chain::{ChainParams, DELTA_CHAIN};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// Walks the chains of one launch of the pass.
#[derive(Debug)]
pub struct DeltaChain<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, 2·H·K + HV·V]`: q, k (normalised, q scaled) and v.
    pub qkv: &'a Tensor,
    /// `[rows, 2·HV]`: g, then beta.
    pub gates: &'a Tensor,
    /// `[rows, HV·V]`.
    pub out: &'a Tensor,
    /// Key heads H, value heads HV.
    pub heads: (u32, u32),
    /// Sizes K and V.
    pub sizes: (u32, u32),
    /// Which launch, an upper bound of its chains, and whether any builds an operator.
    pub launch: (u32, u32, bool),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Operation for DeltaChain<'_> {
    fn check(&self) -> Result<(), OpError> {
        let ((h, hv), (k, v)) = (self.heads, self.sizes);
        let fits = h > 0
            && hv.is_multiple_of(h)
            && self.qkv.cols() == 2 * h * k + hv * v
            && self.gates.cols() == 2 * hv
            && self.out.cols() == hv * v;
        ensure("delta_chain", fits, || {
            format!(
                "{h} key heads of {k}, {hv} value heads of {v}, rows of {}, {} and {}",
                self.qkv.cols(),
                self.gates.cols(),
                self.out.cols()
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let ((heads, value_heads), (k, value)) = (self.heads, self.sizes);
        let columns = if self.launch.2 { 2 * value + k } else { value };
        let params =
            ChainParams { heads, value_heads, value, row: self.qkv.cols(), launch: self.launch.0, pad: [0; 3] };
        let mut bindings = vec![self.tables.clone(), self.qkv.range(), self.gates.range(), self.out.range()];
        bindings.extend(self.slabs.iter().cloned());
        let grid = [columns.div_ceil(32), value_heads, self.launch.1];
        Ok(vec![launch("delta_chain", caps, DELTA_CHAIN.id, vec![k], &params, bindings, grid)?])
    }
}
