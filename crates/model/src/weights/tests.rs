//! Weight files: the fixtures, shards, and every damaged header.

use std::path::Path;

use seam_device::DType;

use super::header::Header;
use super::*;
use crate::testing::{Scratch, f32s, fixture, raw_safetensors, safetensors};

fn header_error(header: &str, data: &[u8]) -> WeightsError {
    Header::parse(&raw_safetensors(header, data), Path::new("x.safetensors")).unwrap_err()
}

#[test]
fn the_nested_fixture() {
    let w = Weights::open(&fixture("qwen3_5_dense")).unwrap();
    assert_eq!(w.names().count(), 114);
    assert_eq!(w.files()[0].metadata("format"), Some("pt"));
    let names = WeightNames::detect(&w).unwrap();
    assert_eq!(names.prefix(), "model.language_model.");
    assert_eq!(names.lm_head(), "lm_head.weight");
    let t = w.expect(&names.layer(0, "linear_attn.A_log"), &[4]).unwrap();
    assert_eq!((t.dtype, t.elements(), t.to_f32().unwrap().len()), (DType::F32, 4, 4));
    let t = w.expect(&names.embedding(), &[256, 64]).unwrap();
    assert_eq!((t.dtype, t.bytes.len()), (DType::BF16, 256 * 64 * 2));
    for name in w.names() {
        check_finite(&w.get(name).unwrap()).unwrap();
    }
    let used = w.names().filter(|n| n.starts_with("model.language_model.")).map(str::to_owned).collect();
    assert_eq!(w.unused(&used, IGNORED_PREFIXES), ["lm_head.weight"]);
    assert!(w.unused(&used, &[]).iter().any(|n| n.starts_with("mtp.")));
    assert!(w.unused(&used, &[]).iter().any(|n| n.starts_with("model.visual.")));
}

#[test]
fn the_flat_fixtures() {
    for name in ["qwen3_5_dense_tied", "tiny_qwen35"] {
        let w = Weights::open(&fixture(name)).unwrap();
        let names = WeightNames::detect(&w).unwrap();
        assert_eq!(names.prefix(), "model.");
        assert!(!w.contains(&names.lm_head()));
        assert!(w.contains(&names.top("norm.weight")));
        assert!(w.data_bytes() > 0);
    }
}

#[test]
fn every_kernel_golden_is_read() {
    let mut files = 0;
    for entry in std::fs::read_dir(fixture("kernels")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            let w = Weights::open_file(&path).unwrap();
            for name in w.names() {
                let t = w.get(name).unwrap();
                let n = if t.dtype == DType::I64 { t.to_i64().unwrap().len() } else { t.to_f64().unwrap().len() };
                assert_eq!(n, t.shape.iter().product::<usize>(), "{name}");
            }
            files += 1;
        }
    }
    assert_eq!(files, 11);
}

#[test]
fn values_of_every_float_type() {
    let dir = Scratch::new();
    let path = dir.write(
        "m.safetensors",
        // The odd byte in front makes every later tensor unaligned.
        safetensors(&[
            ("a", "U8", &[1], vec![7]),
            ("bf", "BF16", &[2], vec![0x80, 0x3f, 0x00, 0xc0]),
            ("h", "F16", &[1], vec![0x00, 0x3c]),
            ("d", "F64", &[], 0.5f64.to_le_bytes().to_vec()),
            ("f", "F32", &[2, 1], f32s(&[3.0, -0.25])),
            ("i", "I64", &[1], (-5i64).to_le_bytes().to_vec()),
            ("none", "F32", &[0, 3], vec![]),
            ("q", "F8_E4M3", &[2], vec![0x38, 0xfe]),
            ("other", "F8_E5M2", &[2], vec![0, 0]),
        ]),
    );
    let w = Weights::open_file(&path).unwrap();
    let f32_of = |n: &str| w.get(n).unwrap().to_f32();
    assert_eq!(f32_of("bf").unwrap(), [1.0, -2.0]);
    assert_eq!(f32_of("h").unwrap(), [1.0]);
    assert_eq!(f32_of("d").unwrap(), [0.5]);
    assert_eq!(f32_of("f").unwrap(), [3.0, -0.25]);
    assert!(f32_of("none").unwrap().is_empty());
    assert_eq!(w.get("i").unwrap().to_i64().unwrap(), [-5]);
    assert_eq!(w.get("d").unwrap().elements(), 1);
    assert!(matches!(f32_of("i"), Err(WeightsError::Dtype { found: DType::I64, .. })));
    assert!(matches!(w.get("f").unwrap().to_i64(), Err(WeightsError::Dtype { .. })));
    assert_eq!(f32_of("q").unwrap(), [1.0, -448.0]);
    let e = w.get("other").unwrap_err();
    assert!(matches!(&e, WeightsError::UnsupportedDtype { tensor, .. } if tensor == "other"), "{e}");
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    let w = Weights::open(&fixture("qwen3_5_dense_tied")).unwrap();
    let e = w.get("model.layers.9.mlp.up_proj.weight").unwrap_err();
    assert!(matches!(&e, WeightsError::MissingTensor { tensor, .. } if tensor == "model.layers.9.mlp.up_proj.weight"));
    let e = w.expect("model.norm.weight", &[65]).unwrap_err();
    let WeightsError::Shape { tensor, file, expected, found } = e else { panic!("{e}") };
    assert_eq!((tensor.as_str(), expected, found), ("model.norm.weight", vec![65], vec![64]));
    assert!(file.ends_with("model.safetensors"));
    assert!(matches!(w.expect("model.norm.weight", &[1, 64]), Err(WeightsError::Shape { .. })));
}

#[test]
fn weights_must_be_numbers() {
    let dir = Scratch::new();
    let mut long = vec![0u8; 2 * 9000];
    long[2 * 8999..].copy_from_slice(&[0xc0, 0x7f]);
    let path = dir.write(
        "m.safetensors",
        safetensors(&[
            ("bf", "BF16", &[9000], long),
            ("d", "F64", &[2], [1.0, f64::NEG_INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect()),
            ("f", "F32", &[3], f32s(&[f32::MAX, 1.0, f32::NAN])),
            ("h", "F16", &[2], vec![0xff, 0x7b, 0x00, 0x7c]),
            ("i", "I64", &[1], vec![0xff; 8]),
            ("ok", "F32", &[2], f32s(&[f32::MIN_POSITIVE / 2.0, -0.0])),
        ]),
    );
    let w = Weights::open_file(&path).unwrap();
    for (name, at) in [("bf", 8999), ("d", 1), ("f", 2), ("h", 1)] {
        let e = check_finite(&w.get(name).unwrap()).unwrap_err();
        let WeightsError::NonFinite { tensor, index, value } = e else { panic!("{e}") };
        assert_eq!((tensor.as_str(), index), (name, at));
        assert!(!value.is_finite());
    }
    for name in ["i", "ok"] {
        check_finite(&w.get(name).unwrap()).unwrap();
    }
}

#[test]
fn damaged_headers() {
    let entry = |e: &WeightsError, part: &str| {
        let WeightsError::Entry { tensor, what, .. } = e else { panic!("{e}") };
        assert!(tensor == "b" && what.contains(part), "{e}");
    };
    let a = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let two = |b: &str, data: usize| header_error(&format!("{{{a},{b}}}"), &vec![0; data]);
    entry(&two(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}"#, 6), "overlaps");
    entry(&two(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#, 4), "overlaps");
    entry(&two(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}"#, 12), "hole of 4");
    entry(&two(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}"#, 7), "past the 7 bytes");
    entry(&two(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}"#, 8), "backwards");
    entry(&two(r#""b":{"dtype":"F32","shape":[2],"data_offsets":[4,8]}"#, 8), "takes 8 bytes");
    entry(&two(r#""b":{"dtype":"F4","shape":[3],"data_offsets":[4,6]}"#, 6), "takes 2 bytes");
    let huge = u64::MAX / 2;
    entry(&two(&format!(r#""b":{{"dtype":"F32","shape":[{huge},8],"data_offsets":[4,8]}}"#), 8), "overflows");
    entry(&two(&format!(r#""b":{{"dtype":"F32","shape":[1],"data_offsets":[4,{}]}}"#, u64::MAX), 8), "past");

    let e = header_error(&format!("{{{a},{a}}}"), &[0; 4]);
    assert!(matches!(&e, WeightsError::Entry { tensor, what, .. } if tensor == "a" && what.contains("twice")), "{e}");
    let says = |header: &str, data: &[u8], part: &str| {
        let e = header_error(header, data);
        assert!(matches!(&e, WeightsError::Header { what, .. } if what.contains(part)), "{e}");
    };
    says(r#"{"__metadata__":{"a":"b"},"__metadata__":{}}"#, &[], "twice");
    says(&format!("{{{a}}}"), &[0; 5], "1 bytes follow");
    says(r#" {}"#, &[], "begin with {");
    says("", &[], "begin with {");
    says("{]", &[], "header");
    says(r#"{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#, &[0; 4], "tensor a");
    says(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, &[0; 4], "tensor a");
    says(r#"{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}"#, &[0; 4], "tensor a");
    says(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}"#, &[0; 4], "tensor a");
    says(r#"{"a":{"dtype":"F32","data_offsets":[0,4]}}"#, &[0; 4], "tensor a");
    says(r#"{"a":7}"#, &[], "tensor a");
    says(r#"{"__metadata__":{"a":1}}"#, &[], "__metadata__");
    says(&"[".repeat(5000), &[], "begin with {");
    says(&r#"{"a":"#.repeat(5000), &[], "tensor a");
}

#[test]
fn lying_lengths_and_cut_files() {
    let dir = Scratch::new();
    let good = safetensors(&[("a", "F32", &[2], f32s(&[1.0, 2.0]))]);
    let json = good.len() - 8 - 8;
    let with_length = |n: u64| [&n.to_le_bytes(), &good[8..]].concat();
    for n in [0, json as u64 - 1, json as u64 + 1, good.len() as u64, 100_000_001, u64::MAX, u64::MAX - 8] {
        let path = dir.write("m.safetensors", with_length(n));
        assert!(matches!(Weights::open_file(&path), Err(WeightsError::Header { .. })), "length {n}");
    }
    for end in 0..good.len() {
        let path = dir.write("m.safetensors", &good[..end]);
        let r = Weights::open_file(&path);
        assert!(matches!(r, Err(WeightsError::Header { .. } | WeightsError::Entry { .. })), "cut at {end}");
    }
    assert!(Weights::open_file(&dir.write("m.safetensors", &good)).is_ok());
    // Nothing but an empty header is a sound file without tensors.
    let empty = Weights::open_file(&dir.write("e.safetensors", raw_safetensors("{}", &[]))).unwrap();
    assert!(empty.files()[0].is_empty() && empty.names().next().is_none());
}

#[test]
fn any_changed_header_byte_is_refused_or_harmless() {
    let good = safetensors(&[("a", "F32", &[2], f32s(&[1.0, 2.0])), ("b", "BF16", &[1, 2], vec![1, 2, 3, 4])]);
    let header = good.len() - 12;
    let (mut accepted, mut refused) = (0, 0);
    for at in 0..header {
        for value in 0..=255u8 {
            let mut bytes = good.clone();
            bytes[at] = value;
            match Header::parse(&bytes, Path::new("x")) {
                // Only a changed name, dtype of equal width, or digits that mean the same can pass.
                Ok(h) => {
                    accepted += 1;
                    assert_eq!(h.entries.len() + usize::from(!h.metadata.is_empty()), 2, "byte {at} = {value}");
                    for e in h.entries.values() {
                        assert!(e.start <= e.end && e.end <= bytes.len() && e.start >= h.data_start);
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(accepted >= header && refused > 10 * header, "{accepted} accepted, {refused} refused");
}

#[test]
fn a_folder_without_weights() {
    let dir = Scratch::new();
    assert!(matches!(Weights::open(dir.path()), Err(WeightsError::NotFound { .. })));
    assert!(matches!(Weights::open(&dir.path().join("absent")), Err(WeightsError::NotFound { .. })));
    std::fs::create_dir(dir.path().join("model.safetensors")).unwrap();
    assert!(matches!(Weights::open(dir.path()), Err(WeightsError::Read { .. })));
    assert!(matches!(Weights::open_file(&dir.path().join("x")), Err(WeightsError::Read { .. })));
}

const INDEX: &str = "model.safetensors.index.json";

fn shards(dir: &Scratch) {
    dir.write(
        "model-1.safetensors",
        safetensors(&[("a", "F32", &[1], f32s(&[1.0])), ("b", "F32", &[1], f32s(&[2.0]))]),
    );
    dir.write("model-2.safetensors", safetensors(&[("c", "F32", &[1], f32s(&[3.0]))]));
}

fn index(dir: &Scratch, map: &str) -> Result<Weights, WeightsError> {
    dir.write(INDEX, format!(r#"{{"metadata":{{"total_size":12}},"weight_map":{map}}}"#));
    Weights::open(dir.path())
}

#[test]
fn sharded_weights() {
    let dir = Scratch::new();
    shards(&dir);
    let map = r#"{"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors"}"#;
    let w = index(&dir, map).unwrap();
    assert_eq!(w.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!((w.files().len(), w.data_bytes()), (2, 12));
    for (name, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
        assert_eq!(w.expect(name, &[1]).unwrap().to_f32().unwrap(), [value]);
    }
    let e = w.expect("c", &[2]).unwrap_err();
    assert!(matches!(&e, WeightsError::Shape { file, .. } if file.ends_with("model-2.safetensors")), "{e}");
}

#[test]
fn damaged_indexes() {
    let dir = Scratch::new();
    shards(&dir);
    let e = index(&dir, r#"{"a":"model-1.safetensors","c":"model-3.safetensors"}"#).unwrap_err();
    assert!(matches!(&e, WeightsError::MissingShard { shard, .. } if shard == "model-3.safetensors"), "{e}");
    let e = index(&dir, r#"{"a":"model-1.safetensors","d":"model-2.safetensors"}"#).unwrap_err();
    assert!(matches!(&e, WeightsError::NotInShard { tensor, .. } if tensor == "d"), "{e}");
    let e = index(&dir, r#"{"a":"model-2.safetensors","b":"model-1.safetensors"}"#).unwrap_err();
    assert!(matches!(&e, WeightsError::NotInShard { tensor, .. } if tensor == "a"), "{e}");
    for bad in [
        "../model-1.safetensors",
        "/etc/model-1.safetensors",
        "./model-1.safetensors",
        "sub/model-1.safetensors",
        "model-1.safetensors/",
        "..",
        "",
        "sub\\\\model-1.safetensors",
        "C:model-1.safetensors",
        "model-1.safetensors\\u0000",
        "config.json",
    ] {
        let e = index(&dir, &format!(r#"{{"a":"{bad}"}}"#)).unwrap_err();
        assert!(matches!(&e, WeightsError::Index { what, .. } if what.contains("plain")), "{bad}: {e}");
    }
    for bad in ["{}", "[]", "7", r#"{"a":7}"#] {
        assert!(matches!(index(&dir, bad), Err(WeightsError::Index { .. })), "{bad}");
    }
    for text in ["", "{", "[]", "{}"] {
        dir.write(INDEX, text);
        assert!(matches!(Weights::open(dir.path()), Err(WeightsError::Index { .. })), "{text}");
    }
    dir.write("model-2.safetensors", safetensors(&[("a", "F32", &[1], f32s(&[3.0]))]));
    let e = index(&dir, r#"{"b":"model-1.safetensors","a":"model-2.safetensors"}"#).unwrap_err();
    assert!(matches!(&e, WeightsError::InTwoShards { tensor, .. } if tensor == "a"), "{e}");
    dir.write("model-2.safetensors", "short");
    let e = index(&dir, r#"{"b":"model-1.safetensors","a":"model-2.safetensors"}"#).unwrap_err();
    assert!(matches!(&e, WeightsError::Header { path, .. } if path.ends_with("model-2.safetensors")), "{e}");
}

#[test]
fn the_prefix_must_be_clear() {
    let dir = Scratch::new();
    let open = |names: &[&str]| {
        let tensors: Vec<_> = names.iter().map(|&n| (n, "F32", [1].as_slice(), f32s(&[0.0]))).collect();
        WeightNames::detect(&Weights::open_file(&dir.write("m.safetensors", safetensors(&tensors))).unwrap())
    };
    let both = ["model.embed_tokens.weight", "model.language_model.embed_tokens.weight"];
    assert!(matches!(open(&both), Err(WeightsError::TwoEmbeddings { .. })));
    assert!(matches!(open(&["transformer.wte.weight"]), Err(WeightsError::NoEmbedding { .. })));
    assert_eq!(open(&both[..1]).unwrap().layer(3, "x"), "model.layers.3.x");
}

#[test]
fn the_fingerprint_sees_every_part() {
    // Two tensors of 80 KiB: the first 64 KiB of each count.
    let big = |first: u8, last: u8| {
        let mut bytes = vec![0u8; 80 << 10];
        bytes[0] = first;
        *bytes.last_mut().unwrap() = last;
        bytes
    };
    let print = |config: &str, tokenizer: Option<&str>, name: &str, a: Vec<u8>, b: Vec<u8>| {
        let dir = Scratch::new();
        dir.write("config.json", config);
        if let Some(t) = tokenizer {
            dir.write("tokenizer.json", t);
        }
        let n = [80 << 10];
        dir.write("model.safetensors", safetensors(&[("a", "U8", &n, a), (name, "U8", &n, b)]));
        fingerprint(dir.path(), &Weights::open(dir.path()).unwrap()).unwrap()
    };
    let same = || print("{}", Some("{}"), "b", big(0, 0), big(0, 0));
    let base = same();
    assert_eq!(base, same());
    let others = [
        print("{ }", Some("{}"), "b", big(0, 0), big(0, 0)),
        print("{}", Some("{ }"), "b", big(0, 0), big(0, 0)),
        print("{}", Some(""), "b", big(0, 0), big(0, 0)),
        print("{}", None, "b", big(0, 0), big(0, 0)),
        print("{}", Some("{}"), "c", big(0, 0), big(0, 0)),
        print("{}", Some("{}"), "b", big(1, 0), big(0, 0)),
        print("{}", Some("{}"), "b", big(0, 0), big(1, 0)),
    ];
    let all: BTreeSet<_> = others.iter().chain([&base]).collect();
    assert_eq!(all.len(), others.len() + 1);
    assert_eq!(print("{}", Some("{}"), "b", big(0, 1), big(0, 1)), base);
}
