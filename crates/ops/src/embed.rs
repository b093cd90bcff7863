//! Token embedding.

use seam_device::{BufferRange, Caps, Command, DType};
use seam_kernels::embed::{EMBED, EmbedParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;
use crate::weight::Weight;

/// `out[r] = table[token of row r]`.
#[derive(Debug)]
pub struct Embed<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[vocab, hidden]`.
    pub table: &'a Weight,
    /// `[rows, hidden]`.
    pub out: &'a Tensor,
}

impl Operation for Embed<'_> {
    fn check(&self) -> Result<(), OpError> {
        ensure("embed", self.table.k() == self.out.cols(), || {
            format!("{} has {} columns, the result {}", self.table.name(), self.table.k(), self.out.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.out.cols();
        let dtype = self.table.dtype();
        if !matches!(dtype, DType::BF16 | DType::F32) {
            let what = format!("a table of {dtype}");
            return Err(OpError::Unsupported { op: "embed", device: caps.name.clone(), what });
        }
        self.table
            .shards()
            .iter()
            .map(|shard| {
                let params = EmbedParams { width, first: shard.first, count: shard.count, pad: 0 };
                launch(
                    "embed",
                    caps,
                    EMBED.id,
                    vec![u32::from(dtype == DType::BF16)],
                    &params,
                    vec![self.tables.clone(), shard.buffer.all(), self.out.range()],
                    [width.div_ceil(64), self.out.rows(), 1],
                )
            })
            .collect()
    }
}
