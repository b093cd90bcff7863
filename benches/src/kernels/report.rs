//! What a run says, as plain data: every number is finite, in seconds, bytes and operations.

use seam_conformance::Check;
use seam_device::{DeviceKind, Precision};
use serde::Serialize;

use super::roofline::{Achieved, Roofline};
use crate::measure::Spread;
use crate::registry::Scale;

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Right, and timed.
    Timed,
    /// The device has no kernel for it.
    Missing,
    /// It does not fit the device's memory or bindings.
    TooLarge,
    /// A check failed: it was not timed.
    Wrong,
    /// An error of an operation, the device or a reference.
    Failed,
}

/// A check: an error and what it may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckReport {
    /// What was compared with what.
    pub name: String,
    /// The error; `f64::MAX` for one that is not finite.
    pub error: f64,
    /// Its bound.
    pub bound: f64,
    /// Whether the error is within it.
    pub passed: bool,
}

impl CheckReport {
    /// A check of some origin.
    pub(super) fn of(origin: &str, check: &Check) -> Self {
        let finite = |x: f64| if x.is_finite() { x } else { f64::MAX };
        let (error, bound) = (finite(check.error), finite(check.bound));
        Self { name: format!("{origin}: {}", check.name), error, bound, passed: check.passed() }
    }

    /// A condition.
    pub(super) fn condition(name: &str, broken: usize) -> Self {
        Self { name: name.to_owned(), error: broken as f64, bound: 0.0, passed: broken == 0 }
    }

    /// The part of its bound that the error uses; 0 for no error.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.bound }
    }
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    /// `group/variant`.
    pub name: String,
    /// The operation.
    pub group: String,
    /// Its sizes in words.
    pub shape: String,
    /// Kernels of the manifest that it launches.
    pub kernels: Vec<&'static str>,
    /// What became of it.
    pub status: Status,
    /// Why it was not timed; empty if it was.
    pub reason: String,
    /// What it was held against.
    pub checks: Vec<CheckReport>,
    /// Times of one run in seconds, where it was timed.
    pub seconds: Option<Spread>,
    /// Whether the device measured them; otherwise they are the host's.
    pub device_time: bool,
    /// Samples.
    pub samples: usize,
    /// Runs in one timed list.
    pub runs: usize,
    /// Sets of inputs, which runs take in turn.
    pub sets: usize,
    /// Whether all sets together fit a cache of 60 MB, so that bytes may not have come from memory.
    pub cached: bool,
    /// Bytes that one run must move.
    pub bytes: u64,
    /// Operations of one run.
    pub flops: u64,
    /// What that makes.
    pub achieved: Option<Achieved>,
}

impl KernelRow {
    /// The check that uses the largest share of its bound.
    #[must_use]
    pub fn worst(&self) -> Option<&CheckReport> {
        self.checks.iter().max_by(|a, b| a.share().total_cmp(&b.share()))
    }
}

/// The measurement of a ceiling.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// Its sizes in words.
    pub shape: String,
    /// Bytes that one run moves.
    pub bytes: u64,
    /// Operations of one run.
    pub flops: u64,
    /// Times of one run in seconds.
    pub seconds: Spread,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelReport {
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Its name.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// Precision of its products.
    pub precision: Precision,
    /// The scale of all cases.
    pub size: Scale,
    /// Samples asked for.
    pub repeats: usize,
    /// A copy within the device.
    pub copy: Ceiling,
    /// A large product.
    pub product: Ceiling,
    /// The rates of the two.
    pub roofline: Roofline,
    /// Kernels of the manifest that the device has not.
    pub missing_kernels: Vec<&'static str>,
    /// Each case.
    pub kernels: Vec<KernelRow>,
    /// Whether no check failed, and nothing else did.
    pub passed: bool,
}
