//! Transfers between devices.

use std::sync::Arc;

use crate::{BufferRange, BufferUse, Copy, Device, DeviceError, DeviceId, Lane, Ticket};

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

    fn device(&self, id: DeviceId, label: &str) -> Result<&Arc<dyn Device>, DeviceError> {
        self.devices
            .iter()
            .find(|d| d.id() == id)
            .ok_or_else(|| DeviceError::ForeignBuffer { device: "topology".to_owned(), label: label.to_owned() })
    }

    /// Copies `src` to `dst`, which has the same length, after the given tickets of either device; lists of the target
    /// that come after the ticket see the bytes.
    ///
    /// Within one device it is a list of its compute lane. Between two it is the target's [`Device::import`] if that reaches
    /// the source, and else passes through host memory, for which this call waits; either way the source may be written
    /// again by whatever is submitted later.
    ///
    /// # Errors
    /// [`DeviceError::ForeignBuffer`] for a range or ticket of a device outside this topology or of a third one, the rules of
    /// [`Copy::check_ranges`], or any error of the devices.
    pub fn transfer(&self, src: &BufferRange, dst: &BufferRange, after: &[Ticket]) -> Result<Ticket, DeviceError> {
        let from = self.device(src.buffer.device(), src.buffer.label())?;
        let to = self.device(dst.buffer.device(), dst.buffer.label())?;
        for ticket in after {
            self.device(ticket.device, "a ticket")?;
            if ![from.id(), to.id()].contains(&ticket.device) {
                return Err(DeviceError::ForeignBuffer {
                    device: "transfer".to_owned(),
                    label: "a ticket of a third device".to_owned(),
                });
            }
        }
        Copy { src: src.clone(), dst: dst.clone() }.check_ranges()?;
        let readback = [src, dst].iter().any(|r| r.buffer.usage() == BufferUse::Readback);
        if from.id() == to.id() && !readback {
            let mut recorder = to.recorder();
            recorder.copy(src, dst)?;
            return to.submit(&recorder.finish()?, Lane::Compute, after);
        }
        if from.id() != to.id()
            && !readback
            && let Some(ticket) = to.import(src, &**from, dst, after)
        {
            return ticket;
        }
        let (of_source, of_target): (Vec<Ticket>, Vec<Ticket>) = after.iter().partition(|t| t.device == from.id());
        let bytes = from.read(src, &of_source)?.wait()?;
        // The write comes before every later list; it must not come before these.
        for ticket in of_target {
            to.wait(ticket)?;
        }
        to.write(dst, &bytes)?;
        to.submit(&to.recorder().finish()?, Lane::Copy, &[])
    }
}
