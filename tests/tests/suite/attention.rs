//! Attention over spans against its definition: f32 on every device, bf16 on tensor cores; entries of either dtype.

use std::sync::Arc;

use seam_conformance::attention::{Sizes, check};
use seam_conformance::tolerance::LOGITS_BF16;
use seam_device::{BufferUse, Caps, Command, DType, Device, DeviceKind, KernelSet, Precision};
use seam_engine::EngineOptions;
use seam_kernels::manifest::MANIFEST;
use seam_ops::{
    OpError, Operation, PART_ROWS, Parts, PassBuilder, RunSpec, SlabId, SpanAttention, SpanSpec, Tensor, kv_dtype,
};
use seam_pic::{Budgets, Mode, Tier};
use seam_tests::{cpu, cuda_bf16, devices, engine, fixture, options, relative, request};

/// Groups of query heads, slabs for one launch and for two, some, no and all dims rotated; with and without parts.
fn sizes(head: u32) -> Vec<Sizes> {
    let shapes = [(1, 2, head / 4, 1), (4, 1, head, 3), (8, 2, head / 2, 6), (3, 1, 0, 4), (8, 1, head / 4, 9)];
    let one =
        |(group, kv_heads, rot, slabs)| [true, false].map(|parts| Sizes { head, kv_heads, group, rot, slabs, parts });
    shapes.into_iter().flat_map(one).collect()
}

fn spans(device: &Arc<dyn Device>, heads: &[u32], seeds: u64) {
    let mut worst = 0.0f64;
    for &head in heads {
        for (i, sizes) in sizes(head).into_iter().enumerate() {
            for seed in 0..seeds {
                let check = check(device, sizes, 1000 * seed + i as u64).expect("attention");
                assert!(check.passed(), "{:?}: {check:?}", device.caps().kind);
                worst = worst.max(if check.error == 0.0 { 0.0 } else { check.error / check.bound });
            }
        }
    }
    println!("attention on {} at {}: {worst:.2} of the bound", device.caps().name, device.caps().precision);
}

#[test]
fn attention_over_random_spans_in_f32() {
    for device in devices() {
        let seeds = if device.caps().kind == DeviceKind::Cuda { 6 } else { 1 };
        spans(&device, &[64, 256], seeds);
    }
}

#[test]
fn attention_over_random_spans_in_bf16() {
    let Some(device) = cuda_bf16() else { return };
    spans(&device, &[32, 64, 128, 256], 12);
}

/// Only a device of that precision, with a kernel for the head size, stores bf16.
#[test]
fn keys_are_f32_unless_the_device_says_otherwise() {
    let device = cpu();
    let mut caps = device.caps().clone();
    assert_eq!(kv_dtype(&caps, 256), DType::F32);
    caps.precision = Precision::Bf16;
    assert_eq!(
        [8, 16, 32, 64, 128, 256].map(|head| kv_dtype(&caps, head) == DType::BF16),
        [false, false, true, true, true, true]
    );
}

/// A plan of `rows` rows of one run of 16 heads over 2 of 256: kernel and grid of each launch.
fn planned(caps: &Caps, rows: u32, slabs: u32, bf16: bool) -> Result<Vec<(&'static str, [u32; 3])>, OpError> {
    let device = cpu();
    let (group, kv_heads, head) = (8, 2, 256);
    let mut pass = PassBuilder::new(0, 64, 1e7).with_tiles(group);
    let spans: Vec<SpanSpec> =
        (0..slabs).map(|i| SpanSpec { slab: SlabId::Shared(i), row: 0, len: 9, pos: 9 * i, origin: 0 }).collect();
    pass.spans(&spans);
    let (tokens, pos) = (vec![0; rows as usize], 9 * slabs);
    pass.run(&RunSpec { tokens: &tokens, pos, origin: 0, kv: &[], spans: (0, slabs), history: &[] })?;
    let pass = pass.finish()?;
    let none = device.alloc("no slab", 256, BufferUse::Storage)?.all();
    let launches = vec![std::array::from_fn(|_| none.clone()); pass.shape.attention.len()];
    let t = |rows: u32, cols: u32| Tensor::new(&*device, "t", rows, cols);
    let heads = group * kv_heads;
    let [q, out, part_out] = [t(rows, heads * head)?, t(rows, heads * head)?, t(PART_ROWS, heads * head)?];
    let [stats, part_stats] = [t(rows, 2 * heads)?, t(PART_ROWS, 2 * heads)?];
    let operation = SpanAttention {
        tables: &none,
        q: &q,
        stats: &stats,
        out: &out,
        heads: (heads, kv_heads),
        head,
        rot: 64,
        scale: (1.0 / f64::from(head).sqrt()) as f32,
        launches: &launches,
        dtype: if bf16 { DType::BF16 } else { DType::F32 },
        tiles: pass.shape.tiles,
        parts: Some(Parts { out: &part_out, stats: &part_stats }),
    };
    operation.check()?;
    let launched = |command: &Command| match command {
        Command::Dispatch(d) => (seam_kernels::kernel(d.kernel).map_or("?", |k| k.name), d.grid),
        other => panic!("{other:?}"),
    };
    Ok(operation.plan(caps)?.iter().map(launched).collect())
}

/// Which kernels run, and how many parts there are, follows from sizes and capabilities alone.
#[test]
fn plans_fill_the_chip() {
    let cuda = KernelSet::of(MANIFEST.iter().filter(|k| k.cuda.is_some()).map(|k| k.id));
    let caps = Caps {
        kind: DeviceKind::Cuda,
        kernels: cuda,
        max_workgroup_bytes: 232_448,
        max_invocations: 1024,
        ..cpu().caps().clone()
    };
    let plan = |rows, slabs, bf16| planned(&caps, rows, slabs, bf16).expect("a plan");
    let (mma, join, part) = ("attention_mma", "attention_join", "attention_part");
    assert_eq!(plan(512, 1, true), [(mma, [64, 2, 2]), (join, [16, 512, 1])]);
    // 4096 rows of parts would not fit, and are not needed.
    assert_eq!(plan(1024, 1, true), [(mma, [128, 2, 1])]);
    assert_eq!(plan(1, 1, true), [(mma, [1, 2, 128]), (join, [16, 1, 1])]);
    let two = plan(9, 5, true);
    // A wide tile of eight rows and a narrow one of the ninth, twice.
    assert_eq!(two.len(), 6);
    assert_eq!(two[..3], two[3..]);
    assert_eq!(plan(1, 1, false), [(part, [2, 1, 128]), (join, [16, 1, 1])]);
    assert_eq!(plan(512, 1, false), [("attention", [16, 512, 1])]);
    // The cpu reads all keys of a row at once, and has no kernel for bf16.
    assert_eq!(planned(cpu().caps(), 1, 1, false).expect("a plan"), [("attention", [16, 1, 1])]);
    let refused = planned(cpu().caps(), 1, 1, true);
    assert!(matches!(refused, Err(OpError::Unsupported { op: "attention", .. })), "{refused:?}");
}

/// A whole model at bf16: cold and warm answers agree to the last bit, and logits are near those of the cpu.
#[test]
fn a_model_with_bf16_keys() {
    let Some(device) = cuda_bf16() else { return };
    let request = request(&[11, 40, 23, 9], 320, Mode::Transition, 8, 5);
    let model = fixture("qwen3_5_dense_tied");
    let mut on_cpu = engine(&cpu(), &model, &options());
    let expected = on_cpu.score(&request, &[1, 2]).expect("cpu");
    let mut on_gpu = engine(&device, &model, &options());
    assert_eq!(on_gpu.runner().spec().kv.expect("attention").dtype, DType::BF16);
    let cold = on_gpu.score(&request, &[1, 2]).expect("cold");
    let warm = on_gpu.score(&request, &[1, 2]).expect("warm");
    assert_eq!(cold, warm);
    let off = relative(&cold, &expected);
    println!("logits with bf16 keys and products: {off:.1e}");
    assert!(off < LOGITS_BF16.relative, "{off}");
}

/// Entries of one precision are no hits for a device of another, on disk as in memory; its own come back.
#[test]
fn a_device_of_another_precision_misses() {
    let Some(device) = cuda_bf16() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let options = EngineOptions {
        cache_dir: Some(dir.path().to_owned()),
        budgets: Budgets { device: 64 << 20, host: 0, disk: None },
        ..options()
    };
    let request = request(&[11, 40, 23, 9], 320, Mode::Transition, 8, 6);
    let model = fixture("qwen3_5_dense_tied");
    let tiers = |device: &Arc<dyn Device>| -> Vec<Option<Tier>> {
        let answer = engine(device, &model, &options).answer(&request, &mut |_| {}).expect("answer");
        answer.segments[..3].iter().map(|s| s.hit).collect()
    };
    assert_eq!(tiers(&cpu()), [None; 3]);
    assert_eq!(tiers(&device), [None; 3], "f32 entries are not read as bf16");
    assert_eq!(tiers(&device), [Some(Tier::Disk); 3]);
    assert_eq!(tiers(&cpu()), [Some(Tier::Disk); 3]);
}
