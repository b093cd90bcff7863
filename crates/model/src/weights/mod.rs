//! Weight files: one `model.safetensors` or a set of shards, memory-mapped and verified.
//!
//! Opening reads the headers only. Every header is checked in full before any tensor is handed out: lengths, offsets,
//! shapes, duplicate names. A tensor is then a slice of the mapping, without a copy.

mod error;
mod file;
mod fingerprint;
mod finite;
mod header;
mod index;
mod names;
mod tensor;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use error::WeightsError;
pub use file::SafetensorsFile;
pub use fingerprint::fingerprint;
pub use finite::check_finite;
pub use names::{IGNORED_PREFIXES, WeightNames};
pub use tensor::HostTensor;

/// All tensors of a checkpoint.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The folder or file that was opened, for messages.
    origin: PathBuf,
    files: Vec<SafetensorsFile>,
    /// Tensor name to an index into `files`.
    owners: BTreeMap<String, usize>,
}

impl Weights {
    /// Opens the weights in `dir`: `model.safetensors` if it is there, else the shards that
    /// `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// [`WeightsError`] when neither file exists, a header is damaged, the index names a missing file, a file outside
    /// `dir` or a tensor that its shard lacks, or two shards hold one name.
    pub fn open(dir: &Path) -> Result<Self, WeightsError> {
        let single = dir.join("model.safetensors");
        if is_there(&single) {
            return Self::open_file(&single);
        }
        let index = dir.join("model.safetensors.index.json");
        if !is_there(&index) {
            return Err(WeightsError::NotFound { dir: dir.to_owned() });
        }
        let map = index::read(&index)?;
        let mut files: Vec<SafetensorsFile> = Vec::new();
        let mut owners = BTreeMap::new();
        for name in map.values().collect::<BTreeSet<_>>() {
            let path = dir.join(name);
            if !is_there(&path) {
                return Err(WeightsError::MissingShard { index, shard: name.clone() });
            }
            let file = SafetensorsFile::open(&path)?;
            for tensor in file.names() {
                if let Some(&other) = owners.get(tensor) {
                    let first =
                        files.get(other).map_or_else(|| path.clone(), |f: &SafetensorsFile| f.path().to_owned());
                    return Err(WeightsError::InTwoShards { tensor: tensor.into(), first, second: path });
                }
                owners.insert(tensor.to_owned(), files.len());
            }
            files.push(file);
        }
        for (tensor, shard) in &map {
            let held = owners.get(tensor).and_then(|&i| files.get(i));
            if held.and_then(|f| f.path().file_name()) != Some(shard.as_ref()) {
                return Err(WeightsError::NotInShard { index, tensor: tensor.clone(), shard: shard.clone() });
            }
        }
        Ok(Self { origin: dir.to_owned(), files, owners })
    }

    /// Opens one safetensors file of any name.
    ///
    /// # Errors
    /// [`WeightsError`] for an unreadable file or a damaged header.
    pub fn open_file(path: &Path) -> Result<Self, WeightsError> {
        let file = SafetensorsFile::open(path)?;
        let owners = file.names().map(|name| (name.to_owned(), 0)).collect();
        Ok(Self { origin: path.to_owned(), files: vec![file], owners })
    }

    /// The files, in the order of their names.
    #[must_use]
    pub fn files(&self) -> &[SafetensorsFile] {
        &self.files
    }

    /// All tensor names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.owners.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.owners.contains_key(name)
    }

    /// The tensor `name`, whatever its shape.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], or [`WeightsError::UnsupportedDtype`] for an element type that Seam has not.
    pub fn get(&self, name: &str) -> Result<HostTensor, WeightsError> {
        let file = self.owners.get(name).and_then(|&i| self.files.get(i));
        let missing = || WeightsError::MissingTensor { tensor: name.into(), origin: self.origin.clone() };
        file.ok_or_else(missing)?.get(name)
    }

    /// The tensor `name`, which must have this shape.
    ///
    /// # Errors
    /// As [`Weights::get`], and [`WeightsError::Shape`] naming the file and both shapes.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<HostTensor, WeightsError> {
        let tensor = self.get(name)?;
        if tensor.shape == shape {
            return Ok(tensor);
        }
        let file = self.owners.get(name).and_then(|&i| self.files.get(i)).map_or(&*self.origin, |f| f.path());
        Err(WeightsError::Shape {
            tensor: name.into(),
            file: file.to_owned(),
            expected: shape.to_vec(),
            found: tensor.shape,
        })
    }

    /// The names that are neither in `used` nor begin with one of the `ignored` prefixes, sorted.
    ///
    /// A loader calls this when it is done: a tensor that nobody asked for means that the stack is not the one that
    /// the file was made for.
    #[must_use]
    pub fn unused(&self, used: &BTreeSet<String>, ignored: &[&str]) -> Vec<String> {
        let left = |name: &&str| !used.contains(*name) && !ignored.iter().any(|p| name.starts_with(p));
        self.names().filter(left).map(str::to_owned).collect()
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.files.iter().map(SafetensorsFile::data_bytes).sum()
    }
}

/// Whether something of this name exists, even a dangling link: opening it then gives the exact error.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
