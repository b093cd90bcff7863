//! `quantization_config`.

use serde_json::{Value, json};

use super::{base, fixture, parse};
use crate::config::{ConfigError, Fp8Config, ModelConfig};

fn with(q: Value) -> Result<ModelConfig, ConfigError> {
    let mut config = base();
    config["quantization_config"] = q;
    parse(&config)
}

#[test]
fn blocks_of_128_are_read() {
    let fp8 = ModelConfig::from_dir(&fixture("qwen3_5_moe_fp8")).unwrap().fp8.unwrap();
    assert_eq!(fp8.not_converted.len(), 18);
    let layer = "model.language_model.layers.0";
    assert!(!fp8.converts(&format!("{layer}.mlp.gate.weight")) && !fp8.converts("lm_head.weight"));
    assert!(fp8.converts(&format!("{layer}.mlp.gate_proj.weight")));
    let plain = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    assert_eq!(with(plain).unwrap().fp8, Some(Fp8Config::default()));
    assert_eq!(parse(&base()).unwrap().fp8, None);
    // Also inside the wrapper.
    let mut text = base();
    text["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"});
    let outer =
        json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text});
    assert!(parse(&outer).unwrap().fp8.is_some());
}

#[test]
fn anything_else_is_refused_by_its_name() {
    let fp8 = |field: &str, value: Value| {
        let mut q = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
        q[field] = value;
        with(q)
    };
    for (field, value, named) in [
        ("quant_method", json!("gptq"), "quantization_config"),
        ("quant_method", Value::Null, "quantization_config"),
        ("fmt", json!("e5m2"), "quantization_config.fmt"),
        ("activation_scheme", json!("static"), "quantization_config.activation_scheme"),
        ("weight_block_size", json!([64, 128]), "quantization_config.weight_block_size"),
        ("weight_block_size", json!([128]), "quantization_config.weight_block_size"),
        ("weight_block_size", Value::Null, "quantization_config.weight_block_size"),
    ] {
        let r = fp8(field, value.clone());
        assert!(matches!(&r, Err(ConfigError::Unsupported { field, .. }) if field == named), "{field} {value}: {r:?}");
    }
    let text = fp8("quant_method", json!("gptq")).unwrap_err().to_string();
    assert!(text.contains("gptq"), "{text}");
    for (field, value) in [
        ("quant_method", json!(8)),
        ("fmt", json!(["e4m3"])),
        ("weight_block_size", json!("128x128")),
        ("weight_block_size", json!([128.0, 128])),
        ("modules_to_not_convert", json!("lm_head")),
        ("modules_to_not_convert", json!([1])),
    ] {
        let r = fp8(field, value.clone());
        assert!(matches!(&r, Err(ConfigError::WrongType { .. })), "{field} {value}: {r:?}");
    }
    assert!(matches!(with(json!("fp8")), Err(ConfigError::WrongType { .. })));
}
