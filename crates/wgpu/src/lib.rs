//! The wgpu device: Vulkan, Metal and DX12 through the WGSL of the kernels crate, and software drivers for tests.
//!
//! [`WgpuDevice`] implements the contract of `seam-device`. Lists are re-encoded at every submission into one command
//! buffer with as few passes as their copies permit; parameters and bind groups are made once, when recording ends.
//! Both lanes run on the one queue that wgpu offers. Nothing here knows what a kernel computes, except that a matrix
//! product becomes one of the two GEMM kernels.
//!
//! What it is not: it does not choose plans, split tensors that exceed a binding, or fall back to another device.
//!
//! Software drivers need care that is built into the shaders. lavapipe (Mesa 22) compiles a kernel anew for every value of
//! a uniform that a branch depends on, takes time that grows with the square of the places that access memory, and lets
//! an invocation loop 65535 times in all, beyond which results are wrong: keep passes on it small.
//!
//! ```no_run
//! use seam_device::{BufferUse, Device};
//! use seam_wgpu::{Options, WgpuDevice, adapters};
//!
//! for adapter in adapters() {
//!     println!("{} on {}: {:?}", adapter.name, adapter.backend, adapter.usable);
//! }
//! let device = WgpuDevice::open(&Options::default())?;
//! let buffer = device.alloc("rows", 1024, BufferUse::Storage)?;
//! device.write(&buffer.all(), &[0; 1024])?;
//! # Ok::<(), seam_device::DeviceError>(())
//! ```

mod adapter;
mod clock;
mod core;
mod device;
mod list;
mod memory;
mod pipeline;
mod read;
mod recorder;
mod timeline;

pub use adapter::{AdapterChoice, AdapterReport, Limits, adapters};
pub use device::{Options, WgpuDevice};
