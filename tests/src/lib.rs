//! What the tests across the crates share: devices, fixtures, small models cut out of larger ones, random prompts.

#![allow(clippy::print_stdout, reason = "a skipped device is printed")]

mod models;

/// The README, whose example is compiled and run.
#[doc = include_str!("../../README.md")]
#[derive(Clone, Copy, Debug)]
pub struct Readme;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use seam_cpu::CpuDevice;
use seam_cuda::CudaDevice;
use seam_device::{BufferUse, Device, Precision};
use seam_engine::{Engine, EngineOptions, Request};
use seam_pic::{Budgets, Mode};
use seam_wgpu::WgpuDevice;

pub use models::cut_model;

/// A folder or file below `fixtures/`.
#[must_use]
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures")).join(name)
}

/// Whether `SEAM_REQUIRE` lists `device`: then its absence is a failure instead of a printed skip.
#[must_use]
pub fn required(device: &str) -> bool {
    std::env::var("SEAM_REQUIRE").is_ok_and(|list| list.split(',').any(|d| d.trim() == device))
}

/// The cpu device, one for all tests.
#[must_use]
pub fn cpu() -> Arc<dyn Device> {
    static CPU: OnceLock<Arc<dyn Device>> = OnceLock::new();
    Arc::clone(CPU.get_or_init(|| CpuDevice::open(seam_cpu::Options::default())))
}

/// The wgpu device, one for all tests; `None`, with the reason printed, where there is no driver. Shaders run as users
/// run them, without naga's run-time checks: checked ones take a software driver minutes to compile, and the tests of
/// the device itself run both.
///
/// # Panics
/// If `SEAM_REQUIRE` lists wgpu and there is none.
#[must_use]
pub fn wgpu() -> Option<Arc<dyn Device>> {
    static WGPU: OnceLock<Option<Arc<dyn Device>>> = OnceLock::new();
    WGPU.get_or_init(|| match WgpuDevice::open(&seam_wgpu::Options::default()) {
        Ok(device) => Some(device as Arc<dyn Device>),
        Err(error) => {
            assert!(!required("wgpu"), "SEAM_REQUIRE lists wgpu: {error}");
            println!("SKIPPED on wgpu: {error}");
            None
        }
    })
    .clone()
}

/// The CUDA device, one for all tests; `None`, with the reason printed, where there is none.
///
/// # Panics
/// If `SEAM_REQUIRE` lists cuda and there is none.
#[must_use]
pub fn cuda() -> Option<Arc<dyn Device>> {
    static CUDA: OnceLock<Option<Arc<dyn Device>>> = OnceLock::new();
    CUDA.get_or_init(|| match CudaDevice::open(&seam_cuda::Options::default()) {
        Ok(device) => Some(device as Arc<dyn Device>),
        Err(error) => {
            assert!(!required("cuda"), "SEAM_REQUIRE lists cuda: {error}");
            println!("SKIPPED on cuda: {error}");
            None
        }
    })
    .clone()
}

/// The CUDA device at the precision of bf16, one for all tests; `None`, with the reason printed, where there is none.
///
/// # Panics
/// If `SEAM_REQUIRE` lists cuda and there is none.
#[must_use]
pub fn cuda_bf16() -> Option<Arc<dyn Device>> {
    static CUDA: OnceLock<Option<Arc<dyn Device>>> = OnceLock::new();
    CUDA.get_or_init(|| {
        let options = seam_cuda::Options { precision: Precision::Bf16, ..seam_cuda::Options::default() };
        match CudaDevice::open(&options) {
            Ok(device) => Some(device as Arc<dyn Device>),
            Err(error) => {
                assert!(!required("cuda"), "SEAM_REQUIRE lists cuda: {error}");
                println!("SKIPPED on cuda at bf16: {error}");
                None
            }
        }
    })
    .clone()
}

/// A CUDA device with the given options, for a test of its own; `None`, with the reason printed, where there is none.
///
/// # Panics
/// If `SEAM_REQUIRE` lists cuda and it does not open.
#[must_use]
pub fn own_cuda(options: &seam_cuda::Options) -> Option<Arc<CudaDevice>> {
    // Says why, once, where there is no GPU at all.
    cuda()?;
    match CudaDevice::open(options) {
        Ok(device) => Some(device),
        Err(error) => panic!("{options:?}: {error}"),
    }
}

/// Every device of this machine.
#[must_use]
pub fn devices() -> Vec<Arc<dyn Device>> {
    std::iter::once(cpu()).chain(wgpu()).chain(cuda()).collect()
}

/// Devices of a test of its own, for tests that read counters.
#[must_use]
pub fn own_devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![CpuDevice::open(seam_cpu::Options::default())];
    if wgpu().is_some()
        && let Ok(device) = WgpuDevice::open(&seam_wgpu::Options::default())
    {
        devices.push(device);
    }
    if cuda().is_some()
        && let Ok(device) = CudaDevice::open(&seam_cuda::Options::default())
    {
        devices.push(device);
    }
    devices
}

/// Options with small budgets and slabs, as tests need them.
#[must_use]
pub fn options() -> EngineOptions {
    EngineOptions { budgets: Budgets { device: 256 << 20, host: 256 << 20, disk: None }, ..EngineOptions::default() }
}

/// An engine over a fixture.
///
/// # Panics
/// If it does not load.
#[must_use]
pub fn engine(device: &Arc<dyn Device>, model: &std::path::Path, options: &EngineOptions) -> Engine {
    match Engine::load(Arc::clone(device), model, options.clone()) {
        Ok(engine) => engine,
        Err(error) => panic!("{}: {error}", model.display()),
    }
}

/// `n` token ids below `vocab`, determined by `seed`.
#[must_use]
pub fn tokens(seed: u64, n: usize, vocab: u32) -> Vec<u32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((x >> 33) % u64::from(vocab)) as u32
        })
        .collect()
}

/// A request over segments of the given lengths with random tokens, determined by `seed`.
#[must_use]
pub fn request(lengths: &[usize], vocab: u32, mode: Mode, seam: u32, seed: u64) -> Request {
    let segments = lengths.iter().enumerate().map(|(i, &n)| tokens(seed * 1000 + i as u64, n, vocab)).collect();
    Request { mode, seam, max_new: 4, ..Request::new(segments) }
}

/// Largest difference relative to the largest magnitude of `b`.
#[must_use]
pub fn relative(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let scale = b.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
    let worst = a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - f64::from(*b)).abs()));
    worst / scale
}

/// An error with all its causes.
#[must_use]
pub fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source()).map(|cause| format!(": {cause}"));
    error.to_string() + &causes.collect::<String>()
}

/// Checks that a device allocates, and that new memory reads as zero.
///
/// # Panics
/// If not.
pub fn works(device: &Arc<dyn Device>) {
    let after = device.alloc("after", 1 << 16, BufferUse::Storage).expect("a little");
    let bytes = device.read(&after.all(), &[]).expect("read").wait().expect("wait");
    assert!(bytes.len() == 1 << 16 && bytes.iter().all(|&b| b == 0), "new memory reads as zero");
}
