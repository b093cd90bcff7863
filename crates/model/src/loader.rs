//! Moving checked host tensors to a device.

use std::collections::BTreeSet;
use std::sync::Mutex;

use seam_device::{DType, Device, HostBytes};
use seam_ops::{Tensor, Weight};

use crate::error::{ModelError, narrow};
use crate::weights::{HostTensor, IGNORED_PREFIXES, WeightNames, Weights, check_finite};

/// Loads the tensors of one model and remembers which were used.
pub struct Loader<'a> {
    pub(crate) device: &'a dyn Device,
    weights: &'a Weights,
    names: WeightNames,
    used: Mutex<BTreeSet<String>>,
}

impl<'a> Loader<'a> {
    /// A loader that found the naming scheme of `weights`.
    ///
    /// # Errors
    /// [`ModelError::Weights`] if no embedding, or more than one, is there.
    pub fn new(device: &'a dyn Device, weights: &'a Weights) -> Result<Self, ModelError> {
        let names = WeightNames::detect(weights)?;
        Ok(Self { device, weights, names, used: Mutex::default() })
    }

    /// The naming scheme.
    #[must_use]
    pub fn names(&self) -> &WeightNames {
        &self.names
    }

    pub(crate) fn take(&self, name: &str, shape: &[usize]) -> Result<HostTensor, ModelError> {
        let tensor = self.weights.expect(name, shape)?;
        check_finite(&tensor)?;
        self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(name.to_owned());
        Ok(tensor)
    }

    /// A matrix `[n, k]` for products and look-ups: bf16 and f32 as stored, other floats widened to f32.
    ///
    /// # Errors
    /// A missing, misshapen or non-finite tensor, or what the device says.
    pub fn matrix(&self, name: &str, n: usize, k: usize) -> Result<Weight, ModelError> {
        let tensor = self.take(name, &[n, k])?;
        let (dtype, bytes) = match tensor.dtype {
            DType::BF16 | DType::F32 => (tensor.dtype, tensor.bytes),
            _ => (DType::F32, HostBytes::from_vec(bytemuck::cast_slice(&tensor.to_f32()?).to_vec())),
        };
        let (n, k) = (narrow("rows of a weight", n)?, narrow("columns of a weight", k)?);
        Ok(Weight::load(self.device, name, dtype, n, k, &bytes)?)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.weights.contains(name)
    }

    /// A small tensor of `shape`, widened to f32, as a `[rows, cols]` matrix with `rows·cols` elements.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn small(&self, name: &str, shape: &[usize], rows: u32, cols: u32) -> Result<Tensor, ModelError> {
        let values = self.take(name, shape)?.to_f32()?;
        Ok(Tensor::constant(self.device, name, rows, cols, &values)?)
    }

    /// Ends loading: every tensor must be part of the architecture, or one of the known extras of its releases.
    ///
    /// # Errors
    /// [`ModelError::Unused`].
    pub fn finish(self) -> Result<(), ModelError> {
        let used = self.used.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let unused = self.weights.unused(&used, IGNORED_PREFIXES);
        match unused.first() {
            Some(first) => Err(ModelError::Unused { count: unused.len(), first: first.clone() }),
            None => Ok(()),
        }
    }
}
