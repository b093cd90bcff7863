//! The checks of the conformance crate: they pass on every device, and fail on every defect.

mod files;
mod mutants;

use std::path::Path;
use std::sync::Arc;

use seam_algebra::families;
use seam_algebra::laws::{Law, LawReport, Options, every_cut, every_length};
use seam_algebra::strategy::{Case, Kind};
use seam_conformance::{Check, GoldenError, Report, check_path, kernels, laws};
use seam_device::Device;
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

fn kernel_goldens(device: &Arc<dyn Device>) {
    for (name, cases, per_case) in [("gated_delta_rule", 22, 12), ("delta_rule", 18, 12)] {
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

fn all_laws(device: &Arc<dyn Device>, options: &Options) -> Vec<LawReport> {
    let mut heard = 0;
    let reports = laws::run(device, options, &mut |_, _| heard += 1);
    assert_eq!(heard, reports.iter().map(|r| r.cases + r.skipped).sum::<usize>());
    reports
}

#[test]
fn laws_on_every_device() {
    for device in devices() {
        let reports = all_laws(&device, &Options { seed: 3, cases: 30, max_len: 300 });
        assert_eq!(reports.len(), Law::ALL.len());
        for report in &reports {
            assert!(report.passed, "{report}");
            // A software driver is asked for 16, of which a few may say nothing about order.
            assert!(report.cases >= 12, "{report}");
            println!("{report}");
        }
    }
}

/// Batches are bit-equal and an empty run changes nothing; the other laws round, so an exact 0 would mean that nothing
/// was measured.
#[test]
fn laws_measure_something() {
    for report in all_laws(&cpu(), &Options { seed: 4, cases: 12, max_len: 65 }) {
        assert_eq!(report.worst_error == 0.0, report.law == "batch", "{report}");
    }
}

/// Every cut of 70 tokens and every length up to it, on every form that the processor has for a family.
#[test]
fn every_cut_and_every_length_holds_on_the_processor() {
    let case = Case { seed: 9, kind: Kind::Anything, tokens: 70, key_heads: 1, ratio: 2, key_dim: 16, value_dim: 12 };
    let mut seen = 0;
    for family in families::all() {
        for mut subject in laws::subjects(&cpu(), *family) {
            let cut = every_cut(&mut *subject, &case).unwrap();
            let length = every_length(&mut *subject, &case).unwrap();
            assert!(cut.holds() && length.holds(), "{}: {cut:?} {length:?}", subject.name());
            // Two f32 results that agree to the last bit with f64 would be no results.
            assert!(cut.error > 0.0 && length.error > 0.0, "{}", subject.name());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// Of the families without a kernel nothing is compared, and that is not a pass.
#[test]
fn families_without_a_kernel_are_skipped_not_passed() {
    let reports = check_path(&cpu(), &fixture("kernels"), &EngineOptions::default()).unwrap();
    assert_eq!(reports.len(), 11);
    for report in reports {
        let supported = ["gated_delta_rule", "delta_rule", "ops"].contains(&report.fixture.as_str());
        assert_eq!(report.passed(), supported, "{}", report.fixture);
        assert_eq!(report.checks.is_empty(), !supported, "{}", report.fixture);
        assert_eq!(report.skipped.is_empty(), supported, "{}", report.fixture);
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
    let chain = ["", " (in two passes)"];
    let applied = ["", " (in two passes)", " (applied)", " (applied beside an operator)"];
    let operator = ["", " (in two passes)", " (applied to the identity)"];
    // The golden operator is an input of `applied` too: there the changed value is given back as it is.
    let of_operator = ["/s_final (applied)", "/s_final (applied beside an operator)"];
    for (file, tensor, expected) in [
        ("gated_delta_rule", "len_t300/o", chain.map(|how| format!("len_t300/o{how}")).to_vec()),
        ("gated_delta_rule", "len_t7/s_final", applied.map(|how| format!("len_t7/s_final{how}")).to_vec()),
        ("gated_delta_rule", "beta_one_t130/s_zero", {
            let own = operator[..2].iter().map(|how| format!("beta_one_t130/s_zero{how}"));
            own.chain(of_operator.map(|how| format!("beta_one_t130{how}"))).collect()
        }),
        ("gated_delta_rule", "decay_near_one_t130/t_c", {
            let own = operator[..2].iter().map(|how| format!("decay_near_one_t130/t_c{how}"));
            own.chain(of_operator.map(|how| format!("decay_near_one_t130{how}"))).collect()
        }),
        ("delta_rule", "wide_t65/o", chain.map(|how| format!("wide_t65/o{how}")).to_vec()),
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
