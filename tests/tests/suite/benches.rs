//! Benches are verified wherever they are timed. No time decides anything here.

use std::collections::BTreeSet;
use std::sync::Arc;

use seam_benches::{BENCHES, Bench, Plan, Scale, measure};
use seam_device::Device;
use seam_kernels::Kernel;
use seam_kernels::manifest::MANIFEST;
use seam_tests::{cpu, cuda, cuda_bf16, devices};

#[test]
fn every_bench_is_right_on_every_device() {
    for device in devices().into_iter().chain(cuda_bf16()) {
        for bench in BENCHES.iter().filter(|b| b.available(device.caps())) {
            let mut case = bench.prepare(&device, Scale::Small).expect(bench.name);
            let verdict = case.verify().expect(bench.name);
            let (kind, name) = (device.caps().kind, bench.name);
            assert!(verdict.passed(), "{name} on {kind}: {:#?}", verdict.checks);
            // A run leaves nothing behind that changes the next one.
            case.run().expect(name);
            assert!(case.verify().expect(name).passed(), "{name} on {kind}, again");
        }
    }
}

/// Every output is compared in full at this scale: one value of any of them moved by a hundredth of the largest is found,
/// and so is one that is not a number, or missing.
#[test]
fn spoiled_results_are_noticed() {
    let device = cpu();
    for bench in BENCHES.iter().filter(|b| b.available(device.caps())) {
        let name = bench.name;
        let mut case = bench.prepare(&device, Scale::Small).expect(name);
        let outputs = case.outputs().expect(name);
        assert!(case.check(&outputs).expect(name).passed(), "{name}");
        assert!(!outputs.is_empty(), "{name}");
        for i in 0..outputs.len() {
            let len = outputs[i].len();
            // An output may hold parts of different size, so each value is moved by what is much for itself.
            for at in [0, len / 2, len - 1] {
                for spoil in [|x: f32| x + 0.01 * x.abs().max(1.0), |_| f32::NAN] {
                    let mut spoiled = outputs.clone();
                    spoiled[i][at] = spoil(spoiled[i][at]);
                    assert!(!case.check(&spoiled).expect(name).passed(), "{name}: output {i}, value {at}");
                }
            }
            let mut short = outputs.clone();
            short[i].pop();
            assert!(!case.check(&short).expect(name).passed(), "{name}: output {i} cut short");
        }
        assert!(!case.check(&[]).expect(name).passed(), "{name}: no outputs");
    }
}

#[test]
fn names_are_unique_and_shapes_differ_by_scale() {
    let names: BTreeSet<&str> = BENCHES.iter().map(|b| b.name).collect();
    assert_eq!(names.len(), BENCHES.len());
    for bench in BENCHES {
        assert_ne!(bench.shape(Scale::Small), bench.shape(Scale::Real), "{}", bench.name);
        assert!(!bench.what.is_empty());
    }
}

/// What is not benched is not known to be fast: the lists of the registry launch every kernel of the manifest, those that
/// only CUDA has on such a device.
#[test]
fn every_kernel_is_benched() {
    let launched = |device: &Arc<dyn Device>| -> BTreeSet<&str> {
        let prepare = |b: &Bench| b.prepare(device, Scale::Small).expect(b.name).kernels().to_vec();
        BENCHES.iter().filter(|b| b.available(device.caps())).flat_map(prepare).collect()
    };
    let portable = |k: &Kernel| k.twin.is_some() || k.wgsl.is_some();
    let all: BTreeSet<&str> = MANIFEST.iter().filter(|k| portable(k)).map(|k| k.name).collect();
    // A product of the cpu is no kernel: what devices may launch for one is named all the same.
    let on_cpu: BTreeSet<&str> = launched(&cpu()).intersection(&all).copied().collect();
    assert_eq!(on_cpu, all);
    // Some of what only CUDA has is for keys in f32, some for bf16.
    if let (Some(f32), Some(bf16)) = (cuda(), cuda_bf16()) {
        let launched: BTreeSet<&str> = launched(&f32).union(&launched(&bf16)).copied().collect();
        let only = MANIFEST.iter().filter(|k| !portable(k)).map(|k| k.name);
        assert_eq!(only.filter(|name| !launched.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

/// The machinery of timing, on the shortest case: as many samples as asked for, none of them negative, in order.
#[test]
fn a_case_can_be_timed() {
    let bench = BENCHES.iter().find(|b| b.name == "gemm/decode").expect("it is registered");
    let mut case = bench.prepare(&cpu(), Scale::Small).expect("case");
    let timing = measure(&mut case, &Plan { samples: 7, least: 7, ..Plan::default() }).expect("timing");
    assert_eq!(timing.samples, 7);
    for spread in [Some(timing.host), timing.device].into_iter().flatten() {
        let ordered = [0.0, spread.min, spread.lower, spread.median, spread.upper, spread.max];
        assert!(ordered.windows(2).all(|w| w[0] <= w[1]), "{spread:?}");
    }
}
