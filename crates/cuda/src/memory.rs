//! Buffers: device memory, or pinned host memory for reading back; counted, and given back in stream order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seam_device::{Buffer, BufferUse, DeviceError};

use crate::core::{Core, Gpu, lock};
use crate::driver::{Address, Pinned};
use crate::staging::PIECE;

/// Physical sizes are multiples of this, so that a kernel may see a range as whole vectors of four.
const VECTOR: u64 = 16;

enum Where {
    Device(Address),
    /// For readback; gone once the buffer is dropped.
    Host(Option<Pinned>),
}

/// The handle of a `Buffer`.
pub(crate) struct Memory {
    gpu: Arc<Gpu>,
    at: Where,
    address: Address,
    bytes: u64,
    allocated: Arc<AtomicU64>,
}

impl Memory {
    /// Where kernels and copies find it.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// The host's view of a readback buffer.
    pub(crate) fn pinned(&self) -> Option<&Pinned> {
        match &self.at {
            Where::Host(pinned) => pinned.as_ref(),
            Where::Device(_) => None,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Lists keep their buffers until they have run; writes and reads are on the compute stream, before this.
        match &mut self.at {
            Where::Device(address) => {
                let _ = self.gpu.compute.free(*address, self.gpu.pooled);
            }
            Where::Host(pinned) => {
                if let (Some(pinned), Ok(event)) = (pinned.take(), self.gpu.compute.mark()) {
                    self.gpu.return_piece(event, pinned);
                }
            }
        }
        self.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The handle of a buffer.
///
/// # Errors
/// [`DeviceError::ForeignBuffer`].
pub(crate) fn memory<'a>(core: &Core, buffer: &'a Buffer) -> Result<&'a Memory, DeviceError> {
    core.own(buffer)?;
    let foreign = || DeviceError::ForeignBuffer { device: core.gpu.name.clone(), label: buffer.label().to_owned() };
    buffer.handle().ok_or_else(foreign)
}

/// A new buffer of `bytes` (a multiple of 4) that reads as zero.
///
/// # Errors
/// [`DeviceError::TooLarge`], [`DeviceError::OutOfMemory`] or what the driver says.
pub(crate) fn alloc(core: &Core, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError> {
    let limit = core.caps.max_buffer;
    if bytes > limit {
        return Err(DeviceError::TooLarge { device: core.gpu.name.clone(), label: label.to_owned(), bytes, limit });
    }
    let gpu = &core.gpu;
    gpu.alive()?;
    let size = bytes.div_ceil(VECTOR).max(1) * VECTOR;
    let (at, address) = match usage {
        BufferUse::Readback => {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let pinned = gpu.made("pin host memory", label, bytes, Pinned::new(&gpu.context, size))?;
            let address = pinned.address();
            (Where::Host(Some(pinned)), address)
        }
        BufferUse::Storage | BufferUse::Constant => {
            let mut found = gpu.compute.alloc(size, gpu.pooled);
            if found.as_ref().is_err_and(|refusal| refusal.out_of_memory()) {
                // What has been freed but not yet reached, and what the pool keeps, may be enough.
                core.land()?;
                gpu.done("synchronize", gpu.compute.synchronize())?;
                if gpu.pooled {
                    gpu.done("trim the pool", gpu.context.trim_pool())?;
                }
                found = gpu.compute.alloc(size, gpu.pooled);
                if found.is_err() && gpu.pooled {
                    // What the pool took for the attempt is for others.
                    gpu.done("trim the pool", gpu.context.trim_pool())?;
                }
            }
            let address = gpu.made("allocate", label, bytes, found)?;
            (Where::Device(address), address)
        }
    };
    core.counters.allocated.fetch_add(bytes, Ordering::Relaxed);
    let allocated = Arc::clone(&core.counters.allocated);
    let memory = Memory { gpu: Arc::clone(gpu), at, address, bytes, allocated };
    if usage != BufferUse::Readback {
        let mut timeline = lock(&core.timeline);
        timeline.mark();
        gpu.done("zero", gpu.compute.zero(address, size))?;
    }
    Ok(Buffer::new(core.id, label, bytes, usage, Box::new(memory)))
}

/// Writes bytes to `offset` of a buffer, after every list submitted so far and before every later one.
///
/// # Errors
/// [`DeviceError::Lost`] or what the driver says.
pub(crate) fn upload(core: &Core, label: &str, memory: &Memory, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
    let gpu = &core.gpu;
    gpu.alive()?;
    let mut at = memory.address().offset(offset);
    for bytes in bytes.chunks(PIECE) {
        gpu.throttle()?;
        let mut piece = gpu.piece(label, bytes.len() as u64)?;
        piece.fill(bytes);
        let mut timeline = lock(&core.timeline);
        timeline.host_work(gpu)?;
        let copied = gpu.compute.copy(piece.address(), at, bytes.len() as u64);
        let marked = gpu.compute.mark();
        drop(timeline);
        match marked {
            Ok(event) => gpu.return_piece(event, piece),
            Err(refusal) => {
                let _ = gpu.compute.synchronize();
                drop(piece);
                return gpu.done("write", Err(refusal));
            }
        }
        gpu.done("write", copied)?;
        at = at.offset(bytes.len() as u64);
    }
    Ok(())
}
