//! A norm of heads in place.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::head_norm::{HEAD_NORM, HeadNormParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// `x ← x·rsqrt(mean(x²)+eps)·w` over each of the first `groups` heads of a row, in place.
#[derive(Debug)]
pub struct HeadNorm<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, ≥ groups·width]`: q, then k, then whatever follows.
    pub x: &'a Tensor,
    /// `[1, groups·width]`: a weight a channel.
    pub weight: &'a Tensor,
    /// Heads.
    pub groups: u32,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl Operation for HeadNorm<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (row, width, groups) = (self.x.cols(), self.weight.cols(), self.groups);
        ensure("head_norm", groups > 0 && width.is_multiple_of(groups) && width <= row, || {
            format!("{groups} heads with {width} weights in rows of {row}")
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.weight.cols() / self.groups;
        let params = HeadNormParams { row: self.x.cols(), groups: self.groups, width, eps: self.eps };
        let bindings = vec![self.tables.clone(), self.weight.range(), self.x.range()];
        Ok(vec![launch(
            "head_norm",
            caps,
            HEAD_NORM.id,
            Vec::new(),
            &params,
            bindings,
            [self.groups, self.x.rows(), 1],
        )?])
    }
}
