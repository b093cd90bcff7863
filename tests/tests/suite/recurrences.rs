//! Recurrences of every family on every device, beyond the laws: chains of any steps, cut in any way.

use seam_algebra::laws::{SubjectError, every_cut, every_length};
use seam_algebra::strategy::{Case, Kind};
use seam_algebra::{Family, families};
use seam_conformance::programs::{Program, run};
use seam_conformance::{Method, laws};
use seam_device::{Device, DeviceKind};
use seam_tests::devices;

/// What a program may be off by: the bound of the laws, see `seam_conformance::tolerance::LAWS`.
const BOUND: f64 = 2e-5;

/// Whether a device is software that compiles for seconds.
fn slow(device: &dyn Device) -> bool {
    device.caps().kind == DeviceKind::Wgpu
}

/// A sequence of 70 tokens.
fn seventy(family: &dyn Family, kind: Kind) -> Case {
    let ratio = if family.conv_kernel().is_some() { 2 } else { 1 };
    Case { seed: 0x70, kind, tokens: 70, key_heads: 1, ratio, key_dim: 16, value_dim: 12 }
}

/// Every cut of 70 tokens into two pieces, of prefill pieces and single steps, and every length from 1 to 70.
#[test]
fn every_cut_and_every_length() {
    for device in devices() {
        for family in families::all() {
            for mut subject in laws::subjects(&device, *family) {
                let name = format!("{} on {}", family.name(), subject.name());
                if slow(&*device) && !["gated_delta_rule", "gla", "lightning"].contains(&family.name()) {
                    continue;
                }
                for kind in [Kind::Typical, Kind::HardReset] {
                    let case = seventy(*family, kind);
                    let cuts = every_cut(&mut *subject, &case).expect(&name);
                    assert!(cuts.holds(), "{name}, cuts: {cuts:?}");
                    if kind == Kind::Typical {
                        let lengths = every_length(&mut *subject, &case).expect(&name);
                        assert!(lengths.holds(), "{name}, lengths: {lengths:?}");
                    }
                }
            }
        }
    }
}

/// Any interleaving of zero, load, run, begin, apply, snapshot and store, cut by any budget, is its f64 interpretation.
#[test]
fn any_program_of_steps_is_its_interpretation() {
    for device in devices() {
        let (programs, steps) = if slow(&*device) { (2, 10) } else { (25, 14) };
        for family in families::all() {
            let mut ran = 0;
            for method in Method::ALL {
                let mut worst = 0.0f64;
                for seed in 0..programs {
                    let budget = [u32::MAX, 40, 16, 0][seed as usize % 4];
                    let sizes = if slow(&*device) { (1, 2, 4, 3) } else { (2, 2, 8, 5) };
                    let program = Program { seed: 1000 + seed, steps, budget, sizes };
                    match run(&device, *family, method, &program) {
                        Ok(error) => {
                            let name = (family.name(), method, device.caps().kind);
                            assert!(error <= BOUND, "{name:?}, {program:?}: {error:e}");
                            worst = worst.max(error);
                            ran += 1;
                        }
                        Err(SubjectError::NotApplicable { .. }) => {}
                        Err(error) => panic!("{}, {program:?}: {error}", family.name()),
                    }
                }
                println!("{} {} on {}: {worst:.1e}", family.name(), method.name(), device.caps().kind);
            }
            let has_kernel = device.caps().kind == DeviceKind::Cpu || family.name() != "mlstm";
            assert_eq!(ran > 0, has_kernel, "{} on {}", family.name(), device.caps().kind);
        }
    }
}
