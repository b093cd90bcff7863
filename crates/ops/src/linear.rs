//! Products with weights.

use seam_device::{BufferRange, Caps, Command, Gemm, Scales};

use crate::error::{OpError, ensure};
use crate::operation::Operation;
use crate::tensor::Tensor;
use crate::weight::Weight;

/// `out (+)= x·Wᵀ`, shard by shard of W.
#[derive(Debug)]
pub struct Linear<'a> {
    /// Tables of the pass, with the header word that holds the number of rows.
    pub rows: (&'a BufferRange, usize),
    /// `[rows, k]`.
    pub x: &'a Tensor,
    /// `[n, k]`.
    pub weight: &'a Weight,
    /// `[rows, n]`.
    pub out: &'a Tensor,
    /// Add to `out`, as into a residual stream.
    pub accumulate: bool,
}

impl Operation for Linear<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (x, w, out) = (self.x, self.weight, self.out);
        ensure("linear", x.cols() == w.k() && out.cols() == w.n() && x.rows() == out.rows(), || {
            format!(
                "[{}, {}] by {} [{}, {}] into [{}, {}]",
                x.rows(),
                x.cols(),
                w.name(),
                w.n(),
                w.k(),
                out.rows(),
                out.cols()
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let dtype = self.weight.dtype();
        if !caps.gemm.weights.contains(&dtype) || (self.accumulate && !caps.gemm.accumulate) {
            return Err(OpError::Unsupported {
                op: "linear",
                device: caps.name.clone(),
                what: format!("a product with {dtype} weights, accumulate {}", self.accumulate),
            });
        }
        let gemm = |shard: &crate::weight::Shard| {
            Command::Gemm(Gemm {
                m: self.x.rows(),
                n: shard.count,
                k: self.x.cols(),
                lda: self.x.cols(),
                ldc: self.out.cols(),
                c_column: shard.first,
                weight: dtype,
                accumulate: self.accumulate,
                a: self.x.range(),
                w: shard.buffer.all(),
                scales: shard.scales.as_ref().map(|s| Scales { range: s.all(), shift: self.weight.shift() }),
                c: self.out.range(),
                rows: Some((self.rows.0.clone(), self.rows.1 as u32)),
            })
        };
        Ok(self.weight.shards().iter().map(gemm).collect())
    }
}
