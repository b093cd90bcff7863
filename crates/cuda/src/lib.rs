//! The CUDA device: NVIDIA GPUs, through a driver and a compiler that are found when the program runs.
//!
//! [`CudaDevice`] implements the contract of `seam-device`. Nothing of CUDA is needed to build this crate, and a machine
//! without it gets a typed error. Kernels are the CUDA C++ of the kernels crate, compiled by NVRTC for the present chip
//! when they are first recorded, and kept on disk. A list is a sequence of launches with resolved addresses; the lanes
//! are two streams, and events are the tickets. What the host writes and reads passes through pinned memory, in order
//! with the kernels. A list that is submitted again becomes a CUDA graph. Nothing here knows what a kernel computes, except
//! that a matrix product of many rows and bf16 weights becomes calls of cublasLt where that is found, and one of the two GEMM
//! kernels otherwise. cublasLt's tensor cores take bf16: in `Precision::Bf16` the other operand is rounded to it, in
//! `Precision::F32` it is split into three whose products are added, which keeps the bits of f32.
//!
//! What it is not: it does not choose plans, split tensors that exceed a binding, or fall back to another device.
//!
//! ```no_run
//! use seam_cuda::{CudaDevice, Options, report};
//! use seam_device::{BufferUse, Device};
//!
//! for missing in report().missing() {
//!     println!("{missing}");
//! }
//! let device = CudaDevice::open(&Options::default())?;
//! let buffer = device.alloc("rows", 1024, BufferUse::Storage)?;
//! device.write(&buffer.all(), &[0; 1024])?;
//! # Ok::<(), seam_device::DeviceError>(())
//! ```

mod blas;
mod cache;
mod core;
mod device;
mod doctor;
mod driver;
mod find;
#[cfg(test)]
mod gpu_tests;
mod kernels;
mod list;
mod memory;
mod nvrtc;
mod peer;
mod products;
mod read;
mod recorder;
mod resources;
mod staging;
mod timeline;

pub use device::{CudaDevice, KernelCache, Options};
pub use doctor::{GpuReport, Report, report};
pub use find::LIBRARIES;
pub use list::GraphCounts;
pub use resources::{Compiler, Resources};
