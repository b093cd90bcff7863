//! The model fingerprint: which model a cached segment belongs to.

use std::path::Path;

use super::Weights;
use super::error::WeightsError;

/// Bytes hashed of each tensor: enough to tell two trainings of one shape apart without reading the whole checkpoint.
const TENSOR_BYTES: usize = 64 << 10;

/// blake3 over `config.json` and `tokenizer.json` in `dir`, and over the header, the size and the first 64 KiB of every
/// tensor of every weight file.
///
/// A file that is absent counts as absent, not as empty. Names of files do not count, so a checkpoint may be moved.
/// Two checkpoints that differ only beyond the first 64 KiB of every tensor have one fingerprint.
///
/// # Errors
/// [`WeightsError::Read`] if a file is there but cannot be read.
pub fn fingerprint(dir: &Path, weights: &Weights) -> Result<[u8; 32], WeightsError> {
    let mut hash = blake3::Hasher::new();
    hash.update(b"seam model fingerprint 1");
    for name in ["config.json", "tokenizer.json"] {
        let path = dir.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => part(&mut hash, &bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                // No length is that large, so this cannot be mistaken for a file.
                hash.update(&u64::MAX.to_le_bytes());
            }
            Err(source) => return Err(WeightsError::Read { path, source }),
        }
    }
    hash.update(&(weights.files().len() as u64).to_le_bytes());
    for file in weights.files() {
        part(&mut hash, file.header_bytes());
        hash.update(&file.len().to_le_bytes());
        // The header, hashed above, fixes the names and lengths of the tensors that follow.
        for (_, bytes) in file.raw_tensors() {
            part(&mut hash, bytes.get(..TENSOR_BYTES).unwrap_or(bytes));
        }
    }
    Ok(*hash.finalize().as_bytes())
}

/// Hashes a part with its length in front, so that parts cannot run into each other.
fn part(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}
