//! Model folders that cannot be loaded, and unusual ones that can.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use seam_engine::{Engine, EngineError, EngineOptions, RunnerOptions};
use seam_ops::{Finding, OpError};
use seam_pic::Mode;
use seam_tests::{cpu, engine, fixture, options, request};
use serde_json::{Value, json};

const MODEL: &str = "qwen3_5_dense_tied";

/// dtype, shape and bytes by name.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A copy of the model with a change to its config and to its tensors (name → dtype, shape, bytes).
fn changed(config: &dyn Fn(&mut Value), tensors: &dyn Fn(&mut Tensors)) -> tempfile::TempDir {
    changed_model(MODEL, config, tensors)
}

fn changed_model(model: &str, config: &dyn Fn(&mut Value), tensors: &dyn Fn(&mut Tensors)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary folder");
    let text = std::fs::read_to_string(fixture(model).join("config.json")).expect("config");
    let mut value: Value = serde_json::from_str(&text).expect("config");
    config(&mut value);
    std::fs::write(dir.path().join("config.json"), value.to_string()).expect("config");
    let bytes = std::fs::read(fixture(model).join("model.safetensors")).expect("weights");
    let file = SafeTensors::deserialize(&bytes).expect("weights");
    let mut all = file
        .tensors()
        .into_iter()
        .map(|(name, t)| (name, (t.dtype(), t.shape().to_vec(), t.data().to_vec())))
        .collect();
    tensors(&mut all);
    write(&all, dir.path(), "model.safetensors");
    dir
}

fn write(tensors: &Tensors, dir: &Path, name: &str) {
    let views: HashMap<&String, TensorView<'_>> = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).expect("view")))
        .collect();
    safetensors::serialize_to_file(views, None, &dir.join(name)).expect("weights");
}

fn refused(dir: &tempfile::TempDir) -> String {
    let error = Engine::load(cpu(), dir.path(), EngineOptions::default()).err().expect("must be refused");
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

const TENSOR: &str = "model.layers.1.mlp.up_proj.weight";

#[test]
fn a_broken_tensor_is_named() {
    let untouched = |_: &mut Value| {};
    let missing = changed(&untouched, &|t| drop(t.remove(TENSOR)));
    assert!(refused(&missing).contains(TENSOR));
    let misshapen = changed(&untouched, &|t| {
        t.get_mut(TENSOR).expect("tensor").1.reverse();
    });
    let text = refused(&misshapen);
    assert!(text.contains(TENSOR) && text.contains("96"), "{text}");
    let nan = changed(&untouched, &|t| {
        t.get_mut(TENSOR).expect("tensor").2[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let text = refused(&nan);
    assert!(text.contains(TENSOR) && text.contains("index 2"), "the first bad index is told: {text}");
    let integers = changed(&untouched, &|t| {
        let (_, shape, _) = t[TENSOR].clone();
        let bytes = vec![0; shape.iter().product::<usize>() * 8];
        t.insert(TENSOR.to_owned(), (Dtype::I64, shape, bytes));
    });
    assert!(refused(&integers).contains(TENSOR));
    let stranger = changed(&untouched, &|t| {
        t.insert("model.layers.1.other.weight".to_owned(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    assert!(refused(&stranger).contains("model.layers.1.other.weight"));
}

#[test]
fn an_impossible_config_is_named() {
    let kept = |_: &mut Tensors| {};
    for (key, value) in [
        ("hidden_size", json!(0)),
        ("hidden_size", json!(1u64 << 40)),
        ("vocab_size", json!(-5)),
        ("num_hidden_layers", json!(5)),
        ("head_dim", json!("wide")),
        ("linear_num_value_heads", json!(4)),
        ("linear_conv_kernel_dim", json!(1)),
        ("rms_norm_eps", json!(0.0)),
    ] {
        let dir = changed(&|c| c[key] = value.clone(), &kept);
        let text = refused(&dir);
        // `num_hidden_layers` contradicts `layer_types`: either name tells it.
        assert!(text.contains(key) || text.contains("layer_types"), "{key} = {value}: {text}");
    }
    let dir = changed(&|c| c["architectures"] = json!(["LlamaForCausalLM"]), &kept);
    let text = refused(&dir);
    assert!(text.contains("LlamaForCausalLM") && text.contains("Qwen3_5ForCausalLM"), "{text}");
    // A legal config of a size that no kernel is compiled for: a typed refusal, not a fallback.
    let dir = changed(&|c| c["rope_parameters"]["rope_type"] = json!("yarn"), &kept);
    assert!(refused(&dir).contains("yarn"));
}

#[test]
fn a_damaged_file_is_an_error() {
    let dir = changed(&|_| {}, &|_| {});
    let path = dir.path().join("model.safetensors");
    let whole = std::fs::read(&path).expect("weights");
    for cut in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).expect("weights");
        assert!(refused(&dir).contains("model.safetensors"), "cut at {cut}");
    }
    std::fs::remove_file(&path).expect("remove");
    assert!(refused(&dir).contains("model.safetensors"));
}

/// Two shards with an index are the same model as one file; so is a model whose weights are f32 and f16.
#[test]
fn shards_and_other_float_types_give_the_same_logits() {
    let request = request(&[11, 40, 9], 320, Mode::Transition, 8, 1);
    let expected = engine(&cpu(), &fixture(MODEL), &options()).score(&request, &[1]).expect("score");
    let mut all = BTreeMap::new();
    let dir = changed(&|_| {}, &|_| {});
    let bytes = std::fs::read(dir.path().join("model.safetensors")).expect("weights");
    for (name, t) in SafeTensors::deserialize(&bytes).expect("weights").tensors() {
        all.insert(name, (t.dtype(), t.shape().to_vec(), t.data().to_vec()));
    }
    std::fs::remove_file(dir.path().join("model.safetensors")).expect("remove");
    let mut map = BTreeMap::new();
    for (i, part) in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"].iter().enumerate() {
        let shard: BTreeMap<_, _> =
            all.iter().enumerate().filter(|(j, _)| j % 2 == i).map(|(_, (k, v))| (k.clone(), v.clone())).collect();
        map.extend(shard.keys().map(|name| (name.clone(), (*part).to_owned())));
        write(&shard, dir.path(), part);
    }
    let index = json!({"metadata": {}, "weight_map": map});
    std::fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).expect("index");
    assert_eq!(engine(&cpu(), dir.path(), &options()).score(&request, &[1]).expect("score"), expected);
    // The other fixture holds bf16: widened to f32 it must give the very same logits.
    let model = "qwen3_5_dense";
    let request = seam_tests::request(&[11, 40, 9], 256, Mode::Transition, 8, 1);
    let expected = engine(&cpu(), &fixture(model), &options()).score(&request, &[1]).expect("score");
    let widened = changed_model(model, &|_| {}, &|t| {
        let mut count = 0;
        for (dtype, _, bytes) in t.values_mut().filter(|(dtype, ..)| *dtype == Dtype::BF16) {
            let wide = bytes.chunks_exact(2).flat_map(|b| [0, 0, b[0], b[1]]).collect();
            (*dtype, *bytes) = (Dtype::F32, wide);
            count += 1;
        }
        assert!(count > 50, "{count} tensors were bf16");
    });
    assert_eq!(engine(&cpu(), widened.path(), &options()).score(&request, &[1]).expect("score"), expected);
}

/// A model that overflows: the request fails by name, nothing of it is cached, and no memory stays taken.
#[test]
fn non_finite_results_fail_the_request_and_are_never_cached() {
    let dir = changed(&|_| {}, &|t| {
        let (dtype, _, bytes) = t.get_mut("model.norm.weight").expect("tensor");
        assert_eq!(*dtype, Dtype::F32);
        bytes.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&3e38f32.to_le_bytes()));
    });
    for device in seam_tests::devices() {
        let mut engine = engine(&device, dir.path(), &options());
        for mode in [Mode::Full, Mode::Transition] {
            let request = request(&[11, 40, 9], 320, mode, 8, 1);
            let error = engine.answer(&request, &mut |_| {}).expect_err("must fail");
            assert!(matches!(error, EngineError::NonFinite { .. }), "{mode}: {error}");
        }
        assert_eq!(engine.cache().device_tier().stats().entries, 0);
        let memory = &engine.runner().memory;
        let used = [&memory.kv_private, &memory.kv_shared, &memory.states, &memory.operators].map(|pool| pool.used());
        assert_eq!(used, [0; 4]);
    }
}

/// Checked mode names the first result that is not finite, and the step after which nothing else was looked at.
#[test]
fn checked_mode_names_what_is_not_finite() {
    let dir = changed(&|_| {}, &|t| {
        let name = t.keys().filter(|name| name.ends_with("linear_attn.A_log")).min().expect("a linear layer").clone();
        let (dtype, _, bytes) = t.get_mut(&name).expect("tensor");
        assert_eq!(*dtype, Dtype::F32);
        // e^200 is beyond f32, and times the softplus of anything it is infinite.
        bytes[..4].copy_from_slice(&200f32.to_le_bytes());
    });
    for device in seam_tests::devices() {
        let runner = RunnerOptions { checked: true, ..options().runner };
        let mut engine = engine(&device, dir.path(), &EngineOptions { runner, ..options() });
        let request = request(&[11, 40, 9], 320, Mode::Transition, 8, 1);
        let error = engine.answer(&request, &mut |_| {}).expect_err("must fail");
        let EngineError::Op(OpError::Value(Finding::NonFinite { tensor, row: 0, col: 0 })) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(tensor, "layer0.gdn.gates");
        assert_eq!(engine.cache().device_tier().stats().entries, 0);
    }
    // The same answers as without, on a sound model.
    let sound = fixture("qwen3_5_dense");
    let answer = |checked| {
        let runner = RunnerOptions { checked, ..options().runner };
        let mut engine = engine(&cpu(), &sound, &EngineOptions { runner, ..options() });
        engine.answer(&request(&[11, 40, 9], 256, Mode::Transition, 8, 1), &mut |_| {}).expect("an answer").tokens
    };
    assert_eq!(answer(true), answer(false));
}
