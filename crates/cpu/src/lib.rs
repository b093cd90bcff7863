//! The CPU device: the kernels' twins on host memory.
//!
//! It is also what runs when there is no GPU. Lists run when they are submitted, one after another, each command on all
//! cores. Weights given as [`seam_device::HostBytes`] are used in place: a mapped file is never copied, and bf16
//! weights are widened panel by panel inside a product. Results have the same bits whatever else is in a batch.
//!
//! ```
//! use seam_cpu::{CpuDevice, Options};
//! use seam_device::{BufferUse, Device};
//!
//! let device = CpuDevice::open(Options::default());
//! let buffer = device.alloc("numbers", 16, BufferUse::Storage)?;
//! device.write(&buffer.all(), bytemuck::bytes_of(&[1.0f32, 2.0, 3.0, 4.0]))?;
//! assert_eq!(device.read(&buffer.range(4, 4)?, &[])?.wait()?, 2.0f32.to_le_bytes());
//! # Ok::<(), seam_device::DeviceError>(())
//! ```

mod device;
mod gemm;
mod list;
mod memory;

pub use device::{CpuDevice, Options};
