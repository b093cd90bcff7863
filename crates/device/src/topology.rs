//! Transfers between devices.

use std::sync::Arc;

use crate::{BufferRange, Device, DeviceError, Ticket};

/// The devices of a process and how bytes get from one to another.
#[derive(Clone)]
pub struct Topology {
    devices: Vec<Arc<dyn Device>>,
}

impl Topology {
    /// The given devices.
    #[must_use]
    pub fn new(devices: Vec<Arc<dyn Device>>) -> Self {
        Self { devices }
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    fn owner(&self, range: &BufferRange) -> Result<&Arc<dyn Device>, DeviceError> {
        self.devices.iter().find(|d| d.id() == range.buffer.device()).ok_or_else(|| DeviceError::ForeignBuffer {
            device: "topology".to_owned(),
            label: range.buffer.label().to_owned(),
        })
    }

    /// Copies `src` to `dst`, which has the same length, after the given tickets, through host memory.
    /// Lists submitted to the target device later see the bytes.
    ///
    /// # Errors
    /// A device outside this topology, or any error of the read or the write.
    pub fn transfer(&self, src: &BufferRange, dst: &BufferRange, after: &[Ticket]) -> Result<(), DeviceError> {
        let from = self.owner(src)?;
        let to = self.owner(dst)?;
        let bytes = from.read(src, after)?.wait()?;
        to.write(dst, &bytes)
    }
}
