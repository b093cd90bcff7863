//! What the parts of a device share: its context and streams, its health, and errors made typed.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use seam_device::{Buffer, Caps, DeviceError, DeviceId};

use crate::driver::{Context, Event, Refusal, Stream};
use crate::kernels::Kernels;
use crate::list::GraphCounters;
use crate::products::Products;
use crate::staging::Staging;
use crate::timeline::Timeline;

/// A wait longer than this means that the device hangs: lists run for milliseconds.
const HANG: Duration = Duration::from_secs(150);

/// How long a wait asks without sleeping, for the sake of short lists.
const SPIN: Duration = Duration::from_millis(2);

/// Locks a mutex whose data stays whole even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU's context and streams. Buffers, lists and readers hold it, so that it outlives them.
pub(crate) struct Gpu {
    pub(crate) context: Arc<Context>,
    /// Kernels, and everything the host asks for between lists: allocations, writes and reads, in order.
    pub(crate) compute: Stream,
    /// The copy lane.
    pub(crate) copy: Stream,
    /// Where lists are captured: nothing ever runs on it.
    pub(crate) captures: Stream,
    pub(crate) staging: Mutex<Staging>,
    /// Whether memory comes from the driver's stream-ordered pool.
    pub(crate) pooled: bool,
    /// The device in error messages.
    pub(crate) name: String,
    lost: OnceLock<String>,
}

impl Gpu {
    pub(crate) fn new(context: Arc<Context>, name: String, pooled: bool) -> Result<Self, Refusal> {
        let [compute, copy, captures] = [Stream::new(&context)?, Stream::new(&context)?, Stream::new(&context)?];
        if pooled {
            context.keep_pool()?;
        }
        let staging = Mutex::new(Staging::default());
        Ok(Self { context, compute, copy, captures, staging, pooled, name, lost: OnceLock::new() })
    }

    pub(crate) fn backend(&self, op: &str, reason: impl Into<String>) -> DeviceError {
        DeviceError::Backend { device: self.name.clone(), op: op.to_owned(), reason: reason.into() }
    }

    /// # Errors
    /// [`DeviceError::Lost`] after an error from which a context does not recover.
    pub(crate) fn alive(&self) -> Result<(), DeviceError> {
        match self.lost.get() {
            Some(reason) => Err(DeviceError::Lost { device: self.name.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// The driver's answer to `op` as a typed error.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] or [`DeviceError::Backend`].
    pub(crate) fn done<T>(&self, op: &str, answer: Result<T, Refusal>) -> Result<T, DeviceError> {
        self.made(op, "memory of the driver", 0, answer)
    }

    /// As [`Gpu::done`] for an allocation of `bytes` for `what`.
    ///
    /// # Errors
    /// Also [`DeviceError::OutOfMemory`].
    pub(crate) fn made<T>(
        &self,
        op: &str,
        what: &str,
        bytes: u64,
        answer: Result<T, Refusal>,
    ) -> Result<T, DeviceError> {
        answer.map_err(|refusal| {
            if refusal.fatal() {
                let _ = self.lost.set(format!("{op}: {refusal}"));
            }
            match self.alive() {
                Err(lost) => lost,
                Ok(()) if refusal.out_of_memory() => {
                    DeviceError::OutOfMemory { device: self.name.clone(), label: what.to_owned(), bytes }
                }
                Ok(()) => self.backend(op, refusal.to_string()),
            }
        })
    }

    /// Waits until `event` has passed.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], also when it takes implausibly long.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        let since = Instant::now();
        loop {
            self.alive()?;
            if self.done("wait", event.passed())? {
                return Ok(());
            }
            let waited = since.elapsed();
            if waited > HANG {
                let reason = format!("no answer for {} seconds", HANG.as_secs());
                let _ = self.lost.set(reason);
            } else if waited > SPIN {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The staging memory below may still be read by copies under way.
        let _ = self.compute.synchronize();
        let _ = self.copy.synchronize();
    }
}

/// Counters behind `Stats`.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) submissions: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) copied: AtomicU64,
    /// Shared with every buffer, which takes its bytes off when it is dropped.
    pub(crate) allocated: Arc<AtomicU64>,
}

/// The state of one device.
pub(crate) struct Core {
    pub(crate) id: DeviceId,
    pub(crate) caps: Caps,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) kernels: Kernels,
    /// Products by cublasLt; without it all of them are own kernels.
    pub(crate) products: Option<Products>,
    /// Whether lists become graphs.
    pub(crate) graphs: bool,
    /// Held by whoever puts work on a stream, so that streams see it in the order of the tickets.
    pub(crate) timeline: Mutex<Timeline>,
    pub(crate) counters: Counters,
    pub(crate) graph_counters: GraphCounters,
}

impl Core {
    /// # Errors
    /// [`DeviceError::ForeignBuffer`].
    pub(crate) fn own(&self, buffer: &Buffer) -> Result<(), DeviceError> {
        if buffer.device() == self.id {
            return Ok(());
        }
        Err(DeviceError::ForeignBuffer { device: self.gpu.name.clone(), label: buffer.label().to_owned() })
    }

    /// Lets go of the lists that have run.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub(crate) fn land(&self) -> Result<(), DeviceError> {
        self.gpu.alive()?;
        let landed = self.gpu.done("ask for a list", lock(&self.timeline).land())?;
        // Their buffers return here, outside the lock.
        drop(landed);
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Buffers of lists in flight return to the compute stream's pool: nothing may use them any more.
        let _ = self.gpu.compute.synchronize();
        let _ = self.gpu.copy.synchronize();
    }
}
