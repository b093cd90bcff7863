//! Gates of the recurrences beside the gated delta rule, as rows `[g | beta]` that their chains read.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::gate::{GLA_GATE, GlaGateParams, KDA_GATE, KdaGateParams, MAMBA_GATE, MambaGateParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// Decays of gated linear attention: `g = ln sigmoid(x) / normaliser`, one a key dimension.
#[derive(Debug)]
pub struct GlaGate<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, HV·K]`.
    pub x: &'a Tensor,
    /// What the log-sigmoid is divided by (published: 16); finite and above 0.
    pub normaliser: f32,
    /// `[rows, ≥ HV·K]`: g, then columns that are kept.
    pub out: &'a Tensor,
}

impl Operation for GlaGate<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (width, row, normaliser) = (self.x.cols(), self.out.cols(), self.normaliser);
        ensure("gla_gate", row >= width && normaliser.is_finite() && normaliser > 0.0, || {
            format!("{width} gates in rows of {row}, a normaliser of {normaliser}")
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let width = self.x.cols();
        let params = GlaGateParams { width, row: self.out.cols(), normaliser: self.normaliser, pad: 0 };
        let bindings = vec![self.tables.clone(), self.x.range(), self.out.range()];
        let grid = [width.div_ceil(64), self.x.rows(), 1];
        Ok(vec![launch("gla_gate", caps, GLA_GATE.id, Vec::new(), &params, bindings, grid)?])
    }
}

/// Gates of Kimi delta attention: `g = −exp(A_log)·softplus(f + dt_bias)`, one a key dimension, and `beta = sigmoid(b)`.
#[derive(Debug)]
pub struct KdaGate<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, H·K]`.
    pub f: &'a Tensor,
    /// `[rows, H]`; `None` writes no beta.
    pub b: Option<&'a Tensor>,
    /// `[1, H]`.
    pub a_log: &'a Tensor,
    /// `[1, H·K]`.
    pub dt_bias: &'a Tensor,
    /// The variant of Ling-3.0, `g = bound·sigmoid(exp(A_log)·(f + dt_bias))`, with its bound (published: −5), finite and
    /// below 0.
    pub bound: Option<f32>,
    /// `[rows, ≥ H·K (+ H)]`: g, then beta, then columns that are kept.
    pub out: &'a Tensor,
}

impl Operation for KdaGate<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (width, heads, row) = (self.f.cols(), self.a_log.cols(), self.out.cols());
        let strengths = self.b.map_or(0, Tensor::cols);
        let fits = width.is_multiple_of(heads)
            && self.dt_bias.cols() == width
            && (self.b.is_none() || strengths == heads)
            && row >= width + strengths
            && self.bound.is_none_or(|bound| bound.is_finite() && bound < 0.0);
        ensure("kda_gate", fits, || {
            let (biases, bound) = (self.dt_bias.cols(), self.bound);
            format!("{width} gates, {biases} biases, {strengths} strengths of {heads} heads, rows of {row}, {bound:?}")
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (width, heads) = (self.f.cols(), self.a_log.cols());
        let params =
            KdaGateParams { width, head: width / heads, row: self.out.cols(), bound: self.bound.unwrap_or_default() };
        // Without beta something must be bound that is only read.
        let b = self.b.unwrap_or(self.f);
        let bindings = [self.f, b, self.a_log, self.dt_bias, self.out].map(Tensor::range);
        let bindings = std::iter::once(self.tables.clone()).chain(bindings).collect();
        let constants = vec![u32::from(self.bound.is_some()), u32::from(self.b.is_some())];
        let written = if self.b.is_some() { width + heads } else { width };
        let grid = [written.div_ceil(64), self.f.rows(), 1];
        Ok(vec![launch("kda_gate", caps, KDA_GATE.id, constants, &params, bindings, grid)?])
    }
}

/// Gates of Mamba-2: `dt = clamp(softplus(x + dt_bias), limits)`, `g = −exp(A_log)·dt`, `beta = dt`.
#[derive(Debug)]
pub struct MambaGate<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, H]`.
    pub x: &'a Tensor,
    /// `[1, H]`.
    pub a_log: &'a Tensor,
    /// `[1, H]`.
    pub dt_bias: &'a Tensor,
    /// Least and largest step; published: (0, ∞).
    pub limits: (f32, f32),
    /// `[rows, ≥ 2·H]`: g, then beta, then columns that are kept.
    pub out: &'a Tensor,
}

impl Operation for MambaGate<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (heads, row, (low, high)) = (self.x.cols(), self.out.cols(), self.limits);
        let fits = self.a_log.cols() == heads && self.dt_bias.cols() == heads && row >= 2 * heads;
        ensure("mamba_gate", fits && low >= 0.0 && low.is_finite() && low <= high, || {
            let (rates, biases) = (self.a_log.cols(), self.dt_bias.cols());
            format!("{heads} heads, {rates} rates, {biases} biases, rows of {row}, limits {low} to {high}")
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (heads, (low, high)) = (self.x.cols(), self.limits);
        // The kernel knows no infinity.
        let params = MambaGateParams { heads, row: self.out.cols(), low, high: high.min(f32::MAX) };
        let bindings = [self.x, self.a_log, self.dt_bias, self.out].map(Tensor::range);
        let bindings = std::iter::once(self.tables.clone()).chain(bindings).collect();
        let grid = [heads.div_ceil(64), self.x.rows(), 1];
        Ok(vec![launch("mamba_gate", caps, MAMBA_GATE.id, Vec::new(), &params, bindings, grid)?])
    }
}
