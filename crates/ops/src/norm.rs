//! Norms.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::norm::{GATED_RMS_NORM, L2_NORM, L2Params, NormParams, RMS_NORM};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// `out = rmsnorm(x)` over groups of a row.
#[derive(Debug)]
pub struct RmsNorm<'a> {
    /// Tables of the pass, with the header word that holds the number of rows.
    pub rows: (&'a BufferRange, usize),
    /// `[rows, ≥ (groups−1)·stride + width]`.
    pub x: &'a Tensor,
    /// `[1, width]`.
    pub weight: &'a Tensor,
    /// `[rows, groups·width]`.
    pub out: &'a Tensor,
    /// Groups in a row.
    pub groups: u32,
    /// Elements from one group of x to the next.
    pub stride: u32,
    /// Whether the weight is `1 + w`.
    pub centred: bool,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl Operation for RmsNorm<'_> {
    fn check(&self) -> Result<(), OpError> {
        let width = self.weight.cols();
        let fits = self.groups > 0
            && self.out.cols() == self.groups * width
            && self.x.cols() >= (self.groups - 1) * self.stride + width;
        ensure("rms_norm", fits, || {
            format!(
                "{} groups of {width} by {} in rows of {} and {}",
                self.groups,
                self.stride,
                self.x.cols(),
                self.out.cols()
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let params = NormParams {
            groups: self.groups,
            width: self.weight.cols(),
            x_row: self.x.cols(),
            x_group: self.stride,
            count: self.rows.1 as u32,
            centred: u32::from(self.centred),
            eps: self.eps,
            w_group: 0,
        };
        let bindings = vec![self.rows.0.clone(), self.x.range(), self.weight.range(), self.out.range()];
        let grid = [self.groups, self.out.rows(), 1];
        Ok(vec![launch("rms_norm", caps, RMS_NORM.id, Vec::new(), &params, bindings, grid)?])
    }
}

/// What the output gate of a linear layer does to z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// `z·sigmoid(z)`.
    Silu,
    /// `sigmoid(z)`.
    Sigmoid,
}

/// `out = rmsnorm(x)·w·gate(z)` per group, or `rmsnorm(x·gate(z))·w`.
#[derive(Debug)]
pub struct GatedRmsNorm<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, heads·V]`.
    pub x: &'a Tensor,
    /// `[1, width]` for all groups of `heads·V / groups`, or `[1, heads·V]`.
    pub weight: &'a Tensor,
    /// `[rows, heads·V]`.
    pub z: &'a Tensor,
    /// `[rows, heads·V]`.
    pub out: &'a Tensor,
    /// Groups of consecutive elements in a row, each normalised alone: often the heads.
    pub groups: u32,
    /// The gate.
    pub gate: OutputGate,
    /// Whether x is gated before it is normalised (Mamba-2), and not after.
    pub gate_first: bool,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl GatedRmsNorm<'_> {
    fn width(&self) -> u32 {
        self.x.cols() / self.groups.max(1)
    }
}

impl Operation for GatedRmsNorm<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (x, weight) = (self.x.cols(), self.weight.cols());
        let grouped = self.groups > 0 && x.is_multiple_of(self.groups) && (weight == x || weight == self.width());
        ensure("gated_rms_norm", grouped && self.z.cols() == x && self.out.cols() == x, || {
            format!(
                "rows of {x}, {} and {} in {} groups with {weight} weights",
                self.z.cols(),
                self.out.cols(),
                self.groups
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.width();
        let params = NormParams {
            groups: self.groups,
            width,
            x_row: self.x.cols(),
            x_group: width,
            count: seam_kernels::tables::ROWS as u32,
            centred: 0,
            eps: self.eps,
            w_group: if self.weight.cols() == width { 0 } else { width },
        };
        let bindings = vec![self.tables.clone(), self.x.range(), self.weight.range(), self.z.range(), self.out.range()];
        let grid = [params.groups, self.out.rows(), 1];
        let constants = vec![u32::from(self.gate == OutputGate::Sigmoid), u32::from(self.gate_first)];
        Ok(vec![launch("gated_rms_norm", caps, GATED_RMS_NORM.id, constants, &params, bindings, grid)?])
    }
}

/// l2 norm of q and k in place, with q scaled.
#[derive(Debug)]
pub struct L2Norm<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, ≥ 2·heads·K]`: q, then k, then whatever follows.
    pub x: &'a Tensor,
    /// Key heads H.
    pub heads: u32,
    /// Key size K.
    pub key: u32,
    /// Added to the sum of squares.
    pub eps: f32,
}

impl Operation for L2Norm<'_> {
    fn check(&self) -> Result<(), OpError> {
        ensure("l2_norm", self.heads > 0 && 2 * self.heads * self.key <= self.x.cols(), || {
            format!("q and k of {} heads of {} in rows of {}", self.heads, self.key, self.x.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let params = L2Params {
            row: self.x.cols(),
            groups: 2 * self.heads,
            width: self.key,
            scaled: self.heads,
            eps: self.eps,
            scale: (1.0 / f64::from(self.key).sqrt()) as f32,
            pad: [0; 2],
        };
        let bindings = vec![self.tables.clone(), self.x.range()];
        let grid = [2 * self.heads, self.x.rows(), 1];
        Ok(vec![launch("l2_norm", caps, L2_NORM.id, Vec::new(), &params, bindings, grid)?])
    }
}
