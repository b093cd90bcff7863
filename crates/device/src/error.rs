//! Errors of the backend contract.

/// What a device can answer instead of doing as asked. Every variant names the device or the thing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device cannot be opened.
    #[error("device {device} is not available: {reason}")]
    Unavailable {
        /// The device as the user names it.
        device: String,
        /// Why.
        reason: String,
    },
    /// An allocation did not fit into device memory.
    #[error("{device}: out of memory allocating {bytes} bytes for {label}")]
    OutOfMemory {
        /// The device.
        device: String,
        /// What the memory was for.
        label: String,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A buffer or binding is larger than the device permits.
    #[error("{device}: {label} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The device.
        device: String,
        /// What it is.
        label: String,
        /// Its size.
        bytes: u64,
        /// The most the device takes.
        limit: u64,
    },
    /// A buffer of another device was handed in.
    #[error("{device}: buffer {label} belongs to another device")]
    ForeignBuffer {
        /// The device that was asked.
        device: String,
        /// The buffer.
        label: String,
    },
    /// A range reaches past its buffer.
    #[error("buffer {label}: range {offset}+{len} reaches past its {size} bytes")]
    OutOfRange {
        /// The buffer.
        label: String,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the buffer.
        size: u64,
    },
    /// A range does not start at a multiple of the needed alignment.
    #[error("buffer {label}: offset {offset} is not a multiple of {align}")]
    Misaligned {
        /// The buffer.
        label: String,
        /// The offset in bytes.
        offset: u64,
        /// The alignment in bytes.
        align: u64,
    },
    /// One buffer is bound for reading and for writing in one dispatch.
    #[error("kernel {kernel}: buffer {label} is bound both read-only and writable")]
    Aliased {
        /// The kernel.
        kernel: String,
        /// The buffer.
        label: String,
    },
    /// A write to a buffer that borrows host memory.
    #[error("buffer {label} is read-only")]
    ReadOnly {
        /// The buffer.
        label: String,
    },
    /// The device lacks a kernel, dtype or layout.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// What is missing.
        what: String,
    },
    /// A dispatch whose bindings, parameters, constants or grid do not fit its kernel.
    #[error("kernel {kernel}: {reason}")]
    BadDispatch {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        reason: String,
    },
    /// The device went away, or timed out.
    #[error("{device} was lost: {reason}")]
    Lost {
        /// The device.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// The driver refused something.
    #[error("{device}: {op}: {reason}")]
    Backend {
        /// The device.
        device: String,
        /// The call.
        op: String,
        /// The driver's words.
        reason: String,
    },
}
