//! Models: configurations, weight files, tokenizers, and the stacks that record a pass.
//!
//! What a checkpoint folder holds is checked before anything reaches a device:
//!
//! * [`config`]: `config.json` and `generation_config.json`, as checked sizes;
//! * [`weights`]: safetensors files, memory-mapped, with every header verified, and the model fingerprint;
//! * [`text`]: the tokenizer, incremental decoding, and the cutting of a prompt into segments;
//! * [`layers`] and [`stacks`]: an architecture as a list of layers, each recording operations.
//!
//! No device crate is named here: a stack is recorded through [`seam_device::Recorder`].

pub mod config;
mod error;
mod experts;
mod fp8;
pub mod layers;
mod loader;
mod memory;
mod probe;
mod spec;
pub mod stacks;
pub mod text;
pub mod weights;
mod workspace;

pub use error::ModelError;
pub use loader::{Loader, Rows};
pub use memory::Memory;
pub use probe::{Capture, NoProbe, Probe};
pub use spec::{KvSpec, LayerState, LinearSpec, Rotary, StackSpec, WorkPlan};
pub use stacks::{Stack, load};
pub use workspace::{AttentionWork, LinearWork, MlpWork, Workspace};

#[cfg(test)]
mod testing;
