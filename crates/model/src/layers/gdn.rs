//! The gated delta net of Qwen3.5: projections, causal convolution, chain, gated norm, output projection.

use seam_device::Recorder;
use seam_kernels::tables::ROWS;
use seam_ops::{
    Chain, ConvSilu, ConvTail, GatedRmsNorm, GdnGate, L2Norm, Linear, OpError, Operation, OutputGate, Tensor,
    TileChain, TilePrepare, Weight, takes_tiles,
};

use super::PassContext;
use crate::config::LinearDims;
use crate::error::{ModelError, narrow};
use crate::loader::Loader;
use crate::probe::Probe;
use crate::spec::LinearSpec;

/// Added to the sum of squares of q and k before the root.
const L2_EPS: f32 = 1e-6;

/// One linear layer.
#[derive(Debug)]
pub struct GatedDeltaNet {
    /// Its number among the linear layers.
    index: usize,
    /// Its number among all layers, for the names of probes.
    layer: usize,
    spec: LinearSpec,
    eps: f32,
    qkv: Weight,
    z: Weight,
    a: Weight,
    b: Weight,
    out: Weight,
    conv: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    norm: Tensor,
}

impl GatedDeltaNet {
    /// Loads `linear_attn.*` of layer `layer`, the `index`-th linear one.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(
        l: &Loader<'_>,
        (layer, index): (usize, usize),
        hidden: usize,
        dims: &LinearDims,
        spec: LinearSpec,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let name = |part: &str| l.names().layer(layer, &format!("linear_attn.{part}"));
        let (channels, value) = (dims.conv_channels(), dims.value_width());
        let heads = narrow("value heads", dims.v_heads)?;
        let small = |part: &str, shape: &[usize], rows, cols| l.small(&name(part), shape, rows, cols);
        Ok(Self {
            index,
            layer,
            spec,
            eps,
            qkv: l.matrix(&name("in_proj_qkv.weight"), channels, hidden)?,
            z: l.matrix(&name("in_proj_z.weight"), value, hidden)?,
            a: l.matrix(&name("in_proj_a.weight"), dims.v_heads, hidden)?,
            b: l.matrix(&name("in_proj_b.weight"), dims.v_heads, hidden)?,
            out: l.matrix(&name("out_proj.weight"), hidden, value)?,
            conv: small("conv1d.weight", &[channels, 1, dims.conv_kernel], spec.channels, spec.kernel)?,
            a_log: small("A_log", &[dims.v_heads], 1, heads)?,
            dt_bias: small("dt_bias", &[dims.v_heads], 1, heads)?,
            norm: small("norm.weight", &[dims.v_dim], 1, spec.recurrence.value)?,
        })
    }

    /// Records it: reads the normalised `x`, adds into `h`. Probes see `layer<i>.gdn.{qkv,gates,o}`: q, k, v after the
    /// convolution and before the l2 norm, g and beta, and the output before the gated norm.
    ///
    /// # Errors
    /// As the operations.
    pub fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        h: &Tensor,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, tables, shape) = (pass.caps, pass.tables, pass.shape);
        let Some(work) = &pass.work.linear else { return Err(missing("linear").into()) };
        let rows = |t: &Tensor| t.first(shape.rows);
        let [qkv, conv, z, a, b, gates, o, y] =
            [&work.qkv, &work.conv, &work.z, &work.a, &work.b, &work.gates, &work.o, &work.y].map(rows);
        for (weight, out) in [(&self.qkv, &qkv), (&self.z, &z), (&self.a, &a), (&self.b, &b)] {
            Linear { rows: (tables, ROWS), x, weight, out, accumulate: false }.record(recorder, caps)?;
        }
        for (i, launch) in shape.conv.iter().enumerate() {
            let slabs = pass.memory.linear_slabs(self.index, launch.private, &launch.shared);
            let launch = (i as u32, launch.rows);
            ConvSilu { tables, x: &qkv, weight: &self.conv, bias: false, out: &conv, launch, slabs }
                .record(recorder, caps)?;
        }
        for (i, launch) in shape.tails.iter().enumerate() {
            let slabs = pass.memory.linear_slabs(self.index, Some(launch.private), &launch.shared);
            let launch = (i as u32, launch.tails);
            ConvTail { tables, x: &qkv, kernel: self.spec.kernel, launch, slabs }.record(recorder, caps)?;
        }
        probe.tap(recorder, &format!("layer{}.gdn.qkv", self.layer), &conv)?;
        let (heads, key) = (self.spec.recurrence.heads, self.spec.recurrence.key);
        L2Norm { tables, x: &conv, heads, key, eps: L2_EPS }.record(recorder, caps)?;
        GdnGate { tables, a: &a, b: &b, a_log: &self.a_log, dt_bias: &self.dt_bias, out: &gates }
            .record(recorder, caps)?;
        probe.tap(recorder, &format!("layer{}.gdn.gates", self.layer), &gates)?;
        let (recurrence, qkv) = (self.spec.recurrence, &conv);
        let tiles = work.tiles.as_ref().filter(|_| takes_tiles(caps, &recurrence, shape.rows, shape.chunks));
        if let Some(work) = tiles {
            TilePrepare { tables, recurrence, qkv, gates: &gates, work, chunks: shape.chunks }
                .record(recorder, caps)?;
        }
        for (i, launch) in shape.chains.iter().enumerate() {
            let slabs = pass.memory.linear_slabs(self.index, Some(launch.private), &launch.shared);
            let (launch, out) = ((i as u32, launch.chains, launch.operator), &o);
            match tiles {
                Some(work) => TileChain { tables, recurrence, qkv, work, out, launch, slabs }.record(recorder, caps)?,
                None => Chain { tables, recurrence, qkv, gates: &gates, out, launch, slabs }.record(recorder, caps)?,
            }
        }
        probe.tap(recorder, &format!("layer{}.gdn.o", self.layer), &o)?;
        GatedRmsNorm {
            tables,
            x: &o,
            weight: &self.norm,
            z: &z,
            out: &y,
            groups: self.spec.recurrence.value_heads,
            gate: OutputGate::Silu,
            gate_first: false,
            eps: self.eps,
        }
        .record(recorder, caps)?;
        Linear { rows: (tables, ROWS), x: &y, weight: &self.out, out: h, accumulate: true }.record(recorder, caps)?;
        Ok(())
    }
}

/// The workspace was made for another stack.
pub(super) fn missing(kind: &'static str) -> OpError {
    OpError::Shape { op: "layer", what: format!("the workspace has no activations of {kind} layers") }
}
