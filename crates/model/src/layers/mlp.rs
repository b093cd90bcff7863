//! The SwiGLU MLP: `down(silu(gate x)·up x)`.

use seam_device::Recorder;
use seam_kernels::tables::ROWS;
use seam_ops::{Blend, Linear, Operation, SwiGlu, Tensor, Weight};

use super::{Mixer, Out, PassContext, missing};
use crate::error::ModelError;
use crate::loader::{Loader, Rows};
use crate::probe::Probe;

/// A gated MLP without biases.
#[derive(Debug)]
pub struct SwiGluMlp {
    gate: Weight,
    up: Weight,
    down: Weight,
    /// What the gate's input to silu, and the result, are multiplied by (muP); 1 elsewhere.
    scales: (f32, f32),
}

impl SwiGluMlp {
    /// Loads `<prefix>.{gate,up,down}_proj.weight`.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(l: &Loader<'_>, prefix: &str, hidden: usize, intermediate: usize) -> Result<Self, ModelError> {
        let name = |part: &str| format!("{prefix}.{part}_proj.weight");
        Ok(Self {
            gate: l.matrix(&name("gate"), intermediate, hidden)?,
            up: l.matrix(&name("up"), intermediate, hidden)?,
            down: l.matrix(&name("down"), hidden, intermediate)?,
            scales: (1.0, 1.0),
        })
    }

    /// Loads one whose gate and up are one matrix `[2·intermediate, hidden]`, the gate's rows first.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load_fused(
        l: &Loader<'_>,
        (both, down): (&str, &str),
        hidden: usize,
        intermediate: usize,
    ) -> Result<Self, ModelError> {
        let rows = |range| Rows { name: both, n: 2 * intermediate, range };
        Ok(Self {
            gate: l.rows(&[rows(0..intermediate)], hidden)?,
            up: l.rows(&[rows(intermediate..2 * intermediate)], hidden)?,
            down: l.matrix(down, hidden, intermediate)?,
            scales: (1.0, 1.0),
        })
    }

    /// The same with these factors of the gate before silu, and of the result.
    #[must_use]
    pub fn scaled(mut self, gate: f32, down: f32) -> Self {
        self.scales = (gate, down);
        self
    }
}

impl Mixer for SwiGluMlp {
    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        out: Out<'_>,
        _: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (rows, caps) = ((pass.tables, ROWS), pass.caps);
        let Some(work) = &pass.work.mlp else { return Err(missing("MLP").into()) };
        // A stack may have MLPs of several widths: each uses the start of the memory as rows of its own width.
        let [gate, up] = [&work.gate, &work.up].map(|t| t.reshape(pass.shape.rows.min(t.rows()), self.gate.n()));
        let (gate, up) = (gate?, up?);
        for (weight, out) in [(&self.gate, &gate), (&self.up, &up)] {
            Linear { rows, x, weight, out, accumulate: false }.record(recorder, caps)?;
        }
        let (before, after) = self.scales;
        for (y, b) in [(&gate, before), (&up, after)] {
            if b != 1.0 {
                // The result is linear in up, so its factor can be applied there.
                Blend { rows, x: None, y, a: 0.0, b, silu: false }.record(recorder, caps)?;
            }
        }
        SwiGlu { tables: pass.tables, up: &up, x: &gate }.record(recorder, caps)?;
        Linear { rows, x: &gate, weight: &self.down, out: out.to, accumulate: out.add }.record(recorder, caps)?;
        Ok(())
    }
}
