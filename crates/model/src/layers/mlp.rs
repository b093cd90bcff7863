//! The SwiGLU MLP: `h += down(silu(gate x)·up x)`.

use seam_device::Recorder;
use seam_kernels::tables::ROWS;
use seam_ops::{Linear, Operation, SwiGlu, Tensor, Weight};

use super::PassContext;
use crate::error::ModelError;
use crate::loader::Loader;

/// A gated MLP without biases.
#[derive(Debug)]
pub struct SwiGluMlp {
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl SwiGluMlp {
    /// Loads `mlp.{gate,up,down}_proj.weight` of a layer.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(l: &Loader<'_>, layer: usize, hidden: usize, intermediate: usize) -> Result<Self, ModelError> {
        let name = |part: &str| l.names().layer(layer, &format!("mlp.{part}_proj.weight"));
        Ok(Self {
            gate: l.matrix(&name("gate"), intermediate, hidden)?,
            up: l.matrix(&name("up"), intermediate, hidden)?,
            down: l.matrix(&name("down"), hidden, intermediate)?,
        })
    }

    /// Records it: reads the normalised `x`, adds into `h`.
    ///
    /// # Errors
    /// As the operations.
    pub fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        h: &Tensor,
    ) -> Result<(), ModelError> {
        let rows = (pass.tables, ROWS);
        let (gate, up) = (pass.work.gate.first(pass.shape.rows), pass.work.up.first(pass.shape.rows));
        for (weight, out) in [(&self.gate, &gate), (&self.up, &up)] {
            Linear { rows, x, weight, out, accumulate: false }.record(recorder, pass.caps)?;
        }
        SwiGlu { tables: pass.tables, up: &up, x: &gate }.record(recorder, pass.caps)?;
        Linear { rows, x: &gate, weight: &self.down, out: h, accumulate: true }.record(recorder, pass.caps)?;
        Ok(())
    }
}
