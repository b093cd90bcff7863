//! Errors of benches.

use seam_algebra::AlgebraError;
use seam_device::DeviceError;
use seam_engine::EngineError;
use seam_ops::OpError;

/// Why a bench could not be prepared, run or verified. A wrong result is no error but a failed check.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An operation.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The oracle.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
    /// A family that the kernels of a device do not run.
    #[error(transparent)]
    Subject(#[from] seam_algebra::laws::SubjectError),
    /// A request did other work than the bench is named for.
    #[error("{bench}: {what}")]
    OtherWork {
        /// The bench.
        bench: &'static str,
        /// What it did.
        what: String,
    },
    /// No bench of this name.
    #[error("no bench is called {0}")]
    Unknown(&'static str),
}
