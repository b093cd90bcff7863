//! Kernel goldens (`<family>.safetensors`, `ops.safetensors`) against a device, through the operations.
//!
//! A check's error and bound are those of the worst group of its tensor (a head of a state, a row of outputs, a value of
//! a gate): the Euclidean norm of the group's difference, and what it may be.

mod golden;
pub(crate) mod measure;
mod ops;
mod recurrence;
mod rope_shift;

use std::path::Path;
use std::sync::Arc;

use seam_device::Device;

use crate::report::Report;
use golden::Golden;

pub use golden::GoldenError;

/// Compares the results in the file at `path` with what `device` computes from the inputs beside them.
///
/// A family of recurrences: outputs, end states and operators of every case, by every method, run in one pass, cut into
/// two, and from the golden operator applied. `rope_shift`: states of keys rotated at a position, computed there and moved
/// there. `ops`: norms, gates, convolutions, rotations, routers, and
/// decays that the host computes. A report without a comparison has not passed.
///
/// # Errors
/// [`GoldenError`] if the file is damaged, of an unknown family, or holds a tensor that no check knows, and what the
/// device says. A difference is in the report, not an error.
pub fn check(device: &Arc<dyn Device>, path: &Path) -> Result<Report, GoldenError> {
    let golden = Golden::open(path)?;
    let mut report = Report {
        fixture: path.file_stem().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned()),
        device: format!("{} ({})", device.caps().kind, device.caps().name),
        checks: Vec::new(),
        skipped: Vec::new(),
    };
    if golden.cases.is_empty() {
        return Err(golden.not_understood("it has no tensors"));
    }
    if golden.metadata("ops").is_some() {
        ops::check(device, &golden, &mut report)?;
        return Ok(report);
    }
    let family = golden.field("spec", "name");
    match family.as_ref().and_then(serde_json::Value::as_str) {
        Some("rope_shift") => rope_shift::check(device, &golden, &mut report)?,
        Some(family) => recurrence::check(device, &golden, family, &mut report)?,
        None => return Err(golden.not_understood("its metadata names neither a family nor operations")),
    }
    Ok(report)
}
