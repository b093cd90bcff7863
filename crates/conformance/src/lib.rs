//! Checks of devices and models: goldens of reference implementations, and the laws of the state algebra.
//!
//! The command line and the tests share this code, so that both say the same. [`tolerance`] holds every tolerance with
//! its reason.

#![forbid(unsafe_code)]

pub mod attention;
mod chains;
pub mod kernels;
pub mod laws;
mod lower;
mod machine;
pub mod model;
mod path;
pub mod programs;
pub mod report;
pub mod tolerance;

/// Families of the algebra on the kernels of a device.
pub mod recurrence {
    pub use crate::chains::{Arrays, Rows, Slot, Stored};
    pub use crate::lower::{Lowering, runs};
    pub use crate::machine::{Launch, Machine, Method};
}

pub use kernels::GoldenError;
pub use machine::Method;
pub use path::check_path;
pub use report::{Check, Report};
