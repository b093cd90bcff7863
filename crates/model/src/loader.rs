//! Moving checked host tensors to a device.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use seam_device::{DType, Device, HostBytes};
use seam_ops::{Tensor, Weight};

use crate::error::{ModelError, narrow};
use crate::weights::{HostTensor, IGNORED_PREFIXES, WeightNames, Weights, check_finite};

/// Some rows of a stored matrix.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// Its tensor, `[n, k]`.
    pub name: &'a str,
    /// Its rows in all.
    pub n: usize,
    /// Those that are taken, in order.
    pub range: Range<usize>,
}

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
        self.rows(&[Rows { name, n, range: 0..n }], k)
    }

    /// A matrix of `k` columns whose rows are those of the pieces, one after the other: a slice of a fused projection, or
    /// several projections as one. Pieces of unlike dtypes become f32, others as [`Loader::matrix`]. One piece is used where
    /// it lies, several are copied together.
    ///
    /// # Errors
    /// As [`Loader::matrix`]; [`ModelError::Rows`] for rows that a tensor does not have.
    pub fn rows(&self, pieces: &[Rows<'_>], k: usize) -> Result<Weight, ModelError> {
        let mut tensors: Vec<HostTensor> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            // A tensor may be cut into many pieces: it is looked through once.
            let known = tensors.iter().find(|t| t.name == piece.name && t.shape == [piece.n, k]).cloned();
            tensors.push(match known {
                Some(tensor) => tensor,
                None => self.take(piece.name, &[piece.n, k])?,
            });
        }
        let stored = tensors.first().map_or(DType::F32, |t| t.dtype);
        let kept = matches!(stored, DType::BF16 | DType::F32) && tensors.iter().all(|t| t.dtype == stored);
        let dtype = if kept { stored } else { DType::F32 };
        let mut parts = Vec::with_capacity(pieces.len());
        for (piece, tensor) in pieces.iter().zip(&tensors) {
            let row = k * tensor.dtype.size();
            let bytes = tensor.bytes.slice(piece.range.start * row..piece.range.end * row);
            let bytes = bytes.filter(|_| !piece.range.is_empty()).ok_or_else(|| ModelError::Rows {
                tensor: piece.name.to_owned(),
                rows: piece.range.clone(),
                n: piece.n,
            })?;
            let part = HostTensor { bytes, shape: vec![piece.range.len(), k], ..tensor.clone() };
            parts.push(if kept {
                part.bytes
            } else {
                HostBytes::from_vec(bytemuck::cast_slice(&part.to_f32()?).to_vec())
            });
        }
        let rows = pieces.iter().map(|p| p.range.len()).sum();
        let bytes = match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => {
                let all: Vec<&[u8]> = parts.iter().chain(&last).map(HostBytes::as_slice).collect();
                HostBytes::from_vec(all.concat())
            }
        };
        let name = pieces.iter().map(|p| p.name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" + ");
        let (n, k) = (narrow("rows of a weight", rows)?, narrow("columns of a weight", k)?);
        Ok(Weight::load(self.device, &name, dtype, n, k, &bytes)?)
    }

    /// The values of a small tensor of `shape`, widened to f32.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        Ok(self.take(name, shape)?.to_f32()?)
    }

    /// Values made on the host, as a `[rows, cols]` matrix.
    ///
    /// # Errors
    /// What the device says.
    pub fn constant(&self, name: &str, rows: u32, cols: u32, values: &[f32]) -> Result<Tensor, ModelError> {
        Ok(Tensor::constant(self.device, name, rows, cols, values)?)
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
        self.constant(name, rows, cols, &self.values(name, shape)?)
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
