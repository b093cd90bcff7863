//! Chains in tiles on tensor cores, where a device has them: random programs of steps against their f64 interpretation, with
//! queries and keys that are bf16.

use seam_algebra::families::by_name;
use seam_algebra::laws::SubjectError;
use seam_conformance::Method;
use seam_conformance::programs::{Program, run};
use seam_conformance::tolerance::{TILE_OUTPUT, TILE_STATE};
use seam_device::{BufferUse, DeviceKind};
use seam_ops::{Decay, OpError, Operation, Recurrence, Tensor, TileChain, Update};
use seam_tests::{cpu, cuda, devices};

/// Families that have the form.
const FAMILIES: [&str; 7] =
    ["gated_delta_rule", "delta_rule", "linear_attention", "lightning", "retnet", "mamba2", "gated_delta_product_2"];

/// Any interleaving of steps, of runs shorter and longer than a tile and of sizes that the kernels have, cut by any budget.
#[test]
fn any_program_of_steps_is_its_interpretation() {
    let Some(device) = cuda() else { return };
    for name in FAMILIES {
        let family = by_name(name).expect(name);
        let (mut output, mut state) = (0.0f64, 0.0f64);
        for seed in 0..12 {
            let budget = [u32::MAX, 200, 16, 0][seed as usize % 4];
            let (longest, key) = [(23, 64), (150, 128), (70, 64)][seed as usize % 3];
            let sizes = if name == "mamba2" { (1, 2, key, 64) } else { (2, 2, key, [64, 128][seed as usize % 2]) };
            let program = Program { seed: 7000 + seed, steps: 10, longest, budget, sizes };
            let errors =
                run(&device, family, Method::Tile, &program).unwrap_or_else(|e| panic!("{name}, {program:?}: {e}"));
            let holds = errors.output <= TILE_OUTPUT.relative && errors.state <= TILE_STATE.relative;
            assert!(holds, "{name}, {program:?}: {errors:?}");
            (output, state) = (output.max(errors.output), state.max(errors.state));
        }
        println!("{name} in tiles: outputs {output:.1e}, states {state:.1e}");
    }
}

/// A device without the kernels says so.
#[test]
fn other_devices_have_no_tiles() {
    for device in devices().into_iter().filter(|device| device.caps().kind != DeviceKind::Cuda) {
        let program = Program { seed: 1, steps: 3, longest: 9, budget: 0, sizes: (1, 1, 64, 64) };
        let family = by_name("gated_delta_rule").expect("the family");
        let error = run(&device, family, Method::Tile, &program).expect_err("no kernel");
        assert!(matches!(error, SubjectError::NotApplicable { .. }), "{error}");
    }
    let device = cpu();
    let r = Recurrence {
        decay: Decay::Scalar,
        update: Update::Delta,
        heads: 1,
        value_heads: 1,
        key: 64,
        value: 64,
        rotation: None,
    };
    let tensor = |cols: u32| Tensor::new(&*device, "rows", 4, cols).expect("memory");
    let (qkv, out) = (tensor(r.row()), tensor(r.out()));
    let buffer = device.alloc("slab", 1 << 20, BufferUse::Storage).expect("memory").all();
    let slabs = || [buffer.clone(), buffer.clone(), buffer.clone(), buffer.clone()];
    let plan = |recurrence: Recurrence| {
        let chain = TileChain {
            tables: &buffer,
            recurrence,
            qkv: &qkv,
            work: &buffer,
            out: &out,
            launch: (0, 1, false),
            slabs: slabs(),
        };
        chain.check().and_then(|()| chain.plan(device.caps()))
    };
    let missing = plan(r).expect_err("no kernel");
    assert!(matches!(missing, OpError::Unsupported { op: "tile_chain", .. }), "{missing}");
    let sizes = plan(Recurrence { key: 32, ..r }).expect_err("no such K");
    assert!(matches!(sizes, OpError::Shape { op: "tile_chain", .. }), "{sizes}");
}
