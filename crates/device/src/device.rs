//! The device itself.

use std::any::Any;
use std::time::Duration;

use crate::{Buffer, BufferRange, BufferUse, Caps, CommandList, DeviceError, DeviceId, HostBytes, Recorder};

/// A queue of work. A backend with one queue runs both lanes on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Kernels.
    Compute,
    /// Copies that may overlap with kernels.
    Copy,
}

/// A point in a device's work: reached when everything submitted up to it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The device.
    pub device: DeviceId,
    /// Number of the submission, rising from 1.
    pub value: u64,
}

/// Bytes on their way from a device.
pub trait Pending: Send {
    /// Waits for the bytes.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] or what the driver says.
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError>;
}

/// What a device has done since it was opened: the counters that tests of waste read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Command lists that ran.
    pub submissions: u64,
    /// Kernel launches and products.
    pub dispatches: u64,
    /// Bytes written from the host (uploads and tables).
    pub written: u64,
    /// Bytes read by the host.
    pub read: u64,
    /// Bytes copied within the device.
    pub copied: u64,
    /// Bytes now allocated.
    pub allocated: u64,
}

/// A place that computes. Object safe, shared between threads.
pub trait Device: Any + Send + Sync {
    /// Identity within the process.
    fn id(&self) -> DeviceId;

    /// What it can do.
    fn caps(&self) -> &Caps;

    /// Counters since it was opened.
    fn stats(&self) -> Stats;

    /// Allocates `bytes` (rounded up to a multiple of 4). New memory reads as zero.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] or [`DeviceError::TooLarge`]; the device goes on working.
    fn alloc(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError>;

    /// A constant buffer with these bytes. A CPU borrows them (mapped weights are not copied), other devices copy.
    ///
    /// # Errors
    /// As [`Device::alloc`].
    fn constant(&self, label: &str, bytes: HostBytes) -> Result<Buffer, DeviceError>;

    /// Writes host bytes before every list that is submitted later. Offset and length are multiples of 4.
    ///
    /// # Errors
    /// A range error, [`DeviceError::ReadOnly`] or [`DeviceError::ForeignBuffer`].
    fn write(&self, range: &BufferRange, bytes: &[u8]) -> Result<(), DeviceError>;

    /// A new recorder.
    fn recorder(&self) -> Box<dyn Recorder>;

    /// Runs a list on a lane after the given tickets.
    ///
    /// # Errors
    /// [`DeviceError::ForeignBuffer`] for a list or ticket of another device, or what the driver says.
    fn submit(&self, list: &CommandList, lane: Lane, after: &[Ticket]) -> Result<Ticket, DeviceError>;

    /// Whether a ticket has been reached, without waiting.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn poll(&self, ticket: Ticket) -> Result<bool, DeviceError>;

    /// Waits for a ticket.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], also when the wait takes implausibly long.
    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError>;

    /// Device time of the list behind a ticket, if the device measures it.
    fn elapsed(&self, ticket: Ticket) -> Option<Duration>;

    /// Starts reading a range after the given tickets. Never blocks a submission. A [`BufferUse::Readback`] buffer is
    /// read in place and must not be written before [`Pending::wait`] returned.
    ///
    /// # Errors
    /// A range error, or what the driver says.
    fn read(&self, range: &BufferRange, after: &[Ticket]) -> Result<Box<dyn Pending>, DeviceError>;

    /// Starts a copy of `src`, of the device `from`, to `dst` of this one, without the host, after everything that `from`
    /// was given so far and after `after` (tickets of either); whatever `from` is given later comes after the copy. `None`
    /// where this device does not reach memory of the other. The caller, [`crate::Topology::transfer`], has checked the
    /// ranges, and that neither is of a [`BufferUse::Readback`] buffer.
    ///
    /// # Errors
    /// [`DeviceError::ForeignBuffer`], or what the driver says.
    fn import(
        &self,
        _src: &BufferRange,
        _from: &dyn Device,
        _dst: &BufferRange,
        _after: &[Ticket],
    ) -> Option<Result<Ticket, DeviceError>> {
        None
    }
}
