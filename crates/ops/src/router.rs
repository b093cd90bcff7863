//! Choosing experts.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::router::{
    MODE_CHOSEN_SOFTMAX, MODE_SIGMOID, MODE_SOFTMAX, MOST_CHOSEN, MOST_EXPERTS, ROUTER, RouterParams,
};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// How logits become a choice and weights.
#[derive(Clone, Copy, Debug)]
pub enum Scoring<'a> {
    /// Softmax over all experts, the most probable ones (Qwen3.5).
    Softmax {
        /// Whether the weights of a row are divided by their sum.
        renormalise: bool,
    },
    /// The largest logits, softmax over them (Granite).
    ChosenSoftmax,
    /// Sigmoid scores; chosen by score + bias in the groups with the largest sum of their two best (Ring, Kimi).
    Sigmoid {
        /// `[1, experts]`.
        bias: &'a Tensor,
        /// Groups of consecutive experts, each of at least two; 1 for none.
        groups: u32,
        /// Groups that are kept.
        keep: u32,
        /// Whether the weights of a row are divided by their sum (plus 1e-20).
        renormalise: bool,
        /// What the weights are multiplied by; finite.
        scale: f32,
    },
}

/// The experts of each row, best first, and their weights. Equal choices go to the lower index.
#[derive(Debug)]
pub struct Router<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, experts]`, at most 1024 experts.
    pub logits: &'a Tensor,
    /// `[rows, k]` u32 in the memory of a tensor: the experts; k is at most 64.
    pub index: &'a Tensor,
    /// `[rows, k]`.
    pub weight: &'a Tensor,
    /// How.
    pub scoring: Scoring<'a>,
}

impl Operation for Router<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (experts, top) = (self.logits.cols(), self.index.cols());
        let fits = top <= experts && experts <= MOST_EXPERTS && top <= MOST_CHOSEN && self.weight.cols() == top;
        ensure("router", fits, || {
            format!(
                "{top} of {experts} experts (at most {MOST_CHOSEN} of {MOST_EXPERTS}), {} weights",
                self.weight.cols()
            )
        })?;
        let Scoring::Sigmoid { bias, groups, keep, scale, .. } = self.scoring else { return Ok(()) };
        let grouped = groups > 0
            && groups <= MOST_CHOSEN
            && experts.is_multiple_of(groups)
            && (1..=groups).contains(&keep)
            && (groups == keep || experts / groups >= 2)
            && keep * (experts / groups) >= top;
        ensure("router", grouped && bias.cols() == experts && scale.is_finite(), || {
            format!("{top} of {experts} experts in {keep} of {groups} groups, {} biases, scale {scale}", bias.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (experts, top) = (self.logits.cols(), self.index.cols());
        let plain = RouterParams { experts, top, groups: 1, keep: 1, renormalise: 1, scale: 1.0, pad: [0; 2] };
        let (mode, bias, params) = match self.scoring {
            // Something must be bound as the bias that is only read.
            Scoring::Softmax { renormalise } => {
                (MODE_SOFTMAX, self.logits, RouterParams { renormalise: u32::from(renormalise), ..plain })
            }
            Scoring::ChosenSoftmax => (MODE_CHOSEN_SOFTMAX, self.logits, plain),
            Scoring::Sigmoid { bias, groups, keep, renormalise, scale } => {
                (MODE_SIGMOID, bias, RouterParams { groups, keep, renormalise: u32::from(renormalise), scale, ..plain })
            }
        };
        let bindings = [self.logits, bias, self.index, self.weight].map(Tensor::range);
        let bindings = std::iter::once(self.tables.clone()).chain(bindings).collect();
        let grid = [self.logits.rows(), 1, 1];
        Ok(vec![launch("router", caps, ROUTER.id, vec![mode], &params, bindings, grid)?])
    }
}
