//! The trained fixture's tokenizer: markers in text, damaged files, settings that must not act.

use serde_json::{Value, json};

use super::*;
use crate::testing::{Scratch, fixture};

fn fixture_tokenizer() -> Tokenizer {
    Tokenizer::from_dir(&fixture("tiny_qwen35")).unwrap()
}

fn fixture_json() -> Value {
    serde_json::from_slice(&std::fs::read(fixture("tiny_qwen35").join("tokenizer.json")).unwrap()).unwrap()
}

fn from_value(value: &Value) -> Result<Tokenizer, TextError> {
    Tokenizer::from_bytes(value.to_string().as_bytes())
}

/// A byte-fallback tokenizer of the SentencePiece kind: a space is `▁`, a text gets `<s>` and a space in front.
pub(crate) fn sentencepiece() -> Value {
    let mut vocab = serde_json::Map::new();
    for token in ["<unk>", "<s>", "</s>"] {
        vocab.insert(token.into(), json!(vocab.len()));
    }
    for byte in 0..=255 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(vocab.len()));
    }
    for token in ["▁", "a", "b", "▁a"] {
        vocab.insert(token.into(), json!(vocab.len()));
    }
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": [["▁", "a"]]}
    })
}

#[test]
fn markers_in_user_text_stay_text() {
    let t = fixture_tokenizer();
    let ids = [("<|pad|>", 0), ("<|bos|>", 1), ("<|seg|>", 2), ("<|end|>", 3), ("<|unk|>", 4)];
    for (text, id) in ids {
        assert_eq!(t.special_id(text), Some(id));
        assert!(t.is_special(id));
        assert_eq!(t.encode(text, true).unwrap(), [id]);
    }
    for text in ["<|seg|>", "a <|seg|> b<|end|>", "<|bos|><|bos|>", "<<|seg|>|>", "x<|end|>\n<|seg|>The"] {
        let literal = t.encode(text, false).unwrap();
        assert!(literal.iter().all(|&id| !t.is_special(id)), "{text}: {literal:?}");
        assert_eq!(t.decode(&literal, true).unwrap(), text);
        let parsed = t.encode(text, true).unwrap();
        assert!(parsed.iter().any(|&id| t.is_special(id)), "{text}");
        assert_eq!(t.decode(&parsed, false).unwrap(), text);
        // One reading does not leak into the other, whichever came first.
        assert_eq!(t.encode(text, false).unwrap(), literal);
    }
    assert_eq!(t.special_id("seg"), None);
    assert!(t.token_id("a").is_some() && t.special_id("a").is_none());
}

#[test]
fn text_goes_round() {
    let t = fixture_tokenizer();
    for text in ["", "The population of Breludale is 69300.", " two  spaces ", "naïve — 日本語 🦀\n\t\u{0}", "\u{fffd}"]
    {
        let ids = t.encode(text, false).unwrap();
        assert_eq!(t.decode(&ids, true).unwrap(), text);
    }
    assert_eq!(t.decode(&[1, 2, 3], true).unwrap(), "");
    assert!(matches!(t.decode(&[5, 2048], true), Err(TextError::UnknownId { id: 2048 })));
    assert!(matches!(t.decode(&[u32::MAX], true), Err(TextError::UnknownId { .. })));
}

#[test]
fn the_vocabulary_must_fit_the_embedding() {
    let t = fixture_tokenizer();
    assert_eq!(t.max_id(), 2047);
    t.check_vocab(2048).unwrap();
    assert!(matches!(t.check_vocab(2047), Err(TextError::VocabTooSmall { id: 2047, vocab: 2047 })));
}

#[test]
fn settings_that_would_change_a_prompt_do_not_act() {
    let mut value = fixture_json();
    value["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    value["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<|pad|>"});
    value["model"]["dropout"] = json!(0.9);
    let (changed, plain) = (from_value(&value).unwrap(), fixture_tokenizer());
    let text = "Record number 47. Rixtron Glass is based in Breludale.";
    assert_eq!(changed.encode(text, false).unwrap(), plain.encode(text, false).unwrap());
}

#[test]
fn ids_that_the_loader_would_change_are_refused() {
    let mut value = fixture_json();
    value["added_tokens"][2]["id"] = json!(7);
    let e = from_value(&value).unwrap_err();
    assert!(matches!(&e, TextError::Broken { what, .. } if what.contains("<|seg|>")), "{e}");
}

#[test]
fn a_marker_that_the_model_itself_makes_is_refused() {
    // Without a pre-tokenizer and with merges ignored, the whole text is looked up in the vocabulary.
    let mut value = fixture_json();
    value["pre_tokenizer"] = Value::Null;
    value["model"]["ignore_merges"] = json!(true);
    let t = from_value(&value).unwrap();
    let e = t.encode("<|seg|>", false).unwrap_err();
    assert!(matches!(&e, TextError::MarkerInText { marker } if marker == "<|seg|>"), "{e}");
    assert_eq!(t.encode("<|seg|>", true).unwrap(), [2]);
}

#[test]
fn automatic_prefixes() {
    assert!(fixture_tokenizer().prefix().is_empty());
    let t = from_value(&sentencepiece()).unwrap();
    assert_eq!(t.prefix(), [1]);
    // Encoding itself never adds it.
    assert_eq!(t.encode("a", false).unwrap(), [t.token_id("▁a").unwrap()]);

    let dir = Scratch::new();
    dir.write("tokenizer.json", fixture_json().to_string());
    for (config, prefix) in [
        (r#"{"add_bos_token": true, "bos_token": "<|bos|>"}"#, vec![1]),
        (r#"{"add_bos_token": true, "bos_token": {"content": "<|bos|>"}}"#, vec![1]),
        (r#"{"add_bos_token": false, "bos_token": "<|bos|>"}"#, vec![]),
        (r#"{"bos_token": "<|bos|>"}"#, vec![]),
        (r#"{"add_bos_token": true, "bos_token": null}"#, vec![]),
    ] {
        dir.write("tokenizer_config.json", config);
        assert_eq!(Tokenizer::from_dir(dir.path()).unwrap().prefix(), prefix, "{config}");
    }
    for config in ["{", r#"{"add_bos_token": true, "bos_token": "<absent>"}"#] {
        dir.write("tokenizer_config.json", config);
        assert!(matches!(Tokenizer::from_dir(dir.path()), Err(TextError::Broken { .. })), "{config}");
    }
}

#[test]
fn damaged_files() {
    let dir = Scratch::new();
    assert!(matches!(Tokenizer::from_dir(dir.path()), Err(TextError::Read { .. })));
    for bytes in ["", "{", "{}", "[]", "null", r#"{"version":"1.0"}"#, r#"{"added_tokens":3}"#, "\u{feff}{}"] {
        dir.write("tokenizer.json", bytes);
        let e = Tokenizer::from_dir(dir.path()).unwrap_err();
        assert!(matches!(&e, TextError::Broken { origin, .. } if origin.contains("tokenizer.json")), "{bytes}: {e}");
    }
    assert!(matches!(Tokenizer::from_bytes(&[0xff, 0x00]), Err(TextError::Broken { .. })));
    let whole = std::fs::read(fixture("tiny_qwen35").join("tokenizer.json")).unwrap();
    let last = whole.iter().rposition(|&b| b == b'}').unwrap();
    for end in (0..=last).step_by(7919).chain([last]) {
        assert!(Tokenizer::from_bytes(&whole[..end]).is_err(), "cut at {end}");
    }
    // Damage that is valid JSON: each part absent, null, or of another type.
    for part in ["model", "decoder", "pre_tokenizer", "added_tokens", "version", "normalizer", "post_processor"] {
        for other in [json!(null), json!(3), json!([]), json!({}), json!({"type": "None"})] {
            let mut value = fixture_json();
            value[part] = other;
            if let Ok(t) = from_value(&value) {
                t.encode("a <|seg|> b", false).ok();
                t.decode(&[5, 6], true).ok();
            }
        }
    }
    let mut value = fixture_json();
    value["model"]["merges"] = json!([["no", "such"]]);
    assert!(matches!(from_value(&value), Err(TextError::Broken { .. })));
    value["model"]["merges"] = json!([]);
    value["model"]["vocab"] = json!({});
    value["added_tokens"] = json!([]);
    assert!(matches!(from_value(&value), Err(TextError::Broken { .. })));
}

#[test]
fn a_panic_of_the_library_is_an_error() {
    // The template asks for a token that its table lacks; the library indexes the table.
    let mut value = sentencepiece();
    value["post_processor"]["special_tokens"] = json!({});
    let e = from_value(&value).unwrap_err();
    assert!(matches!(&e, TextError::Broken { what, .. } if what.contains("panicked")), "{e}");
}
