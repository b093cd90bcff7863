//! One mapped safetensors file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::Dtype;
use seam_device::{DType, HostBytes};

use super::error::WeightsError;
use super::header::{Entry, Header};
use super::tensor::HostTensor;

/// A mapped safetensors file with a verified header. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    bytes: HostBytes,
    header: Arc<Header>,
}

impl SafetensorsFile {
    /// Maps the file and verifies its header. The data is not read.
    ///
    /// # Errors
    /// [`WeightsError::Read`] if it cannot be mapped; [`WeightsError::Header`], [`WeightsError::Entry`] or
    /// [`WeightsError::Refused`] if its header is damaged.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let bytes = map(path).map_err(|source| WeightsError::Read { path: path.to_owned(), source })?;
        let header = Arc::new(Header::parse(bytes.as_slice(), path)?);
        Ok(Self { path: path.to_owned(), bytes, header })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tensor names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.entries.keys().map(String::as_str)
    }

    /// A value of the file's free-form `__metadata__`.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata.get(key).map(String::as_str)
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether the file holds no tensor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.entries.is_empty()
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.bytes.len().saturating_sub(self.header.data_start) as u64
    }

    /// The tensor `name`, a slice of the mapping.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], or [`WeightsError::UnsupportedDtype`] for an element type that Seam has not.
    pub fn get(&self, name: &str) -> Result<HostTensor, WeightsError> {
        let missing = || WeightsError::MissingTensor { tensor: name.into(), origin: self.path.clone() };
        let entry = self.header.entries.get(name).ok_or_else(missing)?;
        let Some(dtype) = supported(entry.dtype) else {
            return Err(WeightsError::UnsupportedDtype {
                tensor: name.into(),
                file: self.path.clone(),
                dtype: entry.dtype.to_string(),
            });
        };
        let bytes = self.slice(entry).ok_or_else(missing)?;
        Ok(HostTensor { name: name.into(), dtype, shape: entry.shape.clone(), bytes })
    }

    /// The length field and the JSON, as they are in the file.
    pub(super) fn header_bytes(&self) -> &[u8] {
        self.bytes.as_slice().get(..self.header.data_start).unwrap_or_default()
    }

    /// The bytes of every tensor, whatever its dtype, in the order of names.
    pub(super) fn raw_tensors(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let bytes = self.bytes.as_slice();
        self.header.entries.iter().map(|(name, e)| (name.as_str(), bytes.get(e.start..e.end).unwrap_or_default()))
    }

    fn slice(&self, entry: &Entry) -> Option<HostBytes> {
        self.bytes.slice(entry.start..entry.end)
    }
}

fn map(path: &Path) -> std::io::Result<HostBytes> {
    let file = File::open(path)?;
    // Mapping a folder or a pipe fails in ways that differ by system.
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // SAFETY: the mapping is read-only and private to this process's view; every access is bounds-checked against the
    // mapped length. What remains is that another process truncates or rewrites the file while it is mapped, which no
    // reader can exclude: checkpoints are replaced by renaming, and a copy would double the memory of large models.
    #[allow(unsafe_code)]
    let map = unsafe { Mmap::map(&file)? };
    Ok(HostBytes::new(Arc::new(map)))
}

/// The element types that have a name on the device side.
fn supported(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::U32 => DType::U32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        _ => return None,
    })
}
