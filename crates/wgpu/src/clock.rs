//! Device time of lists, from timestamps at the borders of their passes.

use std::sync::Mutex;
use std::time::Duration;

use seam_device::DeviceError;

use crate::core::{Core, lock};
use crate::memory::{Mapping, create};

/// Submissions whose times are kept.
const SLOTS: u64 = 64;

/// Bytes of two timestamps.
const PAIR: u64 = 16;

/// A ring of timestamp pairs, one a submission.
pub(crate) struct Clock {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    slots: Mutex<Vec<Slot>>,
    /// Nanoseconds of a tick.
    period: f64,
}

struct Slot {
    ticket: u64,
    raw: wgpu::Buffer,
    mapping: Mapping,
    read: Option<Duration>,
}

/// The slot of a submission that is being encoded.
#[derive(Clone, Copy)]
pub(crate) struct Stamp(u64);

impl Clock {
    /// A clock, where the device has timestamps.
    ///
    /// # Errors
    /// As [`Core::guarded`].
    pub(crate) fn new(core: &Core) -> Result<Option<Self>, DeviceError> {
        if !core.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Ok(None);
        }
        let queries = core.guarded("make queries", "timestamps", 0, || {
            core.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * SLOTS as u32,
            })
        })?;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = create(core, "timestamps", SLOTS * wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT, usage)?;
        let slots = (0..SLOTS)
            .map(|_| {
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                let raw = create(core, "a pair of timestamps", PAIR, usage)?;
                Ok(Slot { ticket: 0, mapping: Mapping::new(raw.clone()), raw, read: None })
            })
            .collect::<Result<Vec<Slot>, DeviceError>>()?;
        let period = f64::from(core.queue.get_timestamp_period());
        Ok(Some(Self { queries, resolved, slots: Mutex::new(slots), period }))
    }

    /// The queries of the submission with ticket `value`.
    pub(crate) fn stamp(&self, value: u64) -> (Stamp, (&wgpu::QuerySet, u32, u32)) {
        let slot = value % SLOTS;
        (Stamp(slot), (&self.queries, 2 * slot as u32, 2 * slot as u32 + 1))
    }

    /// Encodes the copy of a pair to where the host reads it.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, Stamp(slot): Stamp, value: u64) {
        let at = slot * wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT;
        let first = 2 * slot as u32;
        encoder.resolve_query_set(&self.queries, first..first + 2, &self.resolved, at);
        if let Some(slot) = lock(&self.slots).get_mut(slot as usize) {
            slot.ticket = value;
            slot.read = None;
            encoder.copy_buffer_to_buffer(&self.resolved, at, &slot.raw, 0, Some(PAIR));
        }
    }

    /// Device time of the list behind ticket `value`, which has run; `None` if it had no pass or is long ago.
    pub(crate) fn elapsed(&self, core: &Core, value: u64) -> Option<Duration> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut((value % SLOTS) as usize).filter(|slot| slot.ticket == value)?;
        if slot.read.is_none() {
            let status = core.guarded("map", "timestamps", 0, || slot.mapping.acquire()).ok()?;
            // The work is done, so the mapping comes with the next poll.
            let mapped = core.tick().is_ok() && status.done() == Some(true);
            let pair = if mapped { slot.mapping.copy_out(0, PAIR).ok() } else { None };
            slot.mapping.release();
            let pair = pair?;
            let [begin, end] =
                [0, 8].map(|i| pair.get(i..i + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes));
            let ticks = end?.checked_sub(begin?)?;
            slot.read = Some(Duration::from_nanos((ticks as f64 * self.period) as u64));
        }
        slot.read
    }
}
