//! The commands, one a file, and what several of them share.

pub(crate) mod ask;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod laws;
mod loaded;

pub(crate) use loaded::{DeviceInfo, Loaded};

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// 0.
    Passed,
    /// 1: the command ran and its report says that something failed.
    Failed,
}

impl From<bool> for Verdict {
    fn from(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}
