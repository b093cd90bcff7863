//! Models with fewer layers, cut out of a fixture.

use std::collections::HashMap;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

/// Writes a model that keeps the given layers of the flat-named model in `source`, in that order.
///
/// # Panics
/// If the source is not such a model, or the folder cannot be written.
#[must_use]
pub fn cut_model(source: &Path, layers: &[usize]) -> tempfile::TempDir {
    let text = std::fs::read_to_string(source.join("config.json")).expect("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("config.json is JSON");
    let kinds = config["layer_types"].as_array().expect("layer_types").clone();
    let kept: Vec<_> = layers.iter().map(|&l| kinds[l].clone()).collect();
    config["layer_types"] = kept.into();
    config["num_hidden_layers"] = layers.len().into();
    let bytes = std::fs::read(source.join("model.safetensors")).expect("model.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut out: HashMap<String, TensorView<'_>> = HashMap::new();
    for (name, tensor) in tensors.tensors() {
        match name.strip_prefix("model.layers.") {
            None => drop(out.insert(name, tensor)),
            Some(rest) => {
                let (layer, rest) = rest.split_once('.').expect("layer number");
                let layer: usize = layer.parse().expect("layer number");
                if let Some(new) = layers.iter().position(|&l| l == layer) {
                    out.insert(format!("model.layers.{new}.{rest}"), tensor);
                }
            }
        }
    }
    let dir = tempfile::tempdir().expect("temporary folder");
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("config.json");
    safetensors::serialize_to_file(out, None, &dir.path().join("model.safetensors")).expect("model.safetensors");
    dir
}
