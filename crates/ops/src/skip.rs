//! The direct path past a recurrence.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::skip::{SKIP, SkipParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// `out[r, h, :] += D[h]·v[r, h, :]`, v in the rows of the chain (Mamba-2).
#[derive(Debug)]
pub struct Skip<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, ≥ offset + HV·V]`: q, k, then v.
    pub qkv: &'a Tensor,
    /// Where v begins in a row.
    pub offset: u32,
    /// `[1, HV]`.
    pub d: &'a Tensor,
    /// `[rows, HV·V]`.
    pub out: &'a Tensor,
}

impl Operation for Skip<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (row, heads, width) = (self.qkv.cols(), self.d.cols(), self.out.cols());
        let inside = self.offset.checked_add(width).is_some_and(|end| end <= row);
        ensure("skip", inside && width.is_multiple_of(heads), || {
            format!("{heads} heads in rows of {width}, read from column {} in rows of {row}", self.offset)
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.out.cols();
        let params = SkipParams { width, head: width / self.d.cols(), row: self.qkv.cols(), offset: self.offset };
        let bindings = vec![self.tables.clone(), self.qkv.range(), self.d.range(), self.out.range()];
        let grid = [width.div_ceil(64), self.out.rows(), 1];
        Ok(vec![launch("skip", caps, SKIP.id, Vec::new(), &params, bindings, grid)?])
    }
}
