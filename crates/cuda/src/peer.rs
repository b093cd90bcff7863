//! Copies from another CUDA device, without the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use seam_device::{BufferRange, DeviceError, Lane, Ticket};

use crate::core::{Core, lock};
use crate::list::List;
use crate::memory::memory;

/// Copies `src` of `from` to `dst` of `core` on the target's copy lane; `None` where the GPUs do not reach each other.
///
/// The two timelines are locked one after the other and never together, so that copies in both directions at once cannot
/// wait for each other.
///
/// # Errors
/// [`DeviceError::ForeignBuffer`], [`DeviceError::Lost`] or what the driver says.
pub(crate) fn import(
    core: &Arc<Core>,
    from: &Arc<Core>,
    src: &BufferRange,
    dst: &BufferRange,
    after: &[Ticket],
) -> Result<Option<Ticket>, DeviceError> {
    let (gpu, other) = (&core.gpu, &from.gpu);
    let source = memory(from, &src.buffer)?.address().offset(src.offset);
    let target = memory(core, &dst.buffer)?.address().offset(dst.offset);
    if after.iter().any(|t| ![core.id, from.id].contains(&t.device)) {
        return Err(DeviceError::ForeignBuffer { device: gpu.name.clone(), label: "a ticket".to_owned() });
    }
    core.land()?;
    from.land()?;
    if !gpu.done("enable peer access", gpu.context.reaches(&other.context, other.pooled))? {
        return Ok(None);
    }
    // Tickets of the source are behind its event, whatever their lane.
    let ready = lock(&from.timeline).settled(other)?;
    let own: Vec<u64> = after.iter().filter(|t| t.device == core.id).map(|t| t.value).collect();
    let mut timeline = lock(&core.timeline);
    timeline.order(gpu, Lane::Copy, &own, false)?;
    gpu.done("wait for the other device", gpu.copy.wait_for(&ready))?;
    let begin = gpu.done("mark", gpu.copy.mark())?;
    let copied = if src.len > 0 { gpu.copy.copy_from(&other.context, source, target, src.len) } else { Ok(()) };
    let end = match copied.and_then(|()| gpu.copy.mark()) {
        Ok(end) => end,
        Err(refusal) => {
            let _ = gpu.copy.synchronize();
            return gpu.done("copy from the other device", Err(refusal));
        }
    };
    // The list of the ticket has nothing to do but to keep both buffers until the copy has run.
    let list = List::new(Vec::new(), vec![src.buffer.clone(), dst.buffer.clone()]);
    let value = timeline.push(Lane::Copy, begin, Arc::clone(&end), Arc::new(list));
    drop(timeline);
    // The source's memory is neither written nor given back before it has been read.
    let held = lock(&from.timeline);
    let waits = other.compute.wait_for(&end).and_then(|()| other.copy.wait_for(&end));
    drop(held);
    if waits.is_err() {
        let _ = gpu.copy.synchronize();
    }
    other.done("wait for the copy", waits)?;
    core.counters.submissions.fetch_add(1, Ordering::Relaxed);
    core.counters.copied.fetch_add(src.len, Ordering::Relaxed);
    Ok(Some(Ticket { device: core.id, value }))
}
