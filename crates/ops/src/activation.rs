//! What stands between the two products of an MLP or of experts.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::activation::{ACTIVATION, ActivationParams, KIND_RELU2, KIND_SWIGLU};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// An activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// `silu(gate)·up`; a row of the input holds all of the gate, then all of up.
    SwiGlu,
    /// `max(x, 0)²`.
    Relu2,
}

impl ActivationKind {
    /// Elements of an input row for one of `width` elements.
    #[must_use]
    pub fn input(self, width: u32) -> u32 {
        match self {
            Self::SwiGlu => 2 * width,
            Self::Relu2 => width,
        }
    }
}

/// `out = act(x)`.
#[derive(Debug)]
pub struct Activation<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows·top, kind.input(width)]`.
    pub x: &'a Tensor,
    /// `[rows·top, width]`.
    pub out: &'a Tensor,
    /// Rows of x for each row of the pass: the experts that a row goes to, or 1.
    pub top: u32,
    /// Which.
    pub kind: ActivationKind,
}

impl Operation for Activation<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (x, out) = (self.x, self.out);
        let fits = x.rows() == out.rows() && self.top > 0 && out.rows().is_multiple_of(self.top);
        ensure("activation", fits && x.cols() == self.kind.input(out.cols()), || {
            let (x, out) = ([x.rows(), x.cols()], [out.rows(), out.cols()]);
            format!("{:?} of {x:?} to {out:?}, {} rows each", self.kind, self.top)
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let kind = match self.kind {
            ActivationKind::SwiGlu => KIND_SWIGLU,
            ActivationKind::Relu2 => KIND_RELU2,
        };
        let params = ActivationParams { width: self.out.cols(), top: self.top, pad: [0; 2] };
        let bindings = vec![self.tables.clone(), self.x.range(), self.out.range()];
        let grid = [self.out.cols().div_ceil(64), self.out.rows() / self.top, self.top];
        Ok(vec![launch("activation", caps, ACTIVATION.id, vec![kind], &params, bindings, grid)?])
    }
}
