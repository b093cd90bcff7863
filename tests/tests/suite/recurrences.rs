//! Recurrences of every family on every device, beyond the laws: chains of any steps, cut in any way.

use seam_algebra::laws::{SubjectError, every_cut, every_length};
use seam_algebra::strategy::{Case, Kind};
use seam_algebra::{Family, families};
use seam_conformance::programs::{Program, run};
use seam_conformance::{Method, laws};
use seam_device::{BufferUse, Caps, Device, DeviceKind};
use seam_ops::{
    Chain, ChunkChain, ChunkPrepare, Decay, OpError, Operation, Pairing, Recurrence, Rotation, Tensor, Update,
};
use seam_tests::{cpu, devices};

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
            for method in Method::ALL {
                let (mut worst, mut ran) = (0.0f64, 0);
                for seed in 0..programs {
                    let budget = [u32::MAX, 40, 16, 0][seed as usize % 4];
                    let sizes = if slow(&*device) { (1, 2, 4, 3) } else { (2, 2, 8, 5) };
                    let program = Program { seed: 1000 + seed, steps, longest: 23, budget, sizes };
                    match run(&device, *family, method, &program) {
                        Ok(errors) => {
                            let error = errors.worst();
                            let name = (family.name(), method, device.caps().kind);
                            assert!(error <= BOUND, "{name:?}, {program:?}: {error:e}");
                            worst = worst.max(error);
                            ran += 1;
                        }
                        Err(SubjectError::NotApplicable { .. }) => {}
                        Err(error) => panic!("{}, {program:?}: {error}", family.name()),
                    }
                }
                let kind = device.caps().kind;
                let has_kernel = match (family.name(), method) {
                    ("mlstm", Method::Recurrent) => kind == DeviceKind::Cpu,
                    ("mlstm" | "rwkv7", Method::Chunk) => false,
                    _ => true,
                };
                assert_eq!(ran, if has_kernel { programs } else { 0 }, "{} {} on {kind}", family.name(), method.name());
                println!("{} {} on {kind}: {ran} programs, {worst:.1e}", family.name(), method.name());
            }
        }
    }
}

fn recurrence(decay: Decay, update: Update) -> Recurrence {
    Recurrence { decay, update, heads: 1, value_heads: 2, key: 8, value: 5, rotation: None }
}

/// A chain operation over two rows of `r`, with rows of q, k and v, of gates and of outputs that are wider by `more`.
fn planned(r: Recurrence, more: [u32; 3], caps: impl Fn(&mut Caps)) -> [Result<usize, OpError>; 3] {
    let device = cpu();
    let tensor = |cols: u32| Tensor::new(&*device, "rows", 4, cols.max(1)).expect("memory");
    let (qkv, gates, out) = (tensor(r.row() + more[0]), tensor(r.gate_row() + more[1]), tensor(r.out() + more[2]));
    let buffer = device.alloc("slab", 1 << 20, BufferUse::Storage).expect("memory").all();
    let slabs = || [buffer.clone(), buffer.clone(), buffer.clone(), buffer.clone()];
    let mut own = device.caps().clone();
    caps(&mut own);
    let plan = |operation: &dyn Operation| operation.check().and_then(|()| operation.plan(&own)).map(|c| c.len());
    let (tables, work, launch) = (&buffer, &buffer, (0, 1, true));
    let (qkv, gates, out) = (&qkv, &gates, &out);
    [
        plan(&Chain { tables, recurrence: r, qkv, gates, out, launch, slabs: slabs() }),
        plan(&ChunkPrepare { tables, recurrence: r, qkv, gates, work, chunks: 1 }),
        plan(&ChunkChain { tables, recurrence: r, work, out, launch, slabs: slabs() }),
    ]
}

/// Shapes that do not match, no heads, sizes that no kernel has, more workgroup memory than there is: typed errors before
/// anything is recorded.
#[test]
fn impossible_chains_are_typed_errors() {
    let good = recurrence(Decay::Scalar, Update::Delta);
    assert!(planned(good, [0; 3], |_| ()).iter().all(|p| *p == Ok(1)));
    let shape = |p: &Result<usize, OpError>| matches!(p, Err(OpError::Shape { .. }));
    let [chain, prepare, walk] = planned(good, [1, 0, 0], |_| ());
    assert!(shape(&chain) && shape(&prepare) && walk == Ok(1), "rows of q, k and v");
    let [chain, prepare, _] = planned(good, [0, 1, 0], |_| ());
    assert!(shape(&chain) && shape(&prepare), "rows of gates");
    let [chain, _, walk] = planned(good, [0, 0, 1], |_| ());
    assert!(shape(&chain) && shape(&walk), "rows of outputs");
    for bad in [
        Recurrence { heads: 0, ..good },
        Recurrence { value_heads: 0, ..good },
        Recurrence { value_heads: 3, heads: 2, ..good },
        Recurrence { value: 0, ..good },
        Recurrence { key: 0, ..good },
        Recurrence { rotation: Some(Rotation { pairing: Pairing::Halves, dims: 12 }), ..good },
        Recurrence { decay: Decay::Fixed, ..good },
        Recurrence {
            decay: Decay::Diagonal,
            rotation: Some(Rotation { pairing: Pairing::Interleaved, dims: 4 }),
            ..good
        },
    ] {
        assert!(planned(bad, [0; 3], |_| ()).iter().all(shape), "{bad:?}");
    }
    // K is a multiple of the tile or there is no kernel; V may be anything.
    for key in [1, 6, 10, 100, 512] {
        for plan in planned(Recurrence { key, ..good }, [0; 3], |_| ()) {
            let Err(OpError::Unsupported { what, .. }) = plan else { panic!("K = {key}: {plan:?}") };
            assert!(what.contains(&format!("K = {key}")), "{what}");
        }
    }
    for value in [1, 3, 7, 33] {
        assert!(planned(Recurrence { value, ..good }, [0; 3], |_| ()).iter().all(|p| *p == Ok(1)), "V = {value}");
    }
    let [chain, prepare, walk] = planned(good, [0; 3], |caps| caps.max_workgroup_bytes = 512);
    let Err(OpError::Unsupported { op: "chunk_prepare", what, .. }) = prepare else { panic!("{prepare:?}") };
    assert!(what.contains("1024 bytes") && what.contains("512") && chain == Ok(1) && walk == Ok(1), "{what}");
    let [.., walk] = planned(good, [0; 3], |caps| caps.max_invocations = 16);
    assert!(matches!(walk, Err(OpError::Unsupported { .. })), "{walk:?}");
    let [chain, prepare, walk] = planned(recurrence(Decay::Diagonal, Update::RankOne), [0; 3], |_| ());
    assert!(chain == Ok(1) && shape(&prepare) && shape(&walk), "rank one has no chunk form");
    for plan in planned(good, [0; 3], |caps| caps.kernels = Default::default()) {
        assert!(matches!(plan, Err(OpError::Unsupported { .. })), "no kernel is no fallback");
    }
}
