//! A tensor on the host.

use half::{bf16, f16};
use seam_device::{DType, HostBytes, e4m3};

use super::error::WeightsError;

/// A named tensor whose bytes are a slice of a mapped file: row-major, little-endian, of any alignment.
#[derive(Clone, Debug)]
pub struct HostTensor {
    /// The name in the file.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, slowest first; empty for a scalar.
    pub shape: Vec<usize>,
    /// `elements() · dtype.size()` bytes.
    pub bytes: HostBytes,
}

impl HostTensor {
    /// Number of elements; 1 for a scalar.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// A copy as f32: exact from f32, f16, bf16 and FP8 (without its scales), rounded to nearest from f64.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`] for whole numbers.
    pub fn to_f32(&self) -> Result<Vec<f32>, WeightsError> {
        Ok(match self.dtype {
            DType::F64 => self.values(f64::from_le_bytes).map(|v| v as f32).collect(),
            DType::F32 => self.values(f32::from_le_bytes).collect(),
            DType::F16 => self.values(f16::from_le_bytes).map(f16::to_f32).collect(),
            DType::BF16 => self.values(bf16::from_le_bytes).map(bf16::to_f32).collect(),
            DType::F8E4M3 => self.values(|[byte]: [u8; 1]| e4m3(byte)).collect(),
            DType::U32 | DType::I64 | DType::U8 => return Err(self.wrong("a float type")),
        })
    }

    /// A copy as f64, exact from every float type.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`] for whole numbers.
    pub fn to_f64(&self) -> Result<Vec<f64>, WeightsError> {
        match self.dtype {
            DType::F64 => Ok(self.values(f64::from_le_bytes).collect()),
            _ => Ok(self.to_f32()?.into_iter().map(f64::from).collect()),
        }
    }

    /// A copy of signed 64-bit numbers.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`] for any other type.
    pub fn to_i64(&self) -> Result<Vec<i64>, WeightsError> {
        match self.dtype {
            DType::I64 => Ok(self.values(i64::from_le_bytes).collect()),
            _ => Err(self.wrong("i64")),
        }
    }

    /// The elements, read from `N` bytes each; the bytes need no alignment.
    pub(super) fn values<const N: usize, T>(&self, read: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
        let (chunks, _) = self.bytes.as_slice().as_chunks::<N>();
        chunks.iter().map(move |c| read(*c))
    }

    fn wrong(&self, wanted: &'static str) -> WeightsError {
        WeightsError::Dtype { tensor: self.name.clone(), found: self.dtype, wanted }
    }
}
