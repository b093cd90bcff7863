//! Gates and activations.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::elementwise::{ElementParams, GDN_GATE, SIGMOID_GATE, SWIGLU};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// Decay and beta of the gated delta rule: `g = −exp(A_log)·softplus(a + dt_bias)`, `beta = sigmoid(b)`.
#[derive(Debug)]
pub struct GdnGate<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, HV]`.
    pub a: &'a Tensor,
    /// `[rows, HV]`.
    pub b: &'a Tensor,
    /// `[1, HV]`.
    pub a_log: &'a Tensor,
    /// `[1, HV]`.
    pub dt_bias: &'a Tensor,
    /// `[rows, 2·HV]`: g, then beta.
    pub out: &'a Tensor,
}

impl Operation for GdnGate<'_> {
    fn check(&self) -> Result<(), OpError> {
        let hv = self.a.cols();
        let fits = self.b.cols() == hv && self.a_log.cols() == hv && self.dt_bias.cols() == hv;
        ensure("gdn_gate", fits && self.out.cols() == 2 * hv, || {
            format!("{hv} value heads, rows of {} and {}", self.b.cols(), self.out.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.a.cols();
        let bindings = [self.a, self.b, self.a_log, self.dt_bias, self.out].map(Tensor::range);
        let bindings = std::iter::once(self.tables.clone()).chain(bindings).collect();
        let grid = [width.div_ceil(64), self.a.rows(), 1];
        let params = ElementParams { width, head: 0, pad: [0; 2] };
        Ok(vec![launch("gdn_gate", caps, GDN_GATE.id, Vec::new(), &params, bindings, grid)?])
    }
}

/// `x ← x·sigmoid(gate)`, the output gate of gated attention.
#[derive(Debug)]
pub struct SigmoidGate<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, heads·2·head]`: per head the query, then the gate.
    pub qg: &'a Tensor,
    /// `[rows, heads·head]`.
    pub x: &'a Tensor,
    /// Head size.
    pub head: u32,
}

impl Operation for SigmoidGate<'_> {
    fn check(&self) -> Result<(), OpError> {
        ensure("sigmoid_gate", self.qg.cols() == 2 * self.x.cols() && self.x.cols().is_multiple_of(self.head), || {
            format!("rows of {} and {} in heads of {}", self.qg.cols(), self.x.cols(), self.head)
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.x.cols();
        let bindings = vec![self.tables.clone(), self.qg.range(), self.x.range()];
        let params = ElementParams { width, head: self.head, pad: [0; 2] };
        let grid = [width.div_ceil(64), self.x.rows(), 1];
        Ok(vec![launch("sigmoid_gate", caps, SIGMOID_GATE.id, Vec::new(), &params, bindings, grid)?])
    }
}

/// `x ← silu(x)·up`.
#[derive(Debug)]
pub struct SwiGlu<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, intermediate]`.
    pub up: &'a Tensor,
    /// `[rows, intermediate]`: the gate, then the result.
    pub x: &'a Tensor,
}

impl Operation for SwiGlu<'_> {
    fn check(&self) -> Result<(), OpError> {
        ensure("swiglu", self.up.cols() == self.x.cols(), || {
            format!("rows of {} and {}", self.up.cols(), self.x.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.x.cols();
        let bindings = vec![self.tables.clone(), self.up.range(), self.x.range()];
        let params = ElementParams { width, head: 0, pad: [0; 2] };
        let grid = [width.div_ceil(64), self.x.rows(), 1];
        Ok(vec![launch("swiglu", caps, SWIGLU.id, Vec::new(), &params, bindings, grid)?])
    }
}
