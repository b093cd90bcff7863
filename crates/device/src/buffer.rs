//! Device memory, opaque and counted.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{BIND_ALIGN, DeviceError};

/// Identity of one opened device within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(u64);

impl DeviceId {
    /// An id that no other device of this process has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferUse {
    /// Read and written by kernels.
    Storage,
    /// Target of a copy at the end of a list, from which the host reads without another submission.
    Readback,
    /// Read-only: bytes given when it was made.
    Constant,
}

/// How a kernel uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and written.
    ReadWrite,
}

struct Inner {
    device: DeviceId,
    label: String,
    bytes: u64,
    usage: BufferUse,
    handle: Box<dyn Any + Send + Sync>,
}

/// A buffer of one device. Clones share the memory, which returns to the device when the last clone and the last
/// command list that names it are gone (a list in flight keeps its buffers).
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

impl Buffer {
    /// Wraps a device's own handle. Only device crates call this.
    #[must_use]
    pub fn new(
        device: DeviceId,
        label: &str,
        bytes: u64,
        usage: BufferUse,
        handle: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self(Arc::new(Inner { device, label: label.to_owned(), bytes, usage, handle }))
    }

    /// The device it belongs to.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.0.device
    }

    /// What it was called when it was allocated.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// What it is for.
    #[must_use]
    pub fn usage(&self) -> BufferUse {
        self.0.usage
    }

    /// The device's own handle, if it is of type `T`.
    #[must_use]
    pub fn handle<T: Any>(&self) -> Option<&T> {
        self.0.handle.downcast_ref()
    }

    /// Whether two names mean the same memory.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that is the same for all names of this memory, and for no other living buffer.
    #[must_use]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<u8>() as usize
    }

    /// The whole buffer.
    #[must_use]
    pub fn all(&self) -> BufferRange {
        BufferRange { buffer: self.clone(), offset: 0, len: self.bytes() }
    }

    /// `len` bytes from `offset`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if it reaches past the end.
    pub fn range(&self, offset: u64, len: u64) -> Result<BufferRange, DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes() => Ok(BufferRange { buffer: self.clone(), offset, len }),
            _ => Err(DeviceError::OutOfRange { label: self.label().to_owned(), offset, len, size: self.bytes() }),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} {} B)", self.label(), self.bytes())
    }
}

/// Part of a buffer.
#[derive(Clone, Debug)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: Buffer,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl BufferRange {
    /// A part of this range; `offset` counts from its start.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if it reaches past this range.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Self, DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => self.buffer.range(self.offset + offset, len),
            _ => Err(DeviceError::OutOfRange { label: self.buffer.label().to_owned(), offset, len, size: self.len }),
        }
    }

    /// Whether the host may write `bytes` bytes at the start of the range.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`] for constants, [`DeviceError::Misaligned`] if it does not start at a word, or
    /// [`DeviceError::OutOfRange`] for more bytes than it has, or such that are no whole words.
    pub fn check_write(&self, bytes: u64) -> Result<(), DeviceError> {
        self.buffer.range(self.offset, self.len)?;
        let label = || self.buffer.label().to_owned();
        if self.buffer.usage() == BufferUse::Constant {
            return Err(DeviceError::ReadOnly { label: label() });
        }
        if !self.offset.is_multiple_of(4) {
            return Err(DeviceError::Misaligned { label: label(), offset: self.offset, align: 4 });
        }
        if bytes > self.len || !bytes.is_multiple_of(4) {
            return Err(DeviceError::OutOfRange { label: label(), offset: self.offset, len: bytes, size: self.len });
        }
        Ok(())
    }

    /// Whether the range may be bound by a kernel.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`], or [`DeviceError::Misaligned`] if it does not start at a multiple of
    /// [`BIND_ALIGN`].
    pub fn check_bindable(&self) -> Result<(), DeviceError> {
        self.buffer.range(self.offset, self.len)?;
        if !self.offset.is_multiple_of(BIND_ALIGN) {
            return Err(DeviceError::Misaligned {
                label: self.buffer.label().to_owned(),
                offset: self.offset,
                align: BIND_ALIGN,
            });
        }
        Ok(())
    }
}
