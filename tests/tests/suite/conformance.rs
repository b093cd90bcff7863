//! The checks of the conformance crate: they pass on every device, and fail on every defect.

mod files;
mod mutants;

use std::path::Path;
use std::sync::Arc;

use seam_algebra::families;
use seam_algebra::families::GatedDeltaRule;
use seam_algebra::laws::{Law, LawReport, Options, Subject, run_laws};
use seam_conformance::laws::DeviceSubject;
use seam_conformance::{Check, GoldenError, Method, Report, check_path, kernels, laws};
use seam_device::{Device, DeviceKind};
use seam_engine::EngineOptions;
use seam_tests::{cpu, devices, fixture};

use files::{Edit, Tensors, edited};

fn goldens(device: &Arc<dyn Device>, name: &str) -> Report {
    kernels::check(device, &fixture("kernels").join(format!("{name}.safetensors"))).expect(name)
}

fn failed(report: &Report) -> Vec<&Check> {
    report.checks.iter().filter(|c| !c.passed()).collect()
}

/// The check that uses the largest share of its bound, apart from those of applied operators, which are off by little
/// more than one rounding everywhere.
fn worst(report: &Report) -> String {
    let share = |c: &Check| if c.error == 0.0 { 0.0 } else { c.error / c.bound };
    let computed = report.checks.iter().filter(|c| !c.name.contains(" (applied"));
    let worst = computed.max_by(|a, b| share(a).total_cmp(&share(b)));
    worst.map_or_else(String::new, |c| format!("{} {:.1e} of {:.1e}", c.name, c.error, c.bound))
}

/// The files of recurrences, their cases, and the checks of one: by each method four in one pass and in two, and five of
/// the golden operator applied.
const RECURRENCES: &[(&str, usize, usize)] = &[
    ("linear_attn", 11, 2 * (8 + 1) + 4),
    ("retention", 11, 2 * 8 + 4),
    ("lightning", 13, 2 * 8 + 4),
    ("simple_gla", 14, 2 * 8 + 4),
    ("mamba2_ssd", 14, 2 * 8 + 4),
    ("gla", 15, 2 * 8 + 4),
    ("delta_rule", 18, 2 * 8 + 4),
    ("gated_delta_rule", 22, 2 * 8 + 4),
    ("kda", 22, 2 * 8 + 4),
    // By each method, five states and two outputs computed at a position, and four states moved there.
    ("rope_shift", 3, 2 * 11),
];

fn kernel_goldens(device: &Arc<dyn Device>) {
    for &(name, cases, per_case) in RECURRENCES {
        let report = goldens(device, name);
        assert!(report.passed(), "{name} on {}: {:#?}", report.device, failed(&report));
        assert_eq!((report.checks.len(), report.skipped.len()), (cases * per_case, 0), "{name}");
        println!("{name} on {}: {} checks, worst {}", report.device, report.checks.len(), worst(&report));
    }
    let report = goldens(device, "ops");
    assert!(report.passed(), "ops on {}: {:#?}", report.device, failed(&report));
    // Nine norms, the gates of five kinds, rotations of two kernels with what they keep; 5 fresh convolutions and 5
    // continued ones from two slabs, each with and without a bias; indices and weights of three routers; fixed decays.
    let (gates, rotations, convolutions) = (2 + 1 + 3 + 3 + 4, 2 * 2 + 3 * 2, 5 * 3 + 5 * 6);
    assert_eq!(report.checks.len(), 9 + gates + rotations + convolutions + 3 * 2 + 5 * 3 + 1);
    assert_eq!(report.skipped, []);
    println!("ops on {}: {} checks, worst {}", report.device, report.checks.len(), worst(&report));
}

#[test]
fn kernel_goldens_on_every_device() {
    devices().iter().for_each(kernel_goldens);
}

fn all_laws(subject: &mut dyn Subject, options: &Options) -> Vec<LawReport> {
    let mut heard = 0;
    let reports = run_laws(subject, options, &mut |_, _| heard += 1);
    assert_eq!(heard, reports.iter().map(|r| r.cases + r.skipped).sum::<usize>());
    let family = subject.family();
    assert_eq!(reports.len(), Law::ALL.iter().filter(|law| law.silent_on(family).is_none()).count());
    reports
}

#[test]
fn laws_of_every_family_on_every_device() {
    for device in devices() {
        let software = device.caps().kind == DeviceKind::Wgpu;
        let options = Options { seed: 3, cases: if software { 3 } else { 12 }, max_len: 140 };
        for family in families::all() {
            let mut subjects = laws::subjects(&device, *family);
            let alone = ["rwkv7", "mlstm"].contains(&family.name());
            let absent = device.caps().kind != DeviceKind::Cpu && family.name() == "mlstm";
            assert_eq!(subjects.len(), if absent { 0 } else { 2 - usize::from(alone) }, "{}", family.name());
            for subject in &mut subjects {
                for report in all_laws(&mut **subject, &options) {
                    let silent =
                        Law::ALL.into_iter().find(|l| l.name() == report.law).and_then(|l| l.silent_on(*family));
                    assert!(report.passed || silent.is_some(), "{}: {report}", family.name());
                    // A few cases may say nothing about order.
                    assert!(report.cases > 0 || silent.is_some(), "{}: {report}", family.name());
                }
            }
        }
    }
}

/// Batches are bit-equal; the other laws round, so an exact 0 would mean that nothing was measured.
#[test]
fn laws_measure_something() {
    for method in Method::ALL {
        let mut subject = DeviceSubject::new(&cpu(), &GatedDeltaRule, method).expect("a kernel");
        for report in all_laws(&mut subject, &Options { seed: 4, cases: 12, max_len: 65 }) {
            assert_eq!(report.worst_error == 0.0, report.law == "batch", "{report}");
        }
    }
}

/// Nothing of the kernel goldens is skipped.
#[test]
fn every_file_of_kernel_goldens_is_checked() {
    let reports = check_path(&cpu(), &fixture("kernels"), &EngineOptions::default()).unwrap();
    assert_eq!(reports.len(), 11);
    for report in reports {
        assert!(report.passed() && !report.checks.is_empty() && report.skipped.is_empty(), "{}", report.fixture);
    }
}

#[test]
fn a_path_is_checked_as_what_it_is() {
    let options = EngineOptions::default();
    let check = |path: &Path| check_path(&cpu(), path, &options);
    let one = check(&fixture("kernels/ops.safetensors")).unwrap();
    assert_eq!((one.len(), one[0].fixture.as_str()), (1, "ops"));
    let model = check(&fixture("qwen3_5_dense_tied")).unwrap();
    assert!(model.len() == 1 && model[0].passed() && model[0].fixture == "qwen3_5_dense_tied");

    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path, why: &str| match check(path) {
        Err(GoldenError::NotAGolden { path: named, what }) => {
            assert!(named == path && what.contains(why), "{}: {what}", path.display());
        }
        other => panic!("{}: {other:?}", path.display()),
    };
    refused(&dir.path().join("absent"), "");
    refused(dir.path(), "neither a config.json nor .safetensors");
    std::fs::write(dir.path().join("config.json"), "{}").unwrap();
    refused(dir.path(), "no golden.safetensors");
    refused(&dir.path().join("config.json"), ".safetensors file");
    // A model's weights are no kernel goldens.
    assert!(matches!(check(&fixture("qwen3_5_dense/model.safetensors")), Err(GoldenError::Check(_))));
}

/// One value of a golden file is wrong by a hundredth: exactly the checks against it fail.
#[test]
fn a_changed_golden_fails() {
    let computed = [" (recurrent)", " (chunk)", " (recurrent, in two passes)", " (chunk, in two passes)"];
    let applied = [" (applied)", " (applied beside an operator)"];
    let all = |tensor: &str, hows: &[&str]| hows.iter().map(|how| format!("{tensor}{how}")).collect::<Vec<_>>();
    // The golden operator is an input of `applied` too: there the changed value is given back as it is.
    let operator = |case: &str, tensor: &str| {
        [all(&format!("{case}/{tensor}"), &computed), all(&format!("{case}/s_final"), &applied)].concat()
    };
    let rerotated =
        [" (recurrent, moved from 0)", " (chunk, moved from 0)", " (recurrent, computed)", " (chunk, computed)"];
    for (file, tensor, expected) in [
        ("gated_delta_rule", "len_t300/o", all("len_t300/o", &computed)),
        ("gated_delta_rule", "len_t7/s_final", all("len_t7/s_final", &[&computed[..], &applied].concat())),
        ("gated_delta_rule", "beta_one_t130/s_zero", operator("beta_one_t130", "s_zero")),
        ("gated_delta_rule", "decay_near_one_t130/t_c", operator("decay_near_one_t130", "t_c")),
        ("delta_rule", "wide_t65/o", all("wide_t65/o", &computed)),
        ("gla", "decay_near_one_t130/t_c", operator("decay_near_one_t130", "t_c")),
        ("lightning", "last_layer_t130/s_zero", operator("last_layer_t130", "s_zero")),
        ("mamba2_ssd", "decay_near_one_t130/y", all("decay_near_one_t130/y", &computed)),
        ("linear_attn", "len_t7/o_norm_abs", all("len_t7/o_norm_abs", &computed[..2])),
        ("rope_shift", "full_t65/s_at_4096", all("full_t65/s_at_4096", &rerotated)),
        ("ops", "rmsnorm/y", vec!["rmsnorm/y".to_owned()]),
        ("ops", "l2norm/y", vec!["l2norm/y".to_owned()]),
        ("ops", "gdn_gate/g", vec!["gdn_gate/g".to_owned()]),
        ("ops", "gdn_gate/beta", vec!["gdn_gate/beta".to_owned()]),
        ("ops", "conv_fresh_t3/y", vec!["conv_fresh_t3/y".to_owned()]),
        (
            "ops",
            "conv_continued_t2/state_out",
            ["", " (from an entry)"].map(|how| format!("conv_continued_t2/state_out{how}")).to_vec(),
        ),
        ("ops", "rope_neox_partial/y", ["", " (in rows)"].map(|how| format!("rope_neox_partial/y{how}")).to_vec()),
        ("ops", "rope_interleaved/y", vec!["rope_interleaved/y (in rows)".to_owned()]),
        ("ops", "conv_fresh_t9/y_bias", vec!["conv_fresh_t9/y_bias".to_owned()]),
        ("ops", "gate_then_group_rmsnorm_g4/y", vec!["gate_then_group_rmsnorm_g4/y".to_owned()]),
        ("ops", "gla_gate/gk", vec!["gla_gate/gk".to_owned()]),
        ("ops", "kda_safe_gate/g", ["", " (without beta)"].map(|how| format!("kda_safe_gate/g{how}")).to_vec()),
        ("ops", "mamba_dt/dt_clamped", ["", " (as g)"].map(|how| format!("mamba_dt/dt_clamped{how}")).to_vec()),
        ("ops", "router_grouped_sigmoid/weight", vec!["router_grouped_sigmoid/weight".to_owned()]),
        ("ops", "slopes_h12/hub", vec!["slopes_h12/hub".to_owned()]),
        ("ops", "retnet_gamma/log_gamma", vec!["retnet_gamma/log_gamma".to_owned()]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = edited(dir.path(), file, tensor, Edit::Largest(1.01));
        let report = kernels::check(&cpu(), &path).unwrap();
        let mut names: Vec<&str> = failed(&report).iter().map(|c| c.name.as_str()).collect();
        let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected, "{tensor}");
        assert!(!report.passed());
    }
}

/// A value that is not a number, in the reference or in an input, never passes.
#[test]
fn a_nan_fails() {
    for tensor in ["len_t7/o", "len_t7/s_zero", "len_t7/k", "len_t7/g"] {
        let dir = tempfile::tempdir().unwrap();
        let path = edited(dir.path(), "gated_delta_rule", tensor, Edit::Nan);
        let report = kernels::check(&cpu(), &path).unwrap();
        assert!(failed(&report).iter().any(|c| c.error == f64::INFINITY), "{tensor}");
    }
}

/// Files that cannot be understood are errors that say why, never a pass and never a panic.
#[test]
fn unusable_goldens_are_typed_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    let refused = |tensors: Tensors, why: &str| {
        tensors.write(&path);
        let error = kernels::check(&cpu(), &path).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    let case = |key: usize, tokens: usize| Tensors::delta_rule_case(tokens, 1, 2, key, 3);
    case(8, 2).write(&path);
    assert!(kernels::check(&cpu(), &path).unwrap().passed(), "the case is sound as it is made");

    refused(case(8, 2).metadata("spec", r#"{"name": "made_up"}"#), "the family made_up is not known");
    refused(case(8, 2).metadata("spec", "not json"), "names neither a family nor operations");
    refused(case(8, 2).metadata("case:a", "{}"), "the case a has no scale");
    refused(case(8, 2).float("a/extra", &[1], 0.0), "a/extra is not understood");
    refused(case(8, 2).float("alone", &[1], 0.0), "alone is not understood");
    refused(case(8, 2).float("a/beta", &[2, 1], 0.0), "a/beta");
    refused(case(8, 2).float("a/q", &[2, 8], 0.0), "a/q has the shape [2, 8]");
    refused(case(8, 2).without("a/t_c"), "a/t_c is not in");
    refused(case(8, 0), "has the shape [0, 1, 8]");
    refused(case(5, 2), "K = 5");
    refused(Tensors::default(), "no tensors");
    refused(Tensors::default().metadata("ops", "[]").float("made_up/x", &[1], 0.0), "made_up is not understood");
    std::fs::write(&path, b"short").unwrap();
    assert!(kernels::check(&cpu(), &path).is_err());
}
