//! Errors of loading and recording a model.

use seam_ops::OpError;

use crate::config::ConfigError;
use crate::text::TextError;
use crate::weights::WeightsError;

/// Why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weight files.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The tokenizer.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An operation or the device.
    #[error(transparent)]
    Op(#[from] OpError),
    /// A size that the engine's 32-bit tables cannot hold.
    #[error("{what} is {value}, more than 32 bits hold")]
    Size {
        /// What it is.
        what: &'static str,
        /// The value.
        value: usize,
    },
    /// Rows that a tensor does not have.
    #[error("rows {} to {} of {tensor}, which has {n}", rows.start, rows.end)]
    Rows {
        /// The tensor.
        tensor: String,
        /// The rows.
        rows: std::ops::Range<usize>,
        /// Its rows in all.
        n: usize,
    },
    /// A folder with tensors that the stack does not know: most likely another model.
    #[error("{count} tensors are not part of this architecture, the first is {first}")]
    Unused {
        /// How many.
        count: usize,
        /// The first by name.
        first: String,
    },
}

impl From<seam_device::DeviceError> for ModelError {
    fn from(error: seam_device::DeviceError) -> Self {
        Self::Op(error.into())
    }
}

/// Narrows a size to the tables' 32 bits.
pub(crate) fn narrow(what: &'static str, value: usize) -> Result<u32, ModelError> {
    u32::try_from(value).map_err(|_| ModelError::Size { what, value })
}
