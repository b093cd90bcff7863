//! Host memory behind buffers, as 32-bit words under a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use seam_device::{Buffer, DeviceError, HostBytes};

/// The memory of one buffer.
pub(crate) enum Memory {
    /// Owned words, zero at first.
    Words {
        /// The words.
        words: RwLock<Vec<u32>>,
        /// Kept for its drop.
        _counted: Counted,
    },
    /// Borrowed host bytes, aligned to words.
    Host(HostBytes),
}

/// Takes its bytes off the device's count when it is dropped.
pub(crate) struct Counted {
    bytes: u64,
    allocated: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn new(bytes: u64, allocated: &Arc<AtomicU64>) -> Self {
        allocated.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, allocated: Arc::clone(allocated) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer's words while it is read.
pub(crate) enum Reading<'a> {
    Words(RwLockReadGuard<'a, Vec<u32>>),
    Host(&'a [u8]),
}

impl Reading<'_> {
    /// All words.
    pub(crate) fn words(&self) -> &[u32] {
        match self {
            Self::Words(guard) => guard,
            // Checked when the buffer was made; an unaligned slice reads as empty and fails in the kernel's bounds.
            Self::Host(bytes) => bytemuck::try_cast_slice(bytes).unwrap_or_default(),
        }
    }
}

/// The memory of a buffer of this device.
pub(crate) fn memory(buffer: &Buffer) -> Result<&Memory, DeviceError> {
    buffer
        .handle()
        .ok_or_else(|| DeviceError::ForeignBuffer { device: "cpu".to_owned(), label: buffer.label().to_owned() })
}

/// Locks a buffer for reading.
pub(crate) fn read(buffer: &Buffer) -> Result<Reading<'_>, DeviceError> {
    Ok(match memory(buffer)? {
        Memory::Words { words, .. } => Reading::Words(words.read().unwrap_or_else(PoisonError::into_inner)),
        Memory::Host(bytes) => Reading::Host(bytes.as_slice()),
    })
}

/// Locks a buffer for writing.
pub(crate) fn write(buffer: &Buffer) -> Result<RwLockWriteGuard<'_, Vec<u32>>, DeviceError> {
    match memory(buffer)? {
        Memory::Words { words, .. } => Ok(words.write().unwrap_or_else(PoisonError::into_inner)),
        Memory::Host(_) => Err(DeviceError::ReadOnly { label: buffer.label().to_owned() }),
    }
}
