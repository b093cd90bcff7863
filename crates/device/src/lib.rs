//! The backend contract of Seam: what a device is, without any device.
//!
//! A backend knows memory, kernels and time. It allocates [`Buffer`]s, records commands into a replayable
//! [`CommandList`], runs lists on [`Lane`]s in the order given by [`Ticket`]s, and reads results back without ever
//! blocking a submission. Operations, tables and models live above it and exist once.
//!
//! This crate has no GPU dependency. It does not know what any kernel computes: a [`KernelId`] is an index into the
//! manifest of the kernels crate, which every device crate reads.
//!
//! ```
//! use seam_device::{Slabs, DType};
//!
//! // Addresses are (slab, offset): a slab never exceeds what a kernel can bind.
//! let mut slabs = Slabs::new(1024);
//! let a = slabs.alloc(1000).unwrap();
//! let b = slabs.alloc(100).unwrap();
//! assert_eq!((a.slab, b.slab), (0, 1));
//! slabs.free(a);
//! assert_eq!(slabs.alloc(24).unwrap().slab, 0);
//! assert_eq!(DType::BF16.size(), 2);
//! ```

mod buffer;
mod caps;
mod command;
mod device;
mod dtype;
mod error;
mod fp8;
mod host;
mod slab;
mod topology;

pub use buffer::{Access, Buffer, BufferRange, BufferUse, DeviceId};
pub use caps::{Caps, DeviceKind, GemmCaps, KernelSet, Precision};
pub use command::{Command, CommandList, Copy, Dispatch, Gemm, KernelId, Recorder, check_dispatch, check_gemm};
pub use device::{Device, Lane, Pending, Stats, Ticket};
pub use dtype::DType;
pub use error::DeviceError;
pub use fp8::e4m3;
pub use host::HostBytes;
pub use slab::{Place, Slabs, SlabsFull};
pub use topology::Topology;

/// Alignment in bytes of every range that a kernel binds.
///
/// 256 is the largest `min_storage_buffer_offset_alignment` that a conforming GPU may ask for.
pub const BIND_ALIGN: u64 = 256;

/// Rounds `bytes` up to [`BIND_ALIGN`].
#[must_use]
pub const fn align_up(bytes: u64) -> u64 {
    bytes.div_ceil(BIND_ALIGN) * BIND_ALIGN
}
