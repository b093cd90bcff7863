//! Attention over spans against its definition: f32 on every device, bf16 on tensor cores; entries of either dtype.

use std::sync::Arc;

use seam_conformance::attention::{Sizes, check};
use seam_conformance::tolerance::LOGITS_BF16;
use seam_device::{DType, Device, DeviceKind, Precision};
use seam_engine::EngineOptions;
use seam_ops::kv_dtype;
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
