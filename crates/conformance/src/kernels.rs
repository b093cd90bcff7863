//! Kernel goldens (`<family>.safetensors`, `ops.safetensors`) against a device, through the operations.
//!
//! A check's error and bound are those of the worst group of its tensor (a head of a state, a row of outputs, a value of
//! a gate): the Euclidean norm of the group's difference, and what it may be.

mod delta_rule;
mod golden;
mod measure;
mod ops;

use std::path::Path;
use std::sync::Arc;

use seam_device::Device;

use crate::report::Report;
use golden::Golden;

pub use golden::GoldenError;

/// Why a golden is skipped: its family comes later.
const NO_KERNEL: &str = "no kernel for this family yet";

/// Families that have goldens but no kernel.
const LATER: &[&str] =
    &["gla", "kda", "lightning", "linear_attn", "mamba2_ssd", "retention", "rope_shift", "simple_gla"];

/// Compares the results in the file at `path` with what `device` computes from the inputs beside them.
///
/// `gated_delta_rule` (and `delta_rule`, its case of g = 0): outputs, end states and operators of every case, run in one
/// pass, cut into two, and from the golden operator applied. `ops`: norms, gates, convolutions, rotations, routers, and
/// decays that the host computes, none skipped. Everything else is listed as skipped; a report without a comparison has not
/// passed.
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
        Some("gated_delta_rule") => delta_rule::check(device, &golden, true, &mut report)?,
        Some("delta_rule") => delta_rule::check(device, &golden, false, &mut report)?,
        Some(family) if LATER.contains(&family) => {
            report.skipped.extend(golden.cases.keys().map(|case| (case.clone(), NO_KERNEL.to_owned())));
        }
        Some(family) => return Err(golden.not_understood(format!("the family {family} is not known"))),
        None => return Err(golden.not_understood("its metadata names neither a family nor operations")),
    }
    Ok(report)
}
