//! The gated delta net: projections, causal convolution, chain, gated norm, output projection.

use seam_device::Recorder;
use seam_kernels::tables::ROWS;
use seam_ops::{GatedRmsNorm, GdnGate, L2Norm, Linear, Operation, OutputGate, Tensor, Weight};

use super::{Mixer, Out, PassContext, linear};
use crate::config::{LinearDims, Projections};
use crate::error::{ModelError, narrow};
use crate::loader::{Loader, Rows};
use crate::probe::Probe;
use crate::spec::{LinearSpec, WorkPlan};

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

/// `[q | k | v]`, z, a and b from a matrix that holds q, k, v and z of each key head and one that holds its b and a.
fn interleaved(
    l: &Loader<'_>,
    [qkvz, ba]: [&str; 2],
    hidden: usize,
    dims: &LinearDims,
) -> Result<[Weight; 4], ModelError> {
    let (heads, key, group) = (dims.k_heads, dims.k_dim, dims.v_heads / dims.k_heads.max(1));
    let value = group * dims.v_dim;
    // `len` rows of each key head, from its row `from` on, of `per_head`.
    let part = |name, per_head: usize, from: usize, len: usize| {
        let rows = move |head: usize| head * per_head + from..head * per_head + from + len;
        (0..heads).map(move |head| Rows { name, n: heads * per_head, range: rows(head) })
    };
    let of_qkvz = |from, len| part(qkvz, 2 * key + 2 * value, from, len);
    let qkv: Vec<Rows<'_>> = of_qkvz(0, key).chain(of_qkvz(key, key)).chain(of_qkvz(2 * key, value)).collect();
    let z: Vec<Rows<'_>> = of_qkvz(2 * key + value, value).collect();
    let [b, a] = [0, group].map(|from| part(ba, 2 * group, from, group).collect::<Vec<_>>());
    Ok([l.rows(&qkv, hidden)?, l.rows(&z, hidden)?, l.rows(&a, hidden)?, l.rows(&b, hidden)?])
}

impl GatedDeltaNet {
    /// What it needs of the workspace.
    ///
    /// # Errors
    /// [`ModelError::Size`].
    pub fn plan(dims: &LinearDims) -> Result<WorkPlan, ModelError> {
        let heads = narrow("value heads", dims.v_heads)?;
        Ok(WorkPlan { z: narrow("value width", dims.value_width())?, a: heads, b: heads, ..WorkPlan::default() })
    }

    /// Loads `linear_attn.*` of layer `layer`, the `index`-th linear one, stored as `projections` says.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(
        l: &Loader<'_>,
        (layer, index): (usize, usize),
        hidden: usize,
        (dims, projections): (&LinearDims, Projections),
        spec: LinearSpec,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let name = |part: &str| l.names().layer(layer, &format!("linear_attn.{part}"));
        let (channels, value) = (dims.conv_channels(), dims.value_width());
        let heads = narrow("value heads", dims.v_heads)?;
        let small = |part: &str, shape: &[usize], rows, cols| l.small(&name(part), shape, rows, cols);
        let [qkv, z, a, b] = match projections {
            Projections::Separate => [
                l.matrix(&name("in_proj_qkv.weight"), channels, hidden)?,
                l.matrix(&name("in_proj_z.weight"), value, hidden)?,
                l.matrix(&name("in_proj_a.weight"), dims.v_heads, hidden)?,
                l.matrix(&name("in_proj_b.weight"), dims.v_heads, hidden)?,
            ],
            Projections::Interleaved => {
                interleaved(l, [&name("in_proj_qkvz.weight"), &name("in_proj_ba.weight")], hidden, dims)?
            }
        };
        Ok(Self {
            index,
            layer,
            spec,
            eps,
            qkv,
            z,
            a,
            b,
            out: l.matrix(&name("out_proj.weight"), hidden, value)?,
            conv: small("conv1d.weight", &[channels, 1, dims.conv_kernel], spec.channels, spec.kernel)?,
            a_log: small("A_log", &[dims.v_heads], 1, heads)?,
            dt_bias: small("dt_bias", &[dims.v_heads], 1, heads)?,
            norm: small("norm.weight", &[dims.v_dim], 1, spec.recurrence.value)?,
        })
    }
}

impl Mixer for GatedDeltaNet {
    /// Probes see `layer<i>.gdn.{qkv,gates,o}`: q, k, v after the convolution and before the l2 norm, g and beta, and the
    /// output before the gated norm.
    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        out: Out<'_>,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, tables) = (pass.caps, pass.tables);
        let work = linear::work(pass)?;
        let rows = |t: &Tensor| t.first(pass.shape.rows);
        let [qkv, conv, z, a, b, gates, o, y] =
            [&work.qkv, &work.conv, &work.z, &work.a, &work.b, &work.gates, &work.o, &work.y].map(rows);
        for (weight, out) in [(&self.qkv, &qkv), (&self.z, &z), (&self.a, &a), (&self.b, &b)] {
            Linear { rows: (tables, ROWS), x, weight, out, accumulate: false }.record(recorder, caps)?;
        }
        linear::convolve(recorder, pass, &self.spec, self.index, (&self.conv, false))?;
        probe.tap(recorder, &format!("layer{}.gdn.qkv", self.layer), &conv)?;
        let (heads, key) = (self.spec.recurrence.heads, self.spec.recurrence.key);
        L2Norm { tables, x: &conv, heads, key, eps: L2_EPS }.record(recorder, caps)?;
        GdnGate { tables, a: &a, b: &b, a_log: &self.a_log, dt_bias: &self.dt_bias, out: &gates }
            .record(recorder, caps)?;
        probe.tap(recorder, &format!("layer{}.gdn.gates", self.layer), &gates)?;
        linear::walk(recorder, pass, &self.spec, self.index, &gates)?;
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
        let rows = (tables, ROWS);
        Linear { rows, x: &y, weight: &self.out, out: out.to, accumulate: out.add }.record(recorder, caps)?;
        Ok(())
    }
}
