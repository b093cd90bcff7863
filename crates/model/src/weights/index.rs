//! `model.safetensors.index.json`: which shard holds which tensor.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::Value;

use super::error::WeightsError;

/// Bytes of an index; the largest published ones have some tens of MiB.
const MAX_INDEX: u64 = 256 << 20;

/// Reads the map from tensor name to file name. Every file name is a plain name ending in `.safetensors`.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let wrap = |source| WeightsError::Read { path: path.to_owned(), source };
    let bad = |what: String| WeightsError::Index { path: path.to_owned(), what };
    let bytes = std::fs::metadata(path).map_err(wrap)?.len();
    if bytes > MAX_INDEX {
        return Err(bad(format!("it has {bytes} bytes, more than the limit of {MAX_INDEX}")));
    }
    let text = std::fs::read_to_string(path).map_err(wrap)?;
    let value: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let Some(Value::Object(map)) = value.get("weight_map") else {
        return Err(bad("it has no object weight_map".into()));
    };
    let mut out = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| bad(format!("the file of tensor {tensor} is not a string")))?;
        if !is_plain(file) {
            return Err(bad(format!("tensor {tensor} is placed in {file:?}, which is not a plain .safetensors name")));
        }
        out.insert(tensor.clone(), file.to_owned());
    }
    if out.is_empty() {
        return Err(bad("its weight_map is empty".into()));
    }
    Ok(out)
}

/// Whether `file` is a file name inside the checkpoint folder, on any system: an index comes from elsewhere and must
/// not reach other files.
fn is_plain(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    let one = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == file);
    one && file.ends_with(".safetensors") && !file.contains(['/', '\\', ':', '\0'])
}
