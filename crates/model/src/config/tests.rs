//! Configs: the fixtures, both layouts, and everything that must be refused.

mod fp8;
mod moe;

use serde_json::{Value, json};

use super::*;
use crate::testing::{Scratch, fixture};

/// The config of a trained model whose `full_attention_interval` contradicts its `layer_types`.
const FULL_FIRST: &str = r#"{
  "architectures": ["Qwen3_5ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
  "dtype": "bfloat16", "eos_token_id": 3, "full_attention_interval": 4, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 320,
  "layer_types": ["full_attention", "linear_attention", "linear_attention", "linear_attention", "linear_attention",
    "linear_attention", "linear_attention", "linear_attention", "linear_attention"],
  "linear_conv_kernel_dim": 4, "linear_key_head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
  "linear_value_head_dim": 64, "max_position_embeddings": 8192, "model_type": "qwen3_5_text",
  "num_attention_heads": 4, "num_hidden_layers": 9, "num_key_value_heads": 2, "pad_token_id": 0,
  "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06,
  "rope_parameters": {"mrope_interleaved": true, "mrope_section": [4, 2, 2], "partial_rotary_factor": 0.25,
    "rope_theta": 10000.0, "rope_type": "default"},
  "tie_word_embeddings": true, "transformers_version": "5.17.0", "use_cache": true, "vocab_size": 2048,
  "attn_output_gate": true, "mamba_ssm_dtype": "float32"
}"#;

fn base() -> Value {
    serde_json::from_str(FULL_FIRST).unwrap()
}

fn parse(value: &Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::from_json(&value.to_string(), None)
}

/// The base config with one field replaced.
fn with(field: &str, value: Value) -> Result<ModelConfig, ConfigError> {
    let mut config = base();
    config[field] = value;
    parse(&config)
}

/// The base config without one field.
fn without(field: &str) -> Result<ModelConfig, ConfigError> {
    let mut config = base();
    config.as_object_mut().unwrap().remove(field);
    parse(&config)
}

#[test]
fn the_nested_fixture() {
    let c = ModelConfig::from_dir(&fixture("qwen3_5_dense")).unwrap();
    assert_eq!(c.architecture, "Qwen3_5ForConditionalGeneration");
    assert_eq!((c.hidden_size, c.vocab, c.max_position_embeddings, c.tied), (64, 256, 4096, false));
    assert_eq!((c.eps, c.bos, c.eos.as_slice()), (1e-6, None, [].as_slice()));
    let kinds: Vec<_> = c.layers.iter().map(|&k| k == LayerKind::Full).collect();
    assert_eq!(kinds, [false, false, false, true, false, false, false, true]);
    let q = c.qwen3_5().unwrap();
    let linear = LinearDims { k_heads: 2, v_heads: 4, k_dim: 16, v_dim: 24, conv_kernel: 4 };
    let expected = Qwen35Config {
        mlps: vec![MlpConfig::Dense(96); 8],
        projections: Projections::Separate,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        rot_dim: 8,
        rope_theta: 1e7,
        linear,
    };
    assert_eq!(*q, expected);
    assert_eq!((linear.key_width(), linear.value_width(), linear.conv_channels()), (32, 96, 160));
}

#[test]
fn the_flat_fixtures() {
    let c = ModelConfig::from_dir(&fixture("qwen3_5_dense_tied")).unwrap();
    assert!(c.tied);
    assert_eq!((c.count(LayerKind::Linear), c.count(LayerKind::Full)), (3, 1));

    let c = ModelConfig::from_dir(&fixture("tiny_qwen35")).unwrap();
    assert_eq!((c.bos, c.eos.as_slice()), (Some(1), [3].as_slice()));
    assert_eq!((c.qwen3_5().unwrap().rot_dim, c.qwen3_5().unwrap().rope_theta), (16, 1e4));
}

#[test]
fn layer_types_win_over_the_interval() {
    let c = parse(&base()).unwrap();
    assert_eq!(c.layers[0], LayerKind::Full);
    assert!(c.layers[1..].iter().all(|&k| k == LayerKind::Linear));

    let mut value = base();
    value.as_object_mut().unwrap().remove("layer_types");
    let c = parse(&value).unwrap();
    let full: Vec<_> = (0..9).filter(|&i| c.layers[i] == LayerKind::Full).collect();
    assert_eq!(full, [3, 7]);
    value["full_attention_interval"] = json!(3);
    let c = parse(&value).unwrap();
    let full: Vec<_> = (0..9).filter(|&i| c.layers[i] == LayerKind::Full).collect();
    assert_eq!(full, [2, 5, 8]);
    value["full_attention_interval"] = json!(0);
    assert!(matches!(parse(&value), Err(ConfigError::OutOfRange { field, .. }) if field == "full_attention_interval"));
}

#[test]
fn the_outer_tie_counts() {
    let mut text = base();
    let wrap = |text: &Value| json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text});
    let mut outer = wrap(&text);
    outer["tie_word_embeddings"] = json!(false);
    assert!(!parse(&outer).unwrap().tied);
    text["tie_word_embeddings"] = json!(false);
    let mut outer = wrap(&text);
    outer["tie_word_embeddings"] = json!(true);
    assert!(parse(&outer).unwrap().tied);
    assert!(!parse(&wrap(&text)).unwrap().tied);
    // Errors inside name the full path.
    text["hidden_size"] = json!(0);
    assert!(
        matches!(parse(&wrap(&text)), Err(ConfigError::OutOfRange { field, .. }) if field == "text_config.hidden_size")
    );
    let outer = json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5"});
    assert!(matches!(parse(&outer), Err(ConfigError::Missing { field }) if field == "text_config"));
}

#[test]
fn rope_old_and_new() {
    let mut value = base();
    let map = value.as_object_mut().unwrap();
    map.remove("rope_parameters");
    map.insert("rope_theta".into(), json!(500_000));
    map.insert("partial_rotary_factor".into(), json!(0.5));
    let c = parse(&value).unwrap();
    assert_eq!((c.qwen3_5().unwrap().rot_dim, c.qwen3_5().unwrap().rope_theta), (32, 5e5));
    // The new fields win over the old ones.
    value["rope_parameters"] = json!({"rope_theta": 1e6, "partial_rotary_factor": 1.0});
    let c = parse(&value).unwrap();
    assert_eq!((c.qwen3_5().unwrap().rot_dim, c.qwen3_5().unwrap().rope_theta), (64, 1e6));

    let typed = |name: &str| with("rope_parameters", json!({"rope_theta": 1e4, name: "yarn"}));
    for name in ["rope_type", "type"] {
        assert!(matches!(typed(name), Err(ConfigError::Unsupported { value, .. }) if value == "yarn"));
    }
    assert!(matches!(with("rope_scaling", json!({"type": "linear"})), Err(ConfigError::Unsupported { .. })));
    let mut value = base();
    value.as_object_mut().unwrap().remove("rope_parameters");
    assert!(matches!(parse(&value), Err(ConfigError::Missing { field }) if field == "rope_theta"));
    for theta in [json!(0), json!(-1.0)] {
        let r = with("rope_parameters", json!({"rope_theta": theta}));
        assert!(matches!(r, Err(ConfigError::OutOfRange { .. })));
    }
    for factor in [0.0, -0.25, 1.5] {
        let r = with("rope_parameters", json!({"rope_theta": 1e4, "partial_rotary_factor": factor}));
        assert!(matches!(r, Err(ConfigError::OutOfRange { .. })), "{factor}");
    }
    // 64 · 0.05 = 3.2: three dimensions; 64 · 0.01: none.
    for factor in [0.05, 0.01] {
        let r = with("rope_parameters", json!({"rope_theta": 1e4, "partial_rotary_factor": factor}));
        assert!(matches!(r, Err(ConfigError::Contradiction { .. })), "{factor}");
    }
}

#[test]
fn architectures() {
    let unknown = with("architectures", json!(["LlamaForCausalLM"])).unwrap_err().to_string();
    assert!(unknown.contains("LlamaForCausalLM") && unknown.contains("Qwen3_5ForCausalLM"), "{unknown}");
    let later = with("architectures", json!(["RetNetForCausalLM"])).unwrap_err();
    assert!(matches!(&later, ConfigError::Unsupported { value, .. } if value == "RetNetForCausalLM"));
    for absent in [json!([]), Value::Null] {
        assert!(matches!(with("architectures", absent), Err(ConfigError::Missing { .. })));
    }
    assert!(with("architectures", json!(["LlamaForCausalLM", "Qwen3_5ForCausalLM"])).is_ok());
    assert!(matches!(with("model_type", json!("qwen3_next")), Err(ConfigError::Contradiction { .. })));
    let known = [
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3NextForCausalLM",
    ];
    assert_eq!(known_architectures(), known);
}

#[test]
fn sizes_zero_huge_and_negative() {
    let fields = [
        "hidden_size",
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "max_position_embeddings",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    ];
    for field in fields {
        for value in [json!(0), json!(-4), json!(1u64 << 40), json!(u64::MAX), json!(i64::MIN)] {
            let r = with(field, value.clone());
            assert!(
                matches!(&r, Err(ConfigError::OutOfRange { field: f, .. }) if f == field),
                "{field} {value}: {r:?}"
            );
        }
        for value in [json!("8"), json!(4.0), json!([4]), json!({}), json!(true)] {
            let r = with(field, value.clone());
            assert!(matches!(&r, Err(ConfigError::WrongType { field: f, .. }) if f == field), "{field} {value}: {r:?}");
        }
        assert!(matches!(without(field), Err(ConfigError::Missing { field: f }) if f == field));
    }
    for taps in [1, 9] {
        assert!(matches!(with("linear_conv_kernel_dim", json!(taps)), Err(ConfigError::OutOfRange { .. })));
    }
    assert!(matches!(with("head_dim", json!(1025)), Err(ConfigError::OutOfRange { .. })));
    assert!(matches!(with("hidden_size", json!((1 << 20) + 1)), Err(ConfigError::OutOfRange { .. })));
}

#[test]
fn contradictions() {
    assert!(matches!(with("num_key_value_heads", json!(3)), Err(ConfigError::Contradiction { .. })));
    assert!(matches!(with("linear_num_value_heads", json!(6)), Err(ConfigError::Contradiction { .. })));
    assert!(matches!(with("num_hidden_layers", json!(8)), Err(ConfigError::Contradiction { .. })));
    let mut kinds = base()["layer_types"].clone();
    kinds[4] = json!("sliding_attention");
    let r = with("layer_types", kinds);
    assert!(matches!(r, Err(ConfigError::Unsupported { field, value, .. })
        if field == "layer_types[4]" && value == "sliding_attention"));
}

#[test]
fn epsilon() {
    // 1e-60 is positive in f64 and zero in f32.
    for eps in [0.0, -1e-6, 1e-60, 2.0, 1e300] {
        assert!(matches!(with("rms_norm_eps", json!(eps)), Err(ConfigError::OutOfRange { .. })), "{eps}");
    }
    assert!(matches!(with("rms_norm_eps", json!("1e-6")), Err(ConfigError::WrongType { .. })));
    assert!(matches!(without("rms_norm_eps"), Err(ConfigError::Missing { .. })));
}

#[test]
fn settings_that_are_not_implemented() {
    let cases = [
        ("hidden_act", json!("gelu")),
        ("attn_output_gate", json!(false)),
        ("attention_bias", json!(true)),
        ("output_gate_type", json!("sigmoid")),
        ("num_experts", json!(8)),
    ];
    for (field, value) in cases {
        let r = with(field, value);
        assert!(matches!(&r, Err(ConfigError::Unsupported { field: f, .. }) if f == field), "{field}: {r:?}");
    }
    for (field, value) in [("output_gate_type", json!("swish")), ("num_experts", json!(0))] {
        assert!(with(field, value).is_ok(), "{field}");
    }
    assert!(matches!(with("hidden_act", json!(1)), Err(ConfigError::WrongType { .. })));
    assert!(matches!(with("tie_word_embeddings", json!("yes")), Err(ConfigError::WrongType { .. })));
    assert!(matches!(with("layer_types", json!("linear_attention")), Err(ConfigError::WrongType { .. })));
    assert!(matches!(with("rope_parameters", json!([1])), Err(ConfigError::WrongType { .. })));
}

#[test]
fn stop_tokens() {
    let generation = r#"{"bos_token_id": 5, "eos_token_id": [4, 3]}"#;
    let c = ModelConfig::from_json(FULL_FIRST, Some(generation)).unwrap();
    assert_eq!((c.bos, c.eos.as_slice()), (Some(1), [3, 4].as_slice()));
    let mut value = base();
    value["bos_token_id"] = Value::Null;
    value["eos_token_id"] = json!([7, 8, 7]);
    let c = ModelConfig::from_json(&value.to_string(), Some(generation)).unwrap();
    assert_eq!(c.bos, Some(5));
    assert_eq!(c.eos, [7, 8, 4, 3]);
    for bad in [json!(2048), json!(-1), json!([3, 99_999_999_999_u64])] {
        assert!(matches!(with("eos_token_id", bad), Err(ConfigError::OutOfRange { .. })));
    }
    assert!(matches!(with("eos_token_id", json!("</s>")), Err(ConfigError::WrongType { .. })));
    let r = ModelConfig::from_json(FULL_FIRST, Some(r#"{"eos_token_id": 2048}"#));
    assert!(matches!(r, Err(ConfigError::OutOfRange { field, .. }) if field == "generation_config.eos_token_id"));
}

#[test]
fn files_that_are_no_config() {
    let dir = Scratch::new();
    assert!(matches!(ModelConfig::from_dir(dir.path()), Err(ConfigError::Read { .. })));
    for text in ["", "{", "[]", "null", "3", "\"x\"", "{\"rms_norm_eps\": NaN}", "{\"a\": 1e999}"] {
        dir.write("config.json", text);
        let r = ModelConfig::from_dir(dir.path());
        assert!(matches!(r, Err(ConfigError::Json { .. } | ConfigError::WrongType { .. })), "{text}: {r:?}");
    }
    dir.write("config.json", FULL_FIRST);
    assert!(ModelConfig::from_dir(dir.path()).is_ok());
    dir.write("generation_config.json", "{");
    let r = ModelConfig::from_dir(dir.path());
    assert!(matches!(r, Err(ConfigError::Json { file: "generation_config.json", .. })));
    dir.write("config.json", [0xff, 0xfe]);
    assert!(matches!(ModelConfig::from_dir(dir.path()), Err(ConfigError::Read { .. })));
}

#[test]
fn a_cut_config_never_panics() {
    for end in 0..FULL_FIRST.len() {
        if FULL_FIRST.is_char_boundary(end) {
            assert!(ModelConfig::from_json(&FULL_FIRST[..end], None).is_err(), "cut at {end}");
        }
    }
}
