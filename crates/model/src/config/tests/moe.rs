//! Configs of mixtures of experts.

use serde_json::{Value, json};

use super::{base, fixture, parse};
use crate::config::{ConfigError, ExpertActivation, MlpConfig, ModelConfig, MoeConfig, RouterScoring, SharedExpert};

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
    assert_eq!(nested.qwen3_5().unwrap().mlp, MlpConfig::Moe(EXPERTS));
    assert_eq!(parse(&moe()).unwrap().qwen3_5().unwrap().mlp, MlpConfig::Moe(EXPERTS));
    // Renormalised whatever the file says, as the reference does.
    let mut config = moe();
    config["norm_topk_prob"] = json!(false);
    assert_eq!(parse(&config).unwrap().qwen3_5().unwrap().mlp, MlpConfig::Moe(EXPERTS));
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
