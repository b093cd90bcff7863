//! Layers: each loads its weights and records its part of a pass.

mod attention;
mod gdn;
mod linear;
mod mlp;
mod moe;
mod norm;

pub use attention::{Attention, AttentionDims, HeadNorms};
pub use gdn::GatedDeltaNet;
pub use mlp::SwiGluMlp;
pub use moe::{ExpertPlan, ExpertWork, MlpNames, Moe, MoeNames, SharedWork};
pub use norm::Norm;

use seam_device::{BufferRange, Caps, Recorder};
use seam_ops::{OpError, PassShape, Tensor};

use crate::error::ModelError;
use crate::memory::Memory;
use crate::probe::Probe;
use crate::workspace::Workspace;

/// What a layer needs to record itself.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// Capabilities of the device.
    pub caps: &'a Caps,
    /// The tables' memory: their upper bound in words.
    pub tables: &'a BufferRange,
    /// What the pass's list depends on.
    pub shape: &'a PassShape,
    /// Slabs.
    pub memory: &'a Memory,
    /// Activations.
    pub work: &'a Workspace,
    /// Whether the device chooses the token of each row that wants logits, as the workspace's choices say; the host then
    /// reads tokens and not logits.
    pub choose: bool,
}

/// Where the result of a mixer goes.
#[derive(Clone, Copy, Debug)]
pub struct Out<'a> {
    /// `[rows, hidden]`.
    pub to: &'a Tensor,
    /// Whether it is added to what is there, as to a residual stream.
    pub add: bool,
}

/// What stands between two states of the residual stream: a recurrence, attention, an MLP, experts.
pub trait Mixer: Send + Sync {
    /// Records it: reads `x` `[rows, hidden]`, writes `out`.
    ///
    /// # Errors
    /// As the operations.
    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        out: Out<'_>,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError>;
}

/// The workspace was made for another stack.
pub(crate) fn missing(kind: &'static str) -> OpError {
    OpError::Shape { op: "layer", what: format!("the workspace has no activations of {kind} layers") }
}
