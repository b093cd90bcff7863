//! Experts by themselves: sizes that do not fit, what a plan launches, weights that are split and weights that are wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use safetensors::tensor::{Dtype, TensorView};
use seam_cpu::CpuDevice;
use seam_device::{BufferUse, Command, DType, Device, HostBytes};
use seam_engine::{Engine, EngineOptions};
use seam_kernels::experts::{EXPERT_FEW, EXPERT_TILES};
use seam_ops::{
    Activation, ActivationKind, BlockScales, ExpertBytes, ExpertCombine, ExpertProduct, ExpertSort, ExpertWeight,
    Grouping, OpError, Operation, Shared, Tensor, expert_words,
};
use seam_tests::{cpu, fixture};

fn bytes(len: usize) -> HostBytes {
    HostBytes::from_vec(vec![0; len])
}

fn weight(device: &Arc<dyn Device>, [experts, n, k]: [u32; 3]) -> ExpertWeight {
    let all = bytes((experts * n * k * 2) as usize);
    ExpertWeight::load(&**device, "experts", DType::BF16, [experts, n, k], ExpertBytes::Whole(&all), None).unwrap()
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let device = cpu();
    let t = |rows: u32, cols: u32| Tensor::new(&*device, "m", rows, cols).unwrap();
    let tables = &device.alloc("tables", 256, BufferUse::Storage).unwrap().all();
    let groups = &device.alloc("groups", expert_words(6, 4) * 4, BufferUse::Storage).unwrap().all();
    let refused = |operation: &dyn Operation, op: &str| {
        let error = operation.check();
        assert!(matches!(&error, Err(OpError::Shape { op: named, .. }) if *named == op), "{op}: {error:?}");
    };
    let fits = |operation: &dyn Operation| operation.check().unwrap();
    let index = &t(3, 2);
    fits(&ExpertSort { tables, index, experts: 4, groups });
    refused(&ExpertSort { tables, index, experts: 5, groups }, "expert_sort");
    refused(&ExpertSort { tables, index: &t(4, 2), experts: 4, groups }, "expert_sort");
    refused(&ExpertSort { tables, index, experts: 0, groups }, "expert_sort");

    let weight = &weight(&device, [4, 5, 8]);
    let (x, out) = (&t(3, 8), &t(6, 7));
    let (pairs8, narrow, short, odd) = (&t(6, 8), &t(3, 4), &t(2, 8), &t(5, 7));
    let product = |x, out, column| ExpertProduct { tables, index, groups, x, weight, out, column };
    fits(&product(x, out, 2));
    fits(&product(pairs8, out, 0));
    refused(&product(x, out, 3), "expert_product");
    refused(&product(x, out, u32::MAX), "expert_product");
    refused(&product(narrow, out, 0), "expert_product");
    refused(&product(short, out, 0), "expert_product");
    refused(&product(x, odd, 0), "expert_product");

    let combine =
        |y, shared, scale| ExpertCombine { tables, weight: index, y, shared, out: x, scale, accumulate: true };
    let (y, gate) = (pairs8, &t(3, 1));
    fits(&combine(y, Shared::None, 1.0));
    fits(&combine(y, Shared::Gated { out: x, gate }, 0.2));
    refused(&combine(out, Shared::None, 1.0), "expert_combine");
    refused(&combine(y, Shared::Plain(y), 1.0), "expert_combine");
    refused(&combine(y, Shared::Gated { out: x, gate: x }, 1.0), "expert_combine");
    refused(&combine(y, Shared::None, f32::NAN), "expert_combine");

    let activation = |x, out, top, kind| Activation { tables, x, out, top, kind };
    let (pairs4, five) = (&t(6, 4), &t(5, 4));
    fits(&activation(pairs8, pairs4, 2, ActivationKind::SwiGlu));
    fits(&activation(pairs4, pairs4, 1, ActivationKind::Relu2));
    refused(&activation(pairs8, pairs4, 2, ActivationKind::Relu2), "activation");
    refused(&activation(pairs8, five, 1, ActivationKind::SwiGlu), "activation");
    refused(&activation(pairs8, pairs4, 4, ActivationKind::SwiGlu), "activation");
    refused(&activation(pairs8, pairs4, 0, ActivationKind::SwiGlu), "activation");
}

#[test]
fn the_plan_follows_the_number_of_pairs() {
    assert_eq!(
        [1, 16, 17, 256, 257].map(|rows| Grouping::of(rows, 8, 256)),
        [Grouping::Alone, Grouping::Alone, Grouping::Few, Grouping::Few, Grouping::Tiles]
    );
    let device = cpu();
    let tables = &device.alloc("tables", 256, BufferUse::Storage).unwrap().all();
    let groups = &device.alloc("groups", expert_words(200, 8) * 4, BufferUse::Storage).unwrap().all();
    let weight = &weight(&device, [8, 40, 8]);
    for (rows, kernel, grid) in [
        (2, EXPERT_FEW.id, [5, 4, 1]),
        (20, EXPERT_FEW.id, [5, 40 / 8 + 8, 1]),
        (100, EXPERT_TILES.id, [2, 200 / 32 + 8, 1]),
    ] {
        let t = |rows: u32, cols: u32| Tensor::new(&*device, "m", rows, cols).unwrap();
        let (index, x, out) = (&t(rows, 2), &t(rows, 8), &t(2 * rows, 40));
        let sorts = ExpertSort { tables, index, experts: 8, groups }.plan(device.caps()).unwrap().len();
        assert_eq!(sorts, usize::from(rows > 2), "{rows} rows");
        let plan = ExpertProduct { tables, index, groups, x, weight, out, column: 0 }.plan(device.caps()).unwrap();
        let [Command::Dispatch(launch)] = &plan[..] else { panic!("{plan:?}") };
        assert_eq!((launch.kernel, launch.grid), (kernel, grid), "{rows} rows");
    }
}

#[test]
fn weights_are_split_by_experts() {
    let device: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options { max_binding: Some(4096) });
    // 640 bytes an expert: six fit.
    let split = weight(&device, [16, 40, 8]);
    let shards: Vec<_> = split.shards().iter().map(|s| (s.first, s.count)).collect();
    assert_eq!(shards, [(0, 6), (6, 6), (12, 4)]);
    let load = |dtype, shape, bytes: ExpertBytes<'_>, scales: Option<&BlockScales>| {
        ExpertWeight::load(&*device, "experts", dtype, shape, bytes, scales)
    };
    let refused = |r: Result<ExpertWeight, OpError>| {
        let error = r.expect_err("must be refused");
        assert!(matches!(&error, OpError::Shape { what, .. } if what.contains("experts")), "{error}");
    };
    let all = bytes(2 * 40 * 80);
    refused(load(DType::BF16, [1, 40, 80], ExpertBytes::Whole(&all), None));
    refused(load(DType::BF16, [2, 40, 8], ExpertBytes::Whole(&all), None));
    refused(load(DType::BF16, [0, 40, 80], ExpertBytes::Whole(&all), None));
    refused(load(DType::I64, [10, 10, 8], ExpertBytes::Whole(&all), None));
    let pieces = |len: usize| vec![vec![bytes(len), bytes(64)]; 3];
    load(DType::BF16, [3, 8, 8], ExpertBytes::Pieces(&pieces(64)), None).unwrap();
    refused(load(DType::BF16, [3, 8, 8], ExpertBytes::Pieces(&pieces(62)), None));
    refused(load(DType::BF16, [2, 8, 8], ExpertBytes::Pieces(&pieces(64)), None));
    // [2, 16, 200] has two columns of blocks.
    let scales = |shift, n: usize| BlockScales { shift, values: vec![1.0; n] };
    load(DType::F8E4M3, [2, 16, 200], ExpertBytes::Whole(&all), Some(&scales(3, 8))).unwrap();
    refused(load(DType::F8E4M3, [2, 16, 200], ExpertBytes::Whole(&all), Some(&scales(4, 8))));
    refused(load(DType::F8E4M3, [2, 16, 200], ExpertBytes::Whole(&all), None));
    refused(load(DType::BF16, [2, 16, 100], ExpertBytes::Whole(&all), Some(&scales(3, 8))));
}

pub(crate) type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// What loading says of a copy of a model whose tensors are changed.
pub(crate) fn refused(model: &str, change: &dyn Fn(&mut Tensors)) -> String {
    let dir = tempfile::tempdir().expect("folder");
    std::fs::copy(fixture(model).join("config.json"), dir.path().join("config.json")).expect("config");
    let stored = std::fs::read(fixture(model).join("model.safetensors")).expect("weights");
    let file = safetensors::SafeTensors::deserialize(&stored).expect("weights");
    let all = file.tensors().into_iter().map(|(name, t)| (name, (t.dtype(), t.shape().to_vec(), t.data().to_vec())));
    let mut all: Tensors = all.collect();
    change(&mut all);
    let views = all.iter().map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes)));
    let views: Vec<_> = views.map(|(name, view)| (name, view.expect("view"))).collect();
    safetensors::serialize_to_file(views, None, &dir.path().join("model.safetensors")).expect("weights");
    let error = Engine::load(cpu(), dir.path(), EngineOptions::default()).err().expect("must be refused");
    let sources = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn wrong_tensors_of_experts_are_named() {
    let (model, layer) = ("qwen3_5_moe", "model.language_model.layers.2.mlp");
    for part in ["gate.weight", "experts.gate_up_proj", "experts.down_proj", "shared_expert_gate.weight"] {
        let name = format!("{layer}.{part}");
        if part != "experts.gate_up_proj" {
            let text = refused(model, &|t| drop(t.remove(&name)));
            assert!(text.contains(&name), "{name}: {text}");
        }
        // One row less, with the bytes that belong to that shape.
        let text = refused(model, &|t| {
            let (_, shape, bytes) = t.get_mut(&name).expect("tensor");
            let last = shape.last_mut().expect("dimensions");
            let len = bytes.len() / *last * (*last - 4);
            *last -= 4;
            bytes.truncate(len);
        });
        assert!(text.contains(&name) && text.contains("the config asks for"), "{name}: {text}");
        let text = refused(model, &|t| {
            t.get_mut(&name).expect("tensor").2[2..4].copy_from_slice(&[0x80, 0x7f]);
        });
        assert!(text.contains(&name) && text.contains("index 1"), "{name}: {text}");
    }
    let (next, layer2) = ("qwen3_next", "model.layers.2");
    for part in ["mlp.experts.7.down_proj.weight", "linear_attn.in_proj_qkvz.weight", "linear_attn.in_proj_ba.weight"] {
        let name = format!("{layer2}.{part}");
        let text = refused(next, &|t| drop(t.remove(&name)));
        assert!(text.contains(&name), "{name}: {text}");
        let text = refused(next, &|t| t.get_mut(&name).expect("tensor").1.push(1));
        assert!(text.contains(&name) && text.contains("the config asks for"), "{name}: {text}");
    }
    // Without the fused tensor those of single experts are looked for.
    let text = refused(model, &|t| drop(t.remove(&format!("{layer}.experts.gate_up_proj"))));
    assert!(text.contains(&format!("{layer}.experts.0.gate_proj.weight")), "{text}");
}
