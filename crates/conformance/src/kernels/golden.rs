//! A file of kernel goldens: groups of tensors `<case>/<name>`, with notes in its metadata.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seam_device::DeviceError;
use seam_model::weights::{Weights, WeightsError};
use seam_ops::OpError;

use crate::model::CheckError;

/// Why a golden file or folder cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// The file, the device or the engine, or a tensor that no check knows.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// It is nothing that can be checked.
    #[error("{} cannot be checked: {what}", path.display())]
    NotAGolden {
        /// The file or folder.
        path: PathBuf,
        /// What is missing or not understood.
        what: String,
    },
}

impl From<WeightsError> for GoldenError {
    fn from(error: WeightsError) -> Self {
        Self::Check(error.into())
    }
}

impl From<OpError> for GoldenError {
    fn from(error: OpError) -> Self {
        Self::Check(error.into())
    }
}

impl From<DeviceError> for GoldenError {
    fn from(error: DeviceError) -> Self {
        Self::Check(OpError::from(error).into())
    }
}

/// An opened file.
pub(super) struct Golden {
    weights: Weights,
    path: PathBuf,
    /// Tensor names of each case.
    pub(super) cases: BTreeMap<String, Vec<String>>,
}

impl Golden {
    pub(super) fn open(path: &Path) -> Result<Self, GoldenError> {
        let weights = Weights::open_file(path)?;
        let mut cases: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in weights.names() {
            let Some((case, tensor)) = name.split_once('/') else {
                return Err(CheckError::Unknown(name.to_owned()).into());
            };
            cases.entry(case.to_owned()).or_default().push(tensor.to_owned());
        }
        Ok(Self { weights, path: path.to_owned(), cases })
    }

    /// A value of the metadata.
    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        self.weights.files().first().and_then(|file| file.metadata(key))
    }

    /// A field of a JSON object in the metadata.
    pub(super) fn field(&self, key: &str, field: &str) -> Option<serde_json::Value> {
        serde_json::from_str::<serde_json::Value>(self.metadata(key)?).ok()?.get(field).cloned()
    }

    pub(super) fn not_understood(&self, what: impl Into<String>) -> GoldenError {
        GoldenError::NotAGolden { path: self.path.clone(), what: what.into() }
    }

    /// Fails if the case has a tensor that is not in `known`: it would otherwise pass unseen.
    pub(super) fn only(&self, case: &str, known: &[&str]) -> Result<(), GoldenError> {
        let tensors = self.cases.get(case).map(Vec::as_slice).unwrap_or_default();
        match tensors.iter().find(|t| !known.contains(&t.as_str())) {
            Some(tensor) => Err(CheckError::Unknown(format!("{case}/{tensor}")).into()),
            None => Ok(()),
        }
    }

    /// The shape of a tensor, which must have `N` dimensions, none of them 0.
    pub(super) fn shape<const N: usize>(&self, case: &str, tensor: &str) -> Result<[usize; N], GoldenError> {
        let found = self.weights.get(&format!("{case}/{tensor}"))?.shape;
        match <[usize; N]>::try_from(found.as_slice()) {
            Ok(shape) if !shape.contains(&0) => Ok(shape),
            _ => Err(self.not_understood(format!("{case}/{tensor} has the shape {found:?}"))),
        }
    }

    /// A tensor of floats, which must have this shape.
    pub(super) fn floats(&self, case: &str, tensor: &str, shape: &[usize]) -> Result<Vec<f64>, GoldenError> {
        Ok(self.weights.expect(&format!("{case}/{tensor}"), shape)?.to_f64()?)
    }

    /// A tensor of floats as f32, which must have this shape.
    pub(super) fn singles(&self, case: &str, tensor: &str, shape: &[usize]) -> Result<Vec<f32>, GoldenError> {
        Ok(self.weights.expect(&format!("{case}/{tensor}"), shape)?.to_f32()?)
    }

    /// Whole numbers from 0 up (positions, indices), which must have this shape.
    pub(super) fn whole(&self, case: &str, tensor: &str, shape: &[usize]) -> Result<Vec<u32>, GoldenError> {
        let ids = self.weights.expect(&format!("{case}/{tensor}"), shape)?.to_i64()?;
        let narrow =
            |id: i64| u32::try_from(id).map_err(|_| self.not_understood(format!("{case}/{tensor} has the value {id}")));
        ids.into_iter().map(narrow).collect()
    }
}
