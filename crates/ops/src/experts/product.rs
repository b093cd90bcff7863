//! Products of pairs with the weights of their experts.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::experts::{EXPERT_FEW, EXPERT_TILES, ProductParams};

use super::sort::Grouping;
use super::weight::ExpertWeight;
use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;
use crate::weight::weight_constant;

/// `out[pair] = x[row of pair]·W[expert of pair]ᵀ`, shard by shard of W; pair `r·k + j` is row r with the j-th expert that it
/// goes to.
#[derive(Debug)]
pub struct ExpertProduct<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, k]` u32: what the router chose.
    pub index: &'a Tensor,
    /// What [`super::ExpertSort`] wrote for it.
    pub groups: &'a BufferRange,
    /// `[rows, width]`, or `[rows·k, width]` where pairs have rows of their own.
    pub x: &'a Tensor,
    /// `[experts, n, width]`.
    pub weight: &'a ExpertWeight,
    /// `[rows·k, ≥ n]`.
    pub out: &'a Tensor,
    /// First column of `out` that is written.
    pub column: u32,
}

impl Operation for ExpertProduct<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (x, w, out) = (self.x, self.weight, self.out);
        let (rows, top) = (u64::from(self.index.rows()), u64::from(self.index.cols()));
        let pairs = u64::from(out.rows()) == rows * top;
        let fits = x.cols() == w.k()
            && w.k().is_multiple_of(4)
            && u64::from(self.column) + u64::from(w.n()) <= u64::from(out.cols())
            && (u64::from(x.rows()) == rows || x.rows() == out.rows());
        ensure("expert_product", pairs && fits, || {
            let (x, out) = ([x.rows(), x.cols()], [out.rows(), out.cols()]);
            let column = self.column;
            format!("{x:?} by {} [{}, {}] of {top} experts into {out:?} at {column}", w.name(), w.n(), w.k())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (x, w, out) = (self.x, self.weight, self.out);
        let (rows, top, experts) = (self.index.rows(), self.index.cols(), w.experts());
        let grouping = Grouping::of(rows, top, experts);
        let Some(weight) = weight_constant(w.dtype()) else {
            let what = format!("experts with {} weights", w.dtype());
            return Err(OpError::Unsupported { op: "expert_product", device: caps.name.clone(), what });
        };
        let (kernel, constants, columns) = match grouping {
            Grouping::Alone => (EXPERT_FEW.id, vec![weight, 0], 8),
            Grouping::Few => (EXPERT_FEW.id, vec![weight, 1], 8),
            Grouping::Tiles => (EXPERT_TILES.id, vec![weight], 32),
        };
        let grid = [w.n().div_ceil(columns), grouping.tiles(out.rows(), experts), 1];
        let groups = if grouping == Grouping::Alone { self.index.range() } else { self.groups.clone() };
        let product = |shard: &super::ExpertShard| {
            let params = ProductParams {
                n: w.n(),
                k: w.k(),
                lda: x.cols(),
                ldc: out.cols(),
                column: self.column,
                top,
                share: if x.rows() == rows { top } else { 1 },
                experts,
                first: shard.first,
                count: shard.count,
                tile: grouping.tile(),
                pairs: out.rows(),
                shift: w.shift(),
                pad: [0; 3],
            };
            // Something must be bound as the scales of weights that have none.
            let scales = shard.scales.as_ref().map_or_else(|| x.range(), seam_device::Buffer::all);
            let bindings =
                vec![self.tables.clone(), groups.clone(), x.range(), shard.buffer.all(), scales, out.range()];
            launch("expert_product", caps, kernel, constants.clone(), &params, bindings, grid)
        };
        w.shards().iter().map(product).collect()
    }
}
