//! Configs of mixtures of experts.

use serde_json::{Value, json};

use super::{base, fixture, parse};
use crate::config::{
    ConfigError, ExpertActivation, MlpConfig, ModelConfig, MoeConfig, Projections, RouterScoring, SharedExpert,
};

/// Sizes of the fixtures' experts.
const EXPERTS: MoeConfig = MoeConfig {
    experts: 8,
    top: 2,
    intermediate: 32,
    activation: ExpertActivation::SwiGlu,
    scoring: RouterScoring::Softmax { renormalise: true },
    shared: Some(SharedExpert { intermediate: 40, gated: true }),
};

fn moe() -> Value {
    let mut config = base();
    config["architectures"] = json!(["Qwen3_5MoeForCausalLM"]);
    config["model_type"] = json!("qwen3_5_moe_text");
    config.as_object_mut().unwrap().remove("intermediate_size");
    for (field, value) in [
        ("num_experts", 8),
        ("num_experts_per_tok", 2),
        ("moe_intermediate_size", 32),
        ("shared_expert_intermediate_size", 40),
    ] {
        config[field] = json!(value);
    }
    config
}

#[test]
fn both_layouts() {
    let nested = ModelConfig::from_dir(&fixture("qwen3_5_moe")).unwrap();
    assert_eq!(nested.architecture, "Qwen3_5MoeForConditionalGeneration");
    assert_eq!(nested.qwen3_5().unwrap().mlps, [MlpConfig::Moe(EXPERTS); 8]);
    assert_eq!(parse(&moe()).unwrap().qwen3_5().unwrap().mlps, [MlpConfig::Moe(EXPERTS); 9]);
    // Renormalised whatever the file says, as the reference does.
    let mut config = moe();
    config["norm_topk_prob"] = json!(false);
    assert_eq!(parse(&config).unwrap().qwen3_5().unwrap().mlps, [MlpConfig::Moe(EXPERTS); 9]);
}

#[test]
fn fields_missing_negative_and_of_other_types() {
    for field in ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"] {
        let with = |value: Value| {
            let mut config = moe();
            config[field] = value;
            parse(&config)
        };
        for value in [json!(0), json!(-8), json!(1u64 << 40), json!(i64::MIN)] {
            let r = with(value.clone());
            assert!(
                matches!(&r, Err(ConfigError::OutOfRange { field: f, .. }) if f == field),
                "{field} {value}: {r:?}"
            );
        }
        for value in [json!("8"), json!(2.0), json!([2]), json!({}), json!(true)] {
            let r = with(value.clone());
            assert!(matches!(&r, Err(ConfigError::WrongType { field: f, .. }) if f == field), "{field} {value}: {r:?}");
        }
        assert!(matches!(with(Value::Null), Err(ConfigError::Missing { field: f }) if f == field));
    }
}

#[test]
fn contradictions() {
    let mut config = moe();
    config["num_experts_per_tok"] = json!(9);
    let r = parse(&config);
    assert!(matches!(&r, Err(ConfigError::Contradiction { what }) if what.contains('9')), "{r:?}");
    let mut config = moe();
    config["model_type"] = json!("qwen3_5_text");
    assert!(matches!(parse(&config), Err(ConfigError::Contradiction { .. })));
    // Dense architectures have none.
    let mut config = base();
    config["num_experts"] = json!(8);
    assert!(matches!(parse(&config), Err(ConfigError::Unsupported { field, .. }) if field == "num_experts"));
}

/// The Qwen3-Next fixture's config with one field replaced.
fn next(field: &str, value: Value) -> Result<ModelConfig, ConfigError> {
    let text = std::fs::read_to_string(fixture("qwen3_next").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config[field] = value;
    parse(&config)
}

/// Which layers have experts.
fn sparse(config: &ModelConfig) -> Vec<bool> {
    config.qwen3_5().unwrap().mlps.iter().map(|mlp| matches!(mlp, MlpConfig::Moe(_))).collect()
}

#[test]
fn some_layers_of_qwen3_next_are_dense() {
    let c = ModelConfig::from_dir(&fixture("qwen3_next")).unwrap();
    let q = c.qwen3_5().unwrap();
    assert_eq!((q.rot_dim, q.rope_theta, q.projections), (8, 1e7, Projections::Interleaved));
    let (moe, dense) = (MlpConfig::Moe(EXPERTS), MlpConfig::Dense(96));
    assert_eq!(q.mlps, [moe, dense, moe, moe]);
    assert_eq!(sparse(&next("mlp_only_layers", Value::Null).unwrap()), [true; 4]);
    assert_eq!(sparse(&next("decoder_sparse_step", json!(2)).unwrap()), [false, false, false, true]);
    let plain = next("norm_topk_prob", json!(false)).unwrap();
    let scoring = RouterScoring::Softmax { renormalise: false };
    assert_eq!(plain.qwen3_5().unwrap().mlps[0], MlpConfig::Moe(MoeConfig { scoring, ..EXPERTS }));
    // Sizes are needed where a layer has them.
    let r = next("intermediate_size", Value::Null);
    assert!(matches!(r, Err(ConfigError::Missing { field }) if field == "intermediate_size"));
    let mut text: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("qwen3_next").join("config.json")).unwrap()).unwrap();
    text["mlp_only_layers"] = json!([0, 1, 2, 3]);
    text.as_object_mut().unwrap().retain(|name, _| !name.contains("experts"));
    assert_eq!(sparse(&parse(&text).unwrap()), [false; 4]);
}

#[test]
fn wrong_fields_of_qwen3_next_are_named() {
    assert!(matches!(next("model_type", json!("qwen3_5_moe_text")), Err(ConfigError::Contradiction { .. })));
    let r = next("mlp_only_layers", json!([4]));
    assert!(matches!(&r, Err(ConfigError::Contradiction { what }) if what.contains("mlp_only_layers")), "{r:?}");
    for value in [json!(1), json!([-1]), json!(["1"]), json!([1.0])] {
        let r = next("mlp_only_layers", value);
        assert!(matches!(&r, Err(ConfigError::WrongType { field, .. }) if field == "mlp_only_layers"), "{r:?}");
    }
    for value in [json!(0), json!(-1)] {
        let r = next("decoder_sparse_step", value);
        assert!(matches!(&r, Err(ConfigError::OutOfRange { field, .. }) if field == "decoder_sparse_step"), "{r:?}");
    }
    let r = next("norm_topk_prob", json!("yes"));
    assert!(matches!(&r, Err(ConfigError::WrongType { field, .. }) if field == "norm_topk_prob"), "{r:?}");
    for field in ["num_experts", "num_experts_per_tok", "moe_intermediate_size"] {
        assert!(matches!(next(field, Value::Null), Err(ConfigError::Missing { field: f }) if f == field));
        assert!(matches!(next(field, json!(-3)), Err(ConfigError::OutOfRange { field: f, .. }) if f == field));
    }
}

#[test]
fn groups_of_experts() {
    let sized = |experts, top, groups, keep| MoeConfig {
        experts,
        top,
        scoring: RouterScoring::Sigmoid { groups, keep, renormalise: true, scale: 1.0 },
        ..EXPERTS
    };
    for (experts, top, groups, keep) in [(256, 8, 8, 4), (8, 2, 1, 1), (8, 8, 8, 8)] {
        sized(experts, top, groups, keep).check().unwrap();
    }
    for (experts, top, groups, keep) in
        [(256, 8, 0, 0), (256, 8, 7, 4), (256, 8, 8, 9), (256, 8, 8, 0), (8, 2, 8, 4), (8, 5, 4, 2), (8, 9, 1, 1)]
    {
        let r = sized(experts, top, groups, keep).check();
        assert!(matches!(r, Err(ConfigError::Contradiction { .. })), "{experts} {top} {groups} {keep}: {r:?}");
    }
}
