//! Golden files with one value changed, and golden files made by hand.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use seam_tests::fixture;

/// What happens to a value.
pub(super) enum Edit {
    /// The largest one of the tensor is multiplied.
    Largest(f64),
    /// The first one becomes NaN.
    Nan,
}

/// A copy of a golden file below `dir` in which one value of `tensor` is changed.
pub(super) fn edited(dir: &Path, file: &str, tensor: &str, edit: Edit) -> PathBuf {
    let mut bytes = std::fs::read(fixture("kernels").join(format!("{file}.safetensors"))).unwrap();
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let info = metadata.info(tensor).unwrap();
    let data = &mut bytes[8 + header..][info.data_offsets.0..info.data_offsets.1];
    let size = if info.dtype == Dtype::F64 { 8 } else { 4 };
    let value = |b: &[u8]| match b.len() {
        8 => f64::from_le_bytes(b.try_into().unwrap()),
        _ => f64::from(f32::from_le_bytes(b.try_into().unwrap())),
    };
    let values: Vec<f64> = data.chunks(size).map(value).collect();
    let largest = (0..values.len()).max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs())).unwrap();
    let (at, new) = match edit {
        Edit::Largest(factor) => (largest, values[largest] * factor),
        Edit::Nan => (0, f64::NAN),
    };
    let place = &mut data[at * size..][..size];
    match size {
        8 => place.copy_from_slice(&new.to_le_bytes()),
        _ => place.copy_from_slice(&(new as f32).to_le_bytes()),
    }
    let path = dir.join(format!("{file}.safetensors"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A file under construction.
#[derive(Default)]
pub(super) struct Tensors {
    tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)>,
    metadata: HashMap<String, String>,
}

impl Tensors {
    /// The case `a` of the gated delta rule, in which all inputs but the start state are 0: the state stays what it is.
    pub(super) fn delta_rule_case(tokens: usize, heads: usize, value_heads: usize, key: usize, value: usize) -> Self {
        let mut made = Self::default();
        for name in ["q", "k"] {
            made = made.float(&format!("a/{name}"), &[tokens, heads, key], 0.0);
        }
        for name in ["v", "o"] {
            made = made.float(&format!("a/{name}"), &[tokens, value_heads, value], 0.0);
        }
        for name in ["g", "beta"] {
            made = made.float(&format!("a/{name}"), &[tokens, value_heads], 0.0);
        }
        for (name, x) in [("s0", 0.5), ("s_final", 0.5), ("s_zero", 0.0)] {
            made = made.float(&format!("a/{name}"), &[value_heads, key, value], x);
        }
        made = made.float("a/t_c", &[value_heads, key, key], 0.0);
        let identity =
            (0..value_heads * key * key).map(|i| if (i % (key * key)).is_multiple_of(key + 1) { 1f32 } else { 0.0 });
        if let Some((_, bytes)) = made.tensors.get_mut("a/t_c") {
            *bytes = identity.flat_map(f32::to_le_bytes).collect();
        }
        made.metadata("spec", r#"{"name": "gated_delta_rule"}"#).metadata("case:a", r#"{"scale": 0.5}"#)
    }

    pub(super) fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds or replaces a tensor that is `x` everywhere.
    pub(super) fn float(mut self, name: &str, shape: &[usize], x: f32) -> Self {
        let bytes = std::iter::repeat_n(x.to_le_bytes(), shape.iter().product()).flatten().collect();
        self.tensors.insert(name.to_owned(), (shape.to_vec(), bytes));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        assert!(self.tensors.remove(name).is_some());
        self
    }

    pub(super) fn write(&self, path: &Path) {
        let view = |(shape, bytes)| TensorView::new(Dtype::F32, Vec::clone(shape), bytes).unwrap();
        let views = self.tensors.iter().map(|(name, (shape, bytes))| (name, view((shape, bytes))));
        // The writer makes no valid JSON of empty metadata.
        let metadata = (!self.metadata.is_empty()).then(|| self.metadata.clone());
        std::fs::write(path, serialize(views, metadata).unwrap()).unwrap();
    }
}
