//! Errors of operations.

use seam_device::DeviceError;

use crate::checked::Finding;

/// Why an operation cannot be recorded, or memory for it cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// Tensors whose shapes do not fit each other.
    #[error("{op}: {what}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What does not fit, with the sizes.
        what: String,
    },
    /// The device has no kernel for this operation or size. There is never a silent fallback.
    #[error("{op} is not supported by {device}: {what}")]
    Unsupported {
        /// The operation.
        op: &'static str,
        /// The device.
        device: String,
        /// What is missing.
        what: String,
    },
    /// A pass in checked mode computed a value that must not be.
    #[error(transparent)]
    Value(#[from] Finding),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl OpError {
    pub(crate) fn shape(op: &'static str, what: impl Into<String>) -> Self {
        Self::Shape { op, what: what.into() }
    }
}

/// Fails with a shape error unless `ok`.
pub(crate) fn ensure(op: &'static str, ok: bool, what: impl FnOnce() -> String) -> Result<(), OpError> {
    if ok { Ok(()) } else { Err(OpError::shape(op, what())) }
}
