//! Reading back: in place from readback buffers, through a staging copy from others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seam_device::{Buffer, BufferRange, DeviceError, Pending};

use crate::core::{Core, lock};
use crate::memory::{MapStatus, Mapping, create, memory};

/// Bytes on their way.
pub(crate) struct Reading {
    core: Arc<Core>,
    mapping: Arc<Mapping>,
    status: MapStatus,
    /// Everything that the bytes depend on.
    index: Option<wgpu::SubmissionIndex>,
    label: String,
    offset: u64,
    len: u64,
    /// The buffer that is mapped in place.
    _buffer: Option<Buffer>,
}

/// Starts to read `range`, which lies in a buffer of this device.
///
/// # Errors
/// As [`Core::guarded`].
pub(crate) fn read(core: &Arc<Core>, range: &BufferRange) -> Result<Box<dyn Pending>, DeviceError> {
    if range.len == 0 {
        core.alive()?;
        return Ok(Box::new(Nothing));
    }
    let source = memory(core, &range.buffer)?;
    let label = range.buffer.label().to_owned();
    let (mapping, offset, index, buffer) = match &source.mapping {
        Some(mapping) => {
            let latest = lock(&core.timeline).latest();
            (Arc::clone(mapping), range.offset, latest, Some(range.buffer.clone()))
        }
        None => {
            let start = range.offset / 4 * 4;
            let end = (range.offset + range.len).next_multiple_of(4);
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let staging = create(core, &label, end - start, usage)?;
            let index = core.guarded("read", &label, end - start, || {
                let mut encoder = core.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                encoder.copy_buffer_to_buffer(&source.raw, start, &staging, 0, Some(end - start));
                core.queue.submit([encoder.finish()])
            })?;
            (Arc::new(Mapping::new(staging)), range.offset - start, Some(index), None)
        }
    };
    let status = core.guarded("map", &label, range.len, || mapping.acquire())?;
    Ok(Box::new(Reading {
        core: Arc::clone(core),
        mapping,
        status,
        index,
        label,
        offset,
        len: range.len,
        _buffer: buffer,
    }))
}

/// No bytes.
struct Nothing;

impl Pending for Nothing {
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError> {
        Ok(Vec::new())
    }
}

/// How long a mapping may stay out after the work it waits for is done.
const LATE: Duration = Duration::from_secs(10);

impl Pending for Reading {
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError> {
        if self.status.done().is_none() {
            self.core.wait_for(self.index.clone())?;
        }
        // Another thread's poll may be the one that found the work done; then it also runs the callback, soon.
        let since = Instant::now();
        while self.status.done().is_none() {
            if since.elapsed() > LATE {
                return Err(self.core.backend("map", format!("{}: the mapping does not come", self.label)));
            }
            self.core.tick()?;
            std::thread::yield_now();
        }
        self.core.alive()?;
        if self.status.done() != Some(true) {
            return Err(self.core.backend("map", format!("{}: the mapping failed", self.label)));
        }
        self.mapping
            .copy_out(self.offset, self.len)
            .map_err(|reason| self.core.backend("map", format!("{}: {reason}", self.label)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.mapping.release();
    }
}
