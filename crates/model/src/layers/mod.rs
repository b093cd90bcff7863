//! Layers: each loads its weights and records its part of a pass.

mod attention;
mod gdn;
mod mlp;
mod moe;

pub use attention::GatedAttention;
pub use gdn::GatedDeltaNet;
pub use mlp::SwiGluMlp;
pub use moe::{ExpertPlan, ExpertWork, MlpNames, Moe, MoeNames, SharedWork};

use seam_device::{BufferRange, Caps};
use seam_ops::PassShape;

use crate::memory::Memory;
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
