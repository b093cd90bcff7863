//! What is at a path, and the check for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seam_device::Device;
use seam_engine::EngineOptions;

use crate::kernels::{self, GoldenError};
use crate::model;
use crate::report::Report;

/// Checks whatever lies at `path`: a model folder (`config.json` and `golden.safetensors`), a file of kernel goldens, or
/// a folder of such files, whose reports come in the order of their names. `options` are those of the model's engine.
///
/// # Errors
/// [`GoldenError::NotAGolden`] if it is none of these; otherwise as [`model::check`] and [`kernels::check`].
pub fn check_path(device: &Arc<dyn Device>, path: &Path, options: &EngineOptions) -> Result<Vec<Report>, GoldenError> {
    let not = |what: String| GoldenError::NotAGolden { path: path.to_owned(), what };
    let there = std::fs::metadata(path).map_err(|error| not(error.to_string()))?;
    let is_golden = |path: &Path| path.extension().is_some_and(|e| e == "safetensors");
    if !there.is_dir() {
        if !is_golden(path) {
            return Err(not("a file of kernel goldens is a .safetensors file".to_owned()));
        }
        return Ok(vec![kernels::check(device, path)?]);
    }
    if path.join("config.json").exists() {
        if !path.join("golden.safetensors").exists() {
            return Err(not("the model has no golden.safetensors beside its config.json".to_owned()));
        }
        return Ok(vec![model::check(device, path, options)?]);
    }
    let entries = std::fs::read_dir(path).map_err(|error| not(error.to_string()))?;
    let files: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|e| e.path())).collect();
    let mut files = files.map_err(|error| not(error.to_string()))?;
    files.retain(|file| is_golden(file));
    files.sort();
    if files.is_empty() {
        return Err(not("it has neither a config.json nor .safetensors files".to_owned()));
    }
    files.iter().map(|file| kernels::check(device, file)).collect()
}
