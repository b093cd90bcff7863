//! Reading back: in place from readback buffers, through pinned memory from others.

use std::sync::Arc;

use seam_device::{Buffer, BufferRange, DeviceError, Pending};

use crate::core::{Core, Gpu, lock};
use crate::driver::{Event, Pinned};
use crate::memory::{Memory, memory};

enum Source {
    /// The buffer itself.
    Buffer(Buffer),
    /// A piece that a copy fills.
    Piece(Option<Pinned>),
}

/// Bytes on their way.
struct Reading {
    gpu: Arc<Gpu>,
    source: Source,
    /// Everything that the bytes depend on; the last is on the compute stream.
    after: Vec<Arc<Event>>,
    last: Arc<Event>,
    offset: u64,
    len: u64,
}

/// No bytes.
struct Nothing;

impl Pending for Nothing {
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError> {
        Ok(Vec::new())
    }
}

/// Starts to read `range`, which lies in a buffer of this device, as it is after everything submitted so far.
///
/// # Errors
/// [`DeviceError::OutOfMemory`] of the host, [`DeviceError::Lost`] or what the driver says.
pub(crate) fn read(core: &Core, range: &BufferRange) -> Result<Box<dyn Pending>, DeviceError> {
    let gpu = &core.gpu;
    gpu.alive()?;
    if range.len == 0 {
        return Ok(Box::new(Nothing));
    }
    let from = memory(core, &range.buffer)?;
    let (source, after, last, offset) = if from.pinned().is_some() {
        let timeline = lock(&core.timeline);
        let after = timeline.ends(timeline.last());
        let last = gpu.done("read", gpu.compute.mark())?;
        drop(timeline);
        (Source::Buffer(range.buffer.clone()), after, last, range.offset)
    } else {
        let piece = gpu.piece(range.buffer.label(), range.len)?;
        let mut timeline = lock(&core.timeline);
        timeline.host_work(gpu)?;
        let copied = gpu.compute.copy(from.address().offset(range.offset), piece.address(), range.len);
        let marked = gpu.compute.mark();
        drop(timeline);
        match (copied, marked) {
            (Ok(()), Ok(last)) => (Source::Piece(Some(piece)), Vec::new(), last, 0),
            (copied, marked) => {
                let _ = gpu.compute.synchronize();
                drop(piece);
                return Err(gpu
                    .done("read", copied.and(marked.map(|_| ())))
                    .err()
                    .unwrap_or_else(|| gpu.backend("read", "the copy was not started")));
            }
        }
    };
    Ok(Box::new(Reading { gpu: Arc::clone(gpu), source, after, last, offset, len: range.len }))
}

impl Pending for Reading {
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError> {
        for event in &self.after {
            self.gpu.wait(event)?;
        }
        self.gpu.wait(&self.last)?;
        let pinned = match &self.source {
            Source::Buffer(buffer) => buffer.handle::<Memory>().and_then(Memory::pinned),
            Source::Piece(piece) => piece.as_ref(),
        };
        match pinned {
            Some(pinned) => Ok(pinned.bytes(self.offset, self.len)),
            None => Err(self.gpu.backend("read", "the memory of the reader is gone")),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Source::Piece(piece) = &mut self.source
            && let Some(piece) = piece.take()
        {
            self.gpu.return_piece(Arc::clone(&self.last), piece);
        }
    }
}
