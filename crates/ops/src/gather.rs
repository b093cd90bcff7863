//! Gathering the rows that want logits.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::gather::{GATHER_ROWS, GatherParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// `out[i] = x[row of logit i]`.
#[derive(Debug)]
pub struct GatherRows<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, width]`.
    pub x: &'a Tensor,
    /// `[logits, width]`.
    pub out: &'a Tensor,
}

impl Operation for GatherRows<'_> {
    fn check(&self) -> Result<(), OpError> {
        ensure("gather", self.x.cols() == self.out.cols(), || {
            format!("rows of {} into rows of {}", self.x.cols(), self.out.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.x.cols();
        let command = launch(
            "gather",
            caps,
            GATHER_ROWS.id,
            Vec::new(),
            &GatherParams { width, pad: [0; 3] },
            vec![self.tables.clone(), self.x.range(), self.out.range()],
            [width.div_ceil(64), self.out.rows(), 1],
        )?;
        Ok(vec![command])
    }
}
