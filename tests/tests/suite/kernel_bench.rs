//! `seam bench kernels` and the cases behind it. No time decides anything here.

use std::collections::BTreeSet;
use std::sync::Arc;

use seam_benches::Scale;
use seam_benches::kernels::{Options, Status, kernel_cases, run};
use seam_device::Device;
use seam_kernels::manifest::MANIFEST;
use seam_tests::{cpu, cuda, cuda_bf16, devices};
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{seam, text};

/// Every case is right wherever there is a kernel; what a device lacks is a row that says so.
#[test]
fn every_case_is_right_or_missing_on_every_device() {
    for device in devices() {
        let cases = kernel_cases(Scale::Small);
        let options = Options { repeats: 1, ..Options::default() };
        let report = run(&device, &cases, &options, &mut |_| {}).expect("ceilings");
        assert_eq!(report.kernels.len(), cases.len());
        for row in &report.kernels {
            let lacks =
                row.status == Status::Missing && (row.name.starts_with("mlstm/") || row.name.contains("/tile/"));
            assert!(row.status == Status::Timed || lacks, "{}: {:?} {}", row.name, row.status, row.reason);
            assert_eq!(row.reason.is_empty(), row.status == Status::Timed, "{}", row.name);
        }
        assert!(report.passed);
    }
}

#[test]
fn every_kernel_of_the_manifest_has_a_case() {
    let options = Options { repeats: 1, ..Options::default() };
    let launched = |device: &Arc<dyn Device>| -> BTreeSet<&str> {
        let report = run(device, &kernel_cases(Scale::Small), &options, &mut |_| {}).expect("ceilings");
        report.kernels.iter().flat_map(|row| row.kernels.iter().copied()).collect()
    };
    let mut all = launched(&cpu());
    let portable = MANIFEST.iter().filter(|k| k.twin.is_some() || k.wgsl.is_some()).map(|k| k.name);
    assert_eq!(portable.filter(|name| !all.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    // Some of what only CUDA has is for keys in f32, some for bf16.
    if let (Some(f32), Some(bf16)) = (cuda(), cuda_bf16()) {
        all.extend(launched(&f32));
        all.extend(launched(&bf16));
        assert_eq!(all, MANIFEST.iter().map(|k| k.name).collect());
    }
}

/// A number that is there and finite.
fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().filter(|x| x.is_finite()).unwrap_or_else(|| panic!("{field} of {value}"))
}

#[test]
fn the_document_has_every_field_and_the_picture_every_point() {
    let dir = TempDir::new().expect("folder");
    let (svg, out) = (dir.path().join("roofline.svg"), dir.path().join("kernels.json"));
    let line =
        ["bench", "kernels", "--size", "small", "--device", "cpu", "--repeats", "2", "--json", "--filter", "norm"];
    let ran = seam(&[&line[..], &["--svg", text(&svg), "--out", text(&out)]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json = ran.json();
    assert_eq!(json, serde_json::from_str::<Value>(&std::fs::read_to_string(&out).expect("written")).expect("JSON"));
    assert_eq!((&json["kind"], &json["size"], &json["precision"]), (&"cpu".into(), &"small".into(), &"f32".into()));
    assert!(json["device"].is_string() && json["driver"].is_string() && json["passed"] == true);
    for ceiling in ["copy", "product"] {
        assert!(number(&json[ceiling]["seconds"], "median") > 0.0 && number(&json[ceiling], "bytes") > 0.0);
    }
    let peak = number(&json["product"], "flops") / number(&json["product"]["seconds"], "median");
    assert!((number(&json["roofline"], "flops_per_s") / peak - 1.0).abs() < 1e-9);
    let rows = json["kernels"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{rows:#?}");
    for row in rows {
        assert_eq!((&row["status"], &row["reason"]), (&"timed".into(), &"".into()), "{row}");
        for field in ["min", "lower", "median", "upper", "max"] {
            assert!(number(&row["seconds"], field) > 0.0);
        }
        for field in ["bytes", "flops", "samples", "runs", "sets"] {
            assert!(number(row, field) >= 1.0, "{field}");
        }
        for field in ["gb_per_s", "tflop_per_s", "intensity", "roofline_seconds", "ratio"] {
            assert!(number(&row["achieved"], field) > 0.0, "{field}");
        }
        assert!(row["cached"].is_boolean() && row["device_time"].is_boolean());
        let checks = row["checks"].as_array().expect("checks");
        assert!(checks.len() >= 3 && checks.iter().all(|check| check["passed"] == true), "{checks:#?}");
        assert!(checks.iter().all(|check| number(check, "error") <= number(check, "bound")));
    }
    let svg = std::fs::read_to_string(&svg).expect("plot");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<circle").count(), 4);
    assert!(svg.contains("gated_rms_norm/60") && svg.contains("copy:") && svg.contains("product:"));
}

#[test]
fn a_filter_that_finds_nothing_is_an_error_that_lists_names() {
    let ran = seam(&["bench", "kernels", "--device", "cpu", "--filter", "no_such_kernel"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("no_such_kernel") && ran.err.contains("gated_delta_rule/chunk"), "{}", ran.err);
    let ran = seam(&["bench", "kernels", "--size", "real", "--list", "--filter", "gated_delta_rule/chunk/1x"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("gated_delta_rule/chunk/1x32768") && ran.out.contains("HV 32 K 128 V 128"), "{}", ran.out);
}

#[test]
fn the_table_names_ceilings_and_cases() {
    let ran = seam(&["bench", "kernels", "--device", "cpu", "--repeats", "1", "--filter", "mlstm"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for wanted in ["copy ", "product ", "mlstm/recurrent/operator/", "2 timed, 0 without a kernel", "ratio"] {
        assert!(ran.out.contains(wanted), "{wanted} in\n{}", ran.out);
    }
    assert!(!ran.err.contains("kernels ["), "no bar where standard error is no terminal: {}", ran.err);
}
