//! The outcome of a check.

use serde::Serialize;

use crate::tolerance::Tolerance;

/// One tensor against its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The tensor, as the golden file calls it.
    pub name: String,
    /// Elements compared.
    pub elements: usize,
    /// Largest absolute difference; infinite if shapes differ or a value is not finite.
    pub error: f64,
    /// What it may be.
    pub bound: f64,
    /// Index of the largest difference.
    pub at: usize,
}

impl Check {
    /// Compares values with their reference.
    #[must_use]
    pub fn compare(name: &str, found: &[f32], reference: &[f64], tolerance: Tolerance) -> Self {
        let scale = reference.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let mut check =
            Self { name: name.to_owned(), elements: reference.len(), error: 0.0, bound: tolerance.bound(scale), at: 0 };
        if found.len() != reference.len() || reference.is_empty() {
            check.error = f64::INFINITY;
            return check;
        }
        for (i, (f, r)) in found.iter().zip(reference).enumerate() {
            let error = (f64::from(*f) - r).abs();
            let error = if error.is_nan() { f64::INFINITY } else { error };
            if error > check.error {
                (check.error, check.at) = (error, i);
            }
        }
        check
    }

    /// Compares token ids, which must be equal.
    #[must_use]
    pub fn tokens(name: &str, found: &[u32], reference: &[i64]) -> Self {
        let differs = (0..found.len().max(reference.len()))
            .find(|&i| found.get(i).map(|&t| i64::from(t)) != reference.get(i).copied());
        Self {
            name: name.to_owned(),
            elements: reference.len(),
            error: if differs.is_some() || reference.is_empty() { f64::INFINITY } else { 0.0 },
            bound: 0.0,
            at: differs.unwrap_or_default(),
        }
    }

    /// Whether the tensor is within its bound.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.error <= self.bound
    }
}

/// All checks of one fixture on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The fixture.
    pub fixture: String,
    /// The device.
    pub device: String,
    /// Each tensor.
    pub checks: Vec<Check>,
    /// Golden tensors that the device has nothing for yet, with the reason.
    pub skipped: Vec<(String, String)>,
}

impl Report {
    /// Whether something was compared and all of it is within bounds.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(Check::passed)
    }
}
