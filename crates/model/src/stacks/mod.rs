//! Stacks: an architecture as a list of layers.

mod qwen3_5;
mod stack;

use seam_device::{Device, Recorder};

use crate::config::{Family, ModelConfig};
use crate::error::ModelError;
use crate::layers::PassContext;
use crate::probe::Probe;
use crate::spec::StackSpec;
use crate::weights::Weights;

/// A model on a device, as the engine sees it.
pub trait Stack: Send + Sync {
    /// Its sizes.
    fn spec(&self) -> &StackSpec;

    /// Records one pass from token ids to logits. Probes see `embed`, `layer<i>` (the residual stream after a layer)
    /// and what the layers name.
    ///
    /// # Errors
    /// An operation that the device lacks or that does not fit.
    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError>;
}

/// Loads the stack that `config` describes.
///
/// # Errors
/// A missing, misshapen, non-finite or foreign tensor, or what the device says.
pub fn load(device: &dyn Device, config: &ModelConfig, weights: &Weights) -> Result<Box<dyn Stack>, ModelError> {
    match &config.family {
        Family::Qwen35(family) => qwen3_5::load(device, config, family, weights),
    }
}
