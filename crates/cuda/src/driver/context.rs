//! The primary context of a GPU, and events in its streams.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::sync::{Arc, Mutex};

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};

use super::{Answer, Refusal};
use crate::core::lock;

/// The primary context of a GPU, and events that can be used again.
pub(crate) struct Context {
    pub(super) raw: sys::CUcontext,
    pub(super) device: sys::CUdevice,
    events: Mutex<Vec<RawEvent>>,
    /// Which GPUs' memory this one's copies reach, as far as it was asked.
    pub(super) peers: Mutex<Vec<(sys::CUdevice, bool)>>,
}

struct RawEvent(sys::CUevent);

// SAFETY: the driver's handles may be used from any thread, and its calls are thread safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for RawEvent {}

impl Context {
    /// A primary context that the caller has retained; it is released when the value made here is dropped.
    pub(super) fn retained(raw: sys::CUcontext, device: sys::CUdevice) -> Answer<Self> {
        let context = Self { raw, device, events: Mutex::default(), peers: Mutex::default() };
        context.enter()?;
        Ok(context)
    }

    /// Makes it current on this thread.
    pub(crate) fn enter(&self) -> Answer<()> {
        // SAFETY: the context is retained until this value is dropped.
        Ok(unsafe { result::ctx::set_current(self.raw) }?)
    }

    /// Keeps freed memory in the device's pool instead of giving it back at every synchronisation.
    pub(crate) fn keep_pool(&self) -> Answer<()> {
        self.enter()?;
        let mut keep = u64::MAX;
        // SAFETY: the pool belongs to the device, and the attribute takes a 64-bit number.
        unsafe {
            let pool = result::device::get_mem_pool(self.device)?;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut keep).cast()).result()?;
        }
        Ok(())
    }

    /// Gives the pool's unused memory back to the driver.
    pub(crate) fn trim_pool(&self) -> Answer<()> {
        self.enter()?;
        // SAFETY: the pool belongs to the device; trimming touches unused memory only.
        unsafe {
            let pool = result::device::get_mem_pool(self.device)?;
            sys::cuMemPoolTrimTo(pool, 0).result()?;
        }
        Ok(())
    }

    fn event(&self) -> Answer<RawEvent> {
        if let Some(event) = lock(&self.events).pop() {
            return Ok(event);
        }
        self.enter()?;
        Ok(RawEvent(result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = self.enter();
        for event in lock(&self.events).drain(..) {
            // SAFETY: the event was made here, and nothing else holds it.
            let _ = unsafe { result::event::destroy(event.0) };
        }
        // SAFETY: retained once, released once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A point in a stream.
pub(crate) struct Event {
    context: Arc<Context>,
    raw: RawEvent,
}

impl Event {
    /// The present end of `stream`.
    pub(super) fn record(context: &Arc<Context>, stream: sys::CUstream) -> Answer<Arc<Self>> {
        let event = Self { context: Arc::clone(context), raw: context.event()? };
        context.enter()?;
        // SAFETY: event and stream are alive and of one context.
        unsafe { result::event::record(event.raw.0, stream) }?;
        Ok(Arc::new(event))
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.raw.0
    }
}

// SAFETY: events may be asked and waited for from any thread.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the stream has passed it.
    pub(crate) fn passed(&self) -> Answer<bool> {
        self.context.enter()?;
        // SAFETY: the event is alive and was recorded when it was made.
        match unsafe { sys::cuEventQuery(self.raw.0) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => Err(Refusal::Driver(other)),
        }
    }

    /// Milliseconds from `begin` to this event; both have been passed.
    pub(crate) fn since(&self, begin: &Self) -> Answer<f32> {
        self.context.enter()?;
        // SAFETY: both events are alive and recorded with timing.
        Ok(unsafe { result::event::elapsed(begin.raw.0, self.raw.0) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.raw, RawEvent(std::ptr::null_mut()));
        lock(&self.context.events).push(raw);
    }
}
