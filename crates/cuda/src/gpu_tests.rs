//! Tests of a device's parts that need a GPU and no more than this crate.

#![allow(clippy::print_stderr, reason = "a skip is printed")]

use std::sync::Arc;

use seam_device::{BufferUse, Device, DeviceError, Gemm, Lane};
use seam_kernels::elementwise::SWIGLU;

use crate::kernels::source;
use crate::{CudaDevice, KernelCache, Options};

/// A device; `None`, with the reason printed, where there is none and `SEAM_REQUIRE` does not list cuda.
fn device(cache: KernelCache) -> Option<Arc<CudaDevice>> {
    match CudaDevice::open(&Options { cache, ..Options::default() }) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("SEAM_REQUIRE").is_ok_and(|list| list.split(',').any(|d| d.trim() == "cuda"));
            assert!(!required, "SEAM_REQUIRE lists cuda: {error}");
            eprintln!("SKIPPED on cuda: {error}");
            None
        }
    }
}

fn works(device: &CudaDevice) {
    let buffer = device.alloc("buffer", 64, BufferUse::Storage).unwrap();
    device.write(&buffer.all(), &[7; 64]).unwrap();
    assert_eq!(device.read(&buffer.all(), &[]).unwrap().wait().unwrap(), [7; 64]);
}

/// A source that this chip's compiler refuses: a typed error that names kernel and words, and the device goes on.
#[test]
fn a_broken_kernel_leaves_the_device_alone() {
    let Some(device) = device(KernelCache::Off) else { return };
    let core = &device.0;
    let text = "extern \"C\" __global__ void swiglu() {\n  missing();\n}\n";
    match core.kernels.build(&core.gpu, &SWIGLU, &[], text).map(|_| ()) {
        Err(DeviceError::Backend { op, reason, .. }) => {
            assert_eq!(op, "compile");
            assert!(reason.contains("kernel swiglu") && reason.contains("missing"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // Code without the entry point is compiled, and refused when it is loaded.
    let text = "extern \"C\" __global__ void other() {}\n";
    match core.kernels.build(&core.gpu, &SWIGLU, &[], text).map(|_| ()) {
        Err(DeviceError::Backend { op, .. }) => assert_eq!(op, "load kernel swiglu"),
        other => panic!("{other:?}"),
    }
    works(&device);
    assert!(core.kernels.get(&core.gpu, &SWIGLU, &[]).is_ok());
}

/// A file with the right checksum whose contents are no code, or code of another kernel: compiled anew and replaced.
#[test]
fn whole_files_that_are_no_code_are_compiled_anew() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = device(KernelCache::Dir(dir.path().to_path_buf())) else { return };
    let core = &device.0;
    let text = source("cuda", &SWIGLU, &[]).unwrap();
    core.kernels.build(&core.gpu, &SWIGLU, &[], &text).unwrap();
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&file).unwrap();
    let other = core.kernels.compile("cuda", &SWIGLU, &[], "extern \"C\" __global__ void other() {}\n").unwrap();
    for bad in [b"no code".to_vec(), vec![0; 4096], other] {
        let mut bytes = blake3::hash(&bad).as_bytes().to_vec();
        bytes.extend_from_slice(&bad);
        std::fs::write(&file, bytes).unwrap();
        core.kernels.build(&core.gpu, &SWIGLU, &[], &text).unwrap();
        assert!(std::fs::read(&file).unwrap() == good, "{} bytes were replaced", bad.len());
    }
    works(&device);
}

/// What the library cannot or need not do is left to the own kernels; what it does has a plan that is made once.
#[test]
fn plans_are_made_once() {
    let Some(device) = device(KernelCache::User) else { return };
    let core = &device.0;
    let Some(products) = &core.products else { return eprintln!("SKIPPED without cublasLt: {}", core.caps.driver) };
    let buffer = device.alloc("operands", 1 << 20, BufferUse::Storage).unwrap();
    let c = device.alloc("c", 1 << 20, BufferUse::Storage).unwrap();
    let gemm = |m: u32, weight| Gemm {
        m,
        n: 64,
        k: 64,
        lda: 64,
        ldc: 64,
        c_column: 0,
        weight,
        accumulate: false,
        a: buffer.all(),
        w: buffer.all(),
        c: c.all(),
        scales: None,
        rows: None,
    };
    use seam_device::DType::{BF16, F32};
    for (m, weight, taken) in [(8, BF16, false), (9, BF16, true), (9, F32, false), (9, BF16, true), (64, BF16, true)] {
        let planned = products.planned(core, &gemm(m, weight)).unwrap();
        assert_eq!(planned.is_some(), taken, "{m} rows of {weight}");
    }
    assert_eq!(products.plans(), 2);
    let mut recorder = device.recorder();
    recorder.gemm(gemm(64, BF16)).unwrap();
    let list = recorder.finish().unwrap();
    assert_eq!((list.dispatches(), products.plans()), (4, 2), "a split into three parts and their products");
    for lane in [Lane::Compute, Lane::Copy] {
        let ticket = device.submit(&list, lane, &[]).unwrap();
        device.wait(ticket).unwrap();
    }
}
