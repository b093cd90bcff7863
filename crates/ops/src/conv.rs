//! The causal convolution and its tails.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::conv::{CONV_SILU, CONV_TAIL, ConvParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// `out = silu(conv(x))`, or `silu(conv(x) + bias)`, for one launch of the pass.
#[derive(Debug)]
pub struct ConvSilu<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, C]` raw inputs.
    pub x: &'a Tensor,
    /// `[C, kernel]` f32, with a bias `[C, kernel + 1]`: the taps of a channel, oldest first, then its bias.
    pub weight: &'a Tensor,
    /// Whether the last column of the weights is a bias.
    pub bias: bool,
    /// `[rows, C]`.
    pub out: &'a Tensor,
    /// Which launch, and an upper bound of its rows.
    pub launch: (u32, u32),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Operation for ConvSilu<'_> {
    fn check(&self) -> Result<(), OpError> {
        let c = self.x.cols();
        let (weights, taps) = (self.weight.rows(), self.weight.cols());
        ensure("conv", weights == c && self.out.cols() == c && taps > u32::from(self.bias), || {
            format!("{c} channels, weights [{weights}, {taps}], a result of {}", self.out.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let channels = self.x.cols();
        let mut bindings = vec![self.tables.clone(), self.x.range(), self.weight.range(), self.out.range()];
        bindings.extend(self.slabs.iter().cloned());
        let params = ConvParams { channels, launch: self.launch.0, pad: [0; 2] };
        let bias = u32::from(self.bias);
        let constants = vec![self.weight.cols().saturating_sub(bias), bias];
        let grid = [channels.div_ceil(64), self.launch.1, 1];
        Ok(vec![launch("conv", caps, CONV_SILU.id, constants, &params, bindings, grid)?])
    }
}

/// Writes the conv tails of one launch of the pass.
#[derive(Debug)]
pub struct ConvTail<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, C]` raw inputs.
    pub x: &'a Tensor,
    /// Taps of the convolution.
    pub kernel: u32,
    /// Which launch, and an upper bound of its tails.
    pub launch: (u32, u32),
    /// The private slab that is written, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Operation for ConvTail<'_> {
    fn check(&self) -> Result<(), OpError> {
        ensure("conv_tail", self.kernel >= 2 && self.launch.1 > 0, || {
            format!("kernel {}, {} tails", self.kernel, self.launch.1)
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let channels = self.x.cols();
        let mut bindings = vec![self.tables.clone(), self.x.range()];
        bindings.extend(self.slabs.iter().cloned());
        let params = ConvParams { channels, launch: self.launch.0, pad: [0; 2] };
        let grid = [channels.div_ceil(64), self.launch.1, 1];
        Ok(vec![launch("conv_tail", caps, CONV_TAIL.id, vec![self.kernel], &params, bindings, grid)?])
    }
}
