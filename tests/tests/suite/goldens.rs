//! Models against the goldens of a reference implementation, on every device.

use std::sync::Arc;

use seam_conformance::model;
use seam_cpu::CpuDevice;
use seam_cuda::CudaDevice;
use seam_device::Device;
use seam_engine::EngineOptions;
use seam_tests::{cpu, devices, fixture, required};
use seam_wgpu::WgpuDevice;

fn check(device: &Arc<dyn Device>, name: &str) {
    let report = model::check(device, &fixture(name), &EngineOptions::default()).expect(name);
    let failed: Vec<_> = report.checks.iter().filter(|c| !c.passed()).collect();
    assert!(report.passed(), "{name} on {}: {failed:#?}", report.device);
    let worst = report.checks.iter().filter(|c| c.name.ends_with("logits")).map(|c| c.error).fold(0.0, f64::max);
    println!("{name} on {}: {} tensors, largest error of the logits {worst:.1e}", report.device, report.checks.len());
}

#[test]
fn qwen3_5_dense() {
    devices().iter().for_each(|device| check(device, "qwen3_5_dense"));
}

#[test]
fn qwen3_5_dense_tied() {
    devices().iter().for_each(|device| check(device, "qwen3_5_dense_tied"));
}

#[test]
fn qwen3_5_moe() {
    devices().iter().for_each(|device| check(device, "qwen3_5_moe"));
}

#[test]
fn qwen3_5_moe_fp8() {
    devices().iter().for_each(|device| check(device, "qwen3_5_moe_fp8"));
}

#[test]
fn qwen3_next() {
    devices().iter().for_each(|device| check(device, "qwen3_next"));
}

/// A limit of 20 KiB splits the embedding and most weights into shards and puts KV and states into many slabs; a limit
/// of 1 MiB is the smallest that a device could sensibly have.
#[test]
fn split_by_a_small_binding_limit() {
    for limit in [1 << 20, 20 << 10] {
        let mut devices: Vec<Arc<dyn Device>> = vec![CpuDevice::open(seam_cpu::Options { max_binding: Some(limit) })];
        match WgpuDevice::open(&seam_wgpu::Options { max_binding: Some(limit), ..Default::default() }) {
            Ok(device) => devices.push(device),
            Err(error) => assert!(!required("wgpu"), "SEAM_REQUIRE lists wgpu: {error}"),
        }
        match CudaDevice::open(&seam_cuda::Options { max_binding: Some(limit), ..Default::default() }) {
            Ok(device) => devices.push(device),
            Err(error) => assert!(!required("cuda"), "SEAM_REQUIRE lists cuda: {error}"),
        }
        for device in devices {
            assert_eq!(device.caps().max_binding, limit);
            check(&device, "qwen3_5_dense");
            // Two experts a shard under the smaller limit.
            if device.caps().kind == seam_device::DeviceKind::Cpu {
                check(&device, "qwen3_5_moe");
            }
        }
    }
}

/// The check itself must be able to fail: one logit moved by a thousandth is found.
#[test]
fn a_wrong_golden_is_noticed() {
    let dir = tempfile::tempdir().expect("temporary folder");
    for file in ["config.json", "model.safetensors", "golden.safetensors"] {
        std::fs::copy(fixture("qwen3_5_dense_tied").join(file), dir.path().join(file)).expect(file);
    }
    let path = dir.path().join("golden.safetensors");
    let mut bytes = std::fs::read(&path).expect("golden");
    let header = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))).expect("length");
    let text: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).expect("header");
    let at = 8 + header + text["p7.logits"]["data_offsets"][0].as_u64().expect("offset") as usize;
    let logit = f32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) + 1e-3;
    bytes[at..at + 4].copy_from_slice(&logit.to_le_bytes());
    std::fs::write(&path, bytes).expect("golden");
    let report = model::check(&cpu(), dir.path(), &EngineOptions::default()).expect("check");
    assert!(!report.passed());
    let failed: Vec<&str> = report.checks.iter().filter(|c| !c.passed()).map(|c| c.name.as_str()).collect();
    assert_eq!(failed, ["p7.logits", "p7.logits (in pieces)"]);
}
