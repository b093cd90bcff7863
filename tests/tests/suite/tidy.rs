//! The tree keeps the rules that ARCHITECTURE.md states.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files of the project below `dir`, without build output and untracked fixtures.
fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let hidden = name.starts_with('.') && name != ".ci";
            if !hidden && !matches!(name.as_str(), "target" | "large") {
                files(&path, out);
            }
        } else {
            out.push(path);
        }
    }
}

fn all() -> Vec<PathBuf> {
    let mut out = Vec::new();
    files(&root(), &mut out);
    out
}

fn sources() -> Vec<(String, String)> {
    let kept = |path: &PathBuf| {
        path.extension()
            .is_some_and(|e| matches!(e.to_str(), Some("rs" | "wgsl" | "md" | "toml" | "py" | "cu" | "cuh")))
            || path.ends_with(".ci/run")
    };
    let relative = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        (name, fs::read_to_string(&path).expect("text"))
    };
    all().into_iter().filter(kept).map(relative).collect()
}

/// What each crate may depend on among the project's own.
const MAY: &[(&str, &[&str])] = &[
    ("algebra", &[]),
    ("device", &[]),
    ("kernels", &["device"]),
    ("cpu", &["device", "kernels"]),
    ("wgpu", &["device", "kernels"]),
    ("cuda", &["device", "kernels"]),
    ("ops", &["device", "kernels"]),
    ("model", &["device", "kernels", "ops"]),
    ("pic", &["device", "ops", "model"]),
    ("engine", &["device", "ops", "model", "pic"]),
    ("conformance", &["algebra", "device", "kernels", "ops", "model", "pic", "engine"]),
    // The registry of benches is a library that only the command line uses: `seam bench` runs what `cargo bench` runs.
    (
        "cli",
        &[
            "algebra",
            "device",
            "kernels",
            "cpu",
            "wgpu",
            "cuda",
            "ops",
            "model",
            "pic",
            "engine",
            "conformance",
            "benches",
        ],
    ),
];

#[test]
fn dependencies_point_one_way() {
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        let (_, may) = MAY.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} is not in the table"));
        let text = fs::read_to_string(path.join("Cargo.toml")).expect("Cargo.toml");
        let manifest: toml::Table = text.parse().expect("Cargo.toml is TOML");
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(|t| t.as_table()) else { continue };
            for own in dependencies.keys().filter_map(|d| d.strip_prefix("seam-")) {
                assert!(may.contains(&own), "{name} must not depend on {own}");
            }
        }
        seen.insert(name);
    }
    assert_eq!(seen.len(), MAY.len(), "every crate of the table exists: {seen:?}");
}

/// `ops`, `model` and `pic` never name a device crate, not even in prose that could become code.
#[test]
fn upper_crates_name_no_device_crate() {
    for (name, text) in sources() {
        if ["crates/ops/", "crates/model/", "crates/pic/", "crates/engine/"].iter().any(|c| name.starts_with(c)) {
            for device in ["seam_cpu", "seam_wgpu", "seam_cuda", "seam-cpu", "seam-wgpu", "seam-cuda"] {
                assert!(!text.contains(device), "{name} names {device}");
            }
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let word = ["unsafe", ""].concat();
    for (name, text) in sources() {
        let device = ["crates/cpu/", "crates/wgpu/", "crates/cuda/"].iter().any(|c| name.starts_with(c));
        let mapping = name == "crates/model/src/weights/file.rs";
        for (i, line) in text.lines().enumerate().filter(|_| name.ends_with(".rs")) {
            let code = line.split("//").next().unwrap_or_default();
            let starts = [" {", "{", " fn", " impl", " /*"].iter().any(|s| code.contains(&format!("{word}{s}")));
            if starts && !name.ends_with("tidy.rs") {
                assert!(device || mapping, "{name}:{}: {line}", i + 1);
                let near = text.lines().skip(i.saturating_sub(4)).take(6).any(|l| l.contains("SAFETY"));
                assert!(near, "{name}:{}: no SAFETY line", i + 1);
            }
        }
    }
}

#[test]
fn nothing_unfinished_and_no_local_paths() {
    let banned: Vec<String> = [
        ["todo", "!("],
        ["unimplemented", "!("],
        ["dbg", "!("],
        ["/ro", "ot/"],
        ["/wo", "rk/"],
        ["/ho", "me/"],
        ["crates", ".io"],
        ["pypi", ".org"],
        ["registry.", "npmjs"],
    ]
    .iter()
    .map(|parts| parts.concat())
    .collect();
    for (name, text) in sources() {
        for (i, line) in text.lines().enumerate() {
            for word in &banned {
                assert!(!line.contains(word), "{name}:{}: {word}", i + 1);
            }
        }
    }
}

#[test]
fn files_and_tree_stay_small() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        assert!(name.ends_with(".md") || lines <= 600, "{name} has {lines} lines, worth splitting");
    }
    let bytes: u64 = all().iter().map(|p| fs::metadata(p).expect("metadata").len()).sum();
    assert!(bytes <= 46 << 20, "the tree has {bytes} bytes, more than fits in one bundle");
}
