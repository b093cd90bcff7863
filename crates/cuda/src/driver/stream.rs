//! Streams: allocations, copies and launches in order.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};

use super::{Answer, Context, Event, Module, Refusal};

/// A queue of work.
pub(crate) struct Stream {
    pub(super) context: Arc<Context>,
    pub(super) raw: sys::CUstream,
}

// SAFETY: the driver takes calls on one stream from several threads.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Answer<Self> {
        context.enter()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Marks the present end of the stream.
    pub(crate) fn mark(&self) -> Answer<Arc<Event>> {
        Event::record(&self.context, self.raw)
    }

    /// Later work of this stream waits for `event`, which may be of another stream.
    pub(crate) fn wait_for(&self, event: &Event) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: both are alive; the wait captures the event as it is recorded now.
        unsafe { sys::cuStreamWaitEvent(self.raw, event.raw(), 0) }.result()?;
        Ok(())
    }

    /// Blocks until all its work is done.
    pub(crate) fn synchronize(&self) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: the stream is alive.
        Ok(unsafe { result::stream::synchronize(self.raw) }?)
    }

    /// Memory of `bytes` > 0, in the order of this stream where `pooled`.
    pub(crate) fn alloc(&self, bytes: u64, pooled: bool) -> Answer<Address> {
        self.context.enter()?;
        let bytes = usize::try_from(bytes).map_err(|_| Refusal::Driver(CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: the memory is written before anything reads it, and freed by `free` below.
        let raw = unsafe { if pooled { result::malloc_async(self.raw, bytes) } else { result::malloc_sync(bytes) } }?;
        Ok(Address(raw))
    }

    /// Gives memory of `alloc` back after the work that is now on this stream.
    pub(crate) fn free(&self, address: Address, pooled: bool) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: the caller owns the memory and forgets its address; without a pool no work is left that uses it.
        unsafe {
            if pooled {
                result::free_async(address.0, self.raw)?;
            } else {
                result::stream::synchronize(self.raw)?;
                result::free_sync(address.0)?;
            }
        }
        Ok(())
    }

    /// Zeroes `bytes`, a multiple of 4.
    pub(crate) fn zero(&self, at: Address, bytes: u64) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: the range lies in memory of this context, checked by the caller.
        unsafe { sys::cuMemsetD32Async(at.0, 0, (bytes / 4) as usize, self.raw) }.result()?;
        Ok(())
    }

    /// Copies between device memory and pinned host memory, whichever way.
    pub(crate) fn copy(&self, from: Address, to: Address, bytes: u64) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: both ranges lie in memory of this context (addresses of pinned memory are the device's as well),
        // checked by the caller, who keeps both alive until the copy has run.
        unsafe { sys::cuMemcpyAsync(to.0, from.0, bytes as usize, self.raw) }.result()?;
        Ok(())
    }

    /// As a library takes it.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Launches `function` with its arguments: parameter bytes, then addresses.
    pub(crate) fn launch(&self, launch: &Launch) -> Answer<()> {
        self.context.enter()?;
        let mut arguments: Vec<*mut c_void> = Vec::with_capacity(launch.addresses.len() + 1);
        arguments.push(launch.params.as_ptr().cast_mut().cast());
        arguments.extend(launch.addresses.iter().map(|a| std::ptr::from_ref(&a.0).cast_mut().cast()));
        let [x, y, z] = launch.grid;
        // SAFETY: the driver reads as many arguments as the kernel has, each of the size it has; every source asserts that
        // both are what the manifest says, and recording checked the launch against the manifest. The caller keeps the
        // memory behind the addresses until the launch has run.
        unsafe {
            sys::cuLaunchKernel(
                launch.module.function(),
                x,
                y,
                z,
                launch.threads,
                1,
                1,
                launch.module.dynamic(),
                self.raw,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()?;
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.synchronize();
        // SAFETY: made once, destroyed once, and idle.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// An address that kernels of a context can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(super) sys::CUdeviceptr);

impl Address {
    /// `bytes` further.
    pub(crate) fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// As a library takes it.
    pub(crate) fn pointer(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// One launch, ready to go.
pub(crate) struct Launch {
    pub(crate) module: Arc<Module>,
    /// Parameter struct, padded to whole words.
    pub(crate) params: Vec<u64>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
}
