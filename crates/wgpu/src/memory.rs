//! Buffers: wgpu's own, counted, and mapped for reading by any number of readers.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use seam_device::{Buffer, BufferUse, DeviceError};

use crate::core::{Core, lock};

/// Physical sizes are multiples of this, so that a kernel may see a range as whole vectors of four.
pub(crate) const VECTOR: u64 = 16;

/// The handle of a `Buffer`.
pub(crate) struct Memory {
    pub(crate) raw: wgpu::Buffer,
    /// For readback buffers.
    pub(crate) mapping: Option<Arc<Mapping>>,
    bytes: u64,
    allocated: Arc<AtomicU64>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The handle of a buffer.
///
/// # Errors
/// [`DeviceError::ForeignBuffer`].
pub(crate) fn memory<'a>(core: &Core, buffer: &'a Buffer) -> Result<&'a Memory, DeviceError> {
    core.own(buffer)?;
    buffer.handle().ok_or_else(|| DeviceError::ForeignBuffer { device: core.name(), label: buffer.label().to_owned() })
}

/// A new buffer of `bytes` (a multiple of 4) that reads as zero.
///
/// # Errors
/// [`DeviceError::TooLarge`] or what [`Core::guarded`] says.
pub(crate) fn alloc(core: &Core, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError> {
    let limit = core.caps.max_buffer;
    if bytes > limit {
        return Err(DeviceError::TooLarge { device: core.name(), label: label.to_owned(), bytes, limit });
    }
    let flags = match usage {
        BufferUse::Storage | BufferUse::Constant => {
            wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST
        }
        BufferUse::Readback => wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
    };
    let raw = create(core, label, bytes, flags)?;
    core.counters.allocated.fetch_add(bytes, Ordering::Relaxed);
    let mapping = (usage == BufferUse::Readback).then(|| Arc::new(Mapping::new(raw.clone())));
    let allocated = Arc::clone(&core.counters.allocated);
    Ok(Buffer::new(core.id, label, bytes, usage, Box::new(Memory { raw, mapping, bytes, allocated })))
}

/// An uncounted buffer of at least `bytes`.
///
/// # Errors
/// As [`Core::guarded`].
pub(crate) fn create(
    core: &Core,
    label: &str,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> Result<wgpu::Buffer, DeviceError> {
    let size = bytes.div_ceil(VECTOR).max(1) * VECTOR;
    core.guarded("allocate", label, bytes, || {
        core.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation: false,
        })
    })
}

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// Where one mapping request stands.
#[derive(Clone)]
pub(crate) struct MapStatus(Arc<AtomicU8>);

impl MapStatus {
    /// `None` while pending, then whether it worked.
    pub(crate) fn done(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            PENDING => None,
            state => Some(state == MAPPED),
        }
    }
}

/// A buffer that is mapped while it has readers.
pub(crate) struct Mapping {
    raw: wgpu::Buffer,
    readers: Mutex<(u32, MapStatus)>,
}

impl Mapping {
    pub(crate) fn new(raw: wgpu::Buffer) -> Self {
        Self { raw, readers: Mutex::new((0, MapStatus(Arc::new(AtomicU8::new(FAILED))))) }
    }

    /// One more reader; the first asks for the mapping, which comes when the work submitted so far is done.
    pub(crate) fn acquire(&self) -> MapStatus {
        let mut readers = lock(&self.readers);
        if readers.0 == 0 {
            let state = Arc::new(AtomicU8::new(PENDING));
            readers.1 = MapStatus(Arc::clone(&state));
            self.raw.map_async(wgpu::MapMode::Read, .., move |result| {
                state.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
            });
        }
        readers.0 += 1;
        readers.1.clone()
    }

    /// One reader less; the last unmaps.
    pub(crate) fn release(&self) {
        let mut readers = lock(&self.readers);
        readers.0 = readers.0.saturating_sub(1);
        if readers.0 == 0 {
            self.raw.unmap();
        }
    }

    /// A copy of `len` bytes from `offset` of the mapped buffer, or what wgpu says.
    pub(crate) fn copy_out(&self, offset: u64, len: u64) -> Result<Vec<u8>, String> {
        // Views start at multiples of 8 and have whole words.
        let start = offset / wgpu::MAP_ALIGNMENT * wgpu::MAP_ALIGNMENT;
        let end = (offset + len).next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        if end > self.raw.size() {
            return Err(format!("{end} bytes of a buffer of {}", self.raw.size()));
        }
        let view = self.raw.get_mapped_range(start..end).map_err(|e| e.to_string())?;
        let skip = (offset - start) as usize;
        view.get(skip..skip + len as usize).map(<[u8]>::to_vec).ok_or_else(|| "a short view".to_owned())
    }
}
