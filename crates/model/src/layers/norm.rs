//! The norm before (or after) a mixer or an MLP, and before the output head.

use seam_device::{BufferRange, Caps, Recorder};
use seam_ops::{OpError, Operation, RmsNorm, Tensor};

use crate::error::{ModelError, narrow};
use crate::loader::Loader;

/// A root-mean-square norm over a row.
#[derive(Clone, Debug)]
pub struct Norm {
    weight: Tensor,
    centred: bool,
    eps: f32,
}

impl Norm {
    /// Loads the weights `name`, `[width]`; `centred` if the factor is `1 + w`.
    ///
    /// # Errors
    /// As [`Loader::small`].
    pub fn load(l: &Loader<'_>, name: &str, width: usize, centred: bool, eps: f32) -> Result<Self, ModelError> {
        let weight = l.small(name, &[width], 1, narrow("width of a norm", width)?)?;
        Ok(Self { weight, centred, eps })
    }

    /// Records `out = norm(x)` of `[rows, width]`; `rows` are the tables and the header word with their number.
    ///
    /// # Errors
    /// As the operation.
    pub fn record(
        &self,
        recorder: &mut dyn Recorder,
        caps: &Caps,
        rows: (&BufferRange, usize),
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), OpError> {
        let (weight, centred, eps) = (&self.weight, self.centred, self.eps);
        RmsNorm { rows, x, weight, out, groups: 1, stride: 0, centred, eps }.record(recorder, caps)
    }
}
