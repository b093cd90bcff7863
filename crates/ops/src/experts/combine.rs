//! A row's result from those of its experts.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::experts::{CombineParams, EXPERT_COMBINE, SHARED_GATED, SHARED_NONE, SHARED_PLAIN};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// The expert that every row goes to.
#[derive(Clone, Copy, Debug)]
pub enum Shared<'a> {
    /// There is none.
    None,
    /// Its result `[rows, width]` is added.
    Plain(&'a Tensor),
    /// Its result times the sigmoid of a gate is added.
    Gated {
        /// `[rows, width]`.
        out: &'a Tensor,
        /// `[rows, 1]`.
        gate: &'a Tensor,
    },
}

/// `out[r] (+)= scale·(Σ_j weight[r, j]·y[r·k + j] + g·shared[r])`, summed over j in order.
#[derive(Debug)]
pub struct ExpertCombine<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, k]`: the router's weights.
    pub weight: &'a Tensor,
    /// `[rows·k, width]`.
    pub y: &'a Tensor,
    /// The shared expert.
    pub shared: Shared<'a>,
    /// `[rows, width]`.
    pub out: &'a Tensor,
    /// What the result is multiplied by; finite.
    pub scale: f32,
    /// Add to `out`, as into a residual stream.
    pub accumulate: bool,
}

impl Operation for ExpertCombine<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (y, out, top) = (self.y, self.out, self.weight.cols());
        let pairs = u64::from(self.weight.rows()) * u64::from(top);
        let whole = |t: &Tensor| t.rows() == out.rows() && t.cols() == out.cols();
        let shared = match self.shared {
            Shared::None => true,
            Shared::Plain(t) => whole(t),
            Shared::Gated { out: t, gate } => whole(t) && gate.rows() == out.rows() && gate.cols() == 1,
        };
        let fits = u64::from(y.rows()) == pairs && y.cols() == out.cols() && self.weight.rows() == out.rows();
        ensure("expert_combine", fits && shared && self.scale.is_finite(), || {
            let (y, out) = ([y.rows(), y.cols()], [out.rows(), out.cols()]);
            format!("{top} of {y:?} to {out:?}, scale {}, shared {:?}", self.scale, self.shared)
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (width, top) = (self.out.cols(), self.weight.cols());
        // Something must be bound for what is not there.
        let (kind, shared, gate) = match self.shared {
            Shared::None => (SHARED_NONE, self.y, self.weight),
            Shared::Plain(out) => (SHARED_PLAIN, out, self.weight),
            Shared::Gated { out, gate } => (SHARED_GATED, out, gate),
        };
        let params = CombineParams { width, top, accumulate: u32::from(self.accumulate), scale: self.scale };
        let bindings = [self.weight, self.y, shared, gate, self.out].map(Tensor::range);
        let bindings = std::iter::once(self.tables.clone()).chain(bindings).collect();
        let grid = [width.div_ceil(64), self.out.rows(), 1];
        Ok(vec![launch("expert_combine", caps, EXPERT_COMBINE.id, vec![kind], &params, bindings, grid)?])
    }
}
