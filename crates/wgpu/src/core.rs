//! What the parts of a device share: wgpu's device and queue, its health, and errors made typed.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pollster::block_on;
use seam_device::{Buffer, Caps, DeviceError, DeviceId};

use crate::clock::Clock;
use crate::pipeline::Pipelines;
use crate::timeline::Timeline;

/// A wait longer than this means that the device hangs. Lists run for milliseconds on a GPU, but a software driver that
/// shares its cores with others, and compiles shaders at their first use, was seen to take over two minutes.
const HANG: Duration = Duration::from_secs(600);

/// Bytes that may wait in wgpu's staging memory before they are flushed to the device.
const STAGED: u64 = 64 << 20;

/// Bytes of one write: bounds the staging buffer that wgpu makes for it.
const PIECE: usize = 16 << 20;

/// Why the device no longer works, and errors that no call could be blamed for.
#[derive(Default)]
pub(crate) struct Health {
    lost: OnceLock<String>,
    fault: Mutex<Option<String>>,
}

impl Health {
    /// The device is gone from now on. The first reason stays.
    pub(crate) fn lose(&self, reason: String) {
        let _ = self.lost.set(reason);
    }

    pub(crate) fn fault(&self, error: String) {
        lock(&self.fault).get_or_insert(error);
    }
}

/// Locks a mutex whose data stays whole even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) health: Arc<Health>,
    pub(crate) checked: bool,
    pub(crate) layouts: Mutex<HashMap<u16, wgpu::BindGroupLayout>>,
    pub(crate) pipelines: Mutex<Pipelines>,
    pub(crate) timeline: Mutex<Timeline>,
    /// Value of the last ticket that is known to be reached.
    pub(crate) reached: Arc<AtomicU64>,
    pub(crate) counters: Counters,
    pub(crate) clock: Option<Clock>,
    /// Bytes written since the last flush.
    pub(crate) staged: AtomicU64,
}

impl Core {
    /// The device in error messages.
    pub(crate) fn name(&self) -> String {
        format!("wgpu {}", self.caps.name)
    }

    pub(crate) fn backend(&self, op: &str, reason: impl Into<String>) -> DeviceError {
        DeviceError::Backend { device: self.name(), op: op.to_owned(), reason: reason.into() }
    }

    /// # Errors
    /// [`DeviceError::Lost`] once the device is gone; an error that came up outside any call is reported once.
    pub(crate) fn alive(&self) -> Result<(), DeviceError> {
        if let Some(reason) = self.health.lost.get() {
            return Err(DeviceError::Lost { device: self.name(), reason: reason.clone() });
        }
        match lock(&self.health.fault).take() {
            Some(reason) => Err(self.backend("an earlier call", reason)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// [`DeviceError::ForeignBuffer`].
    pub(crate) fn own(&self, buffer: &Buffer) -> Result<(), DeviceError> {
        if buffer.device() == self.id {
            return Ok(());
        }
        Err(DeviceError::ForeignBuffer { device: self.name(), label: buffer.label().to_owned() })
    }

    /// Runs `call` with wgpu's errors caught. `what` and `bytes` describe an allocation.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Lost`] or [`DeviceError::Backend`]. What `call` made is dropped then:
    /// an object made under an error must not be used.
    pub(crate) fn guarded<T>(
        &self,
        op: &str,
        what: &str,
        bytes: u64,
        call: impl FnOnce() -> T,
    ) -> Result<T, DeviceError> {
        self.alive()?;
        // Scopes are a stack of this thread: the last pushed is the first popped.
        let scopes = [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal]
            .map(|filter| self.device.push_error_scope(filter));
        let made = call();
        let [memory, validation, internal] = scopes;
        let internal = block_on(internal.pop());
        let validation = block_on(validation.pop());
        let memory = block_on(memory.pop());
        // A lost device refuses everything for reasons of its own; its callback says so, maybe only at the next poll.
        if internal.is_some() || validation.is_some() {
            let _ = self.poll(wgpu::PollType::Poll);
        }
        if let Some(reason) = self.health.lost.get() {
            return Err(DeviceError::Lost { device: self.name(), reason: reason.clone() });
        }
        if memory.is_some() {
            return Err(DeviceError::OutOfMemory { device: self.name(), label: what.to_owned(), bytes });
        }
        match internal.or(validation) {
            Some(error) => Err(self.backend(op, format!("{what}: {error}"))),
            None => Ok(made),
        }
    }

    /// wgpu's poll, with its one panic (a device error during the wait) made an error.
    fn poll(&self, what: wgpu::PollType) -> Result<(), DeviceError> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.device.poll(what)));
        match polled {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(wgpu::PollError::Timeout)) => Err(DeviceError::Lost {
                device: self.name(),
                reason: format!("no answer for {} seconds", HANG.as_secs()),
            }),
            Ok(Err(error)) => Err(self.backend("poll", error.to_string())),
            Err(_) => {
                self.health.lose("the driver failed while it was waited for".to_owned());
                self.alive()
            }
        }
    }

    /// Lets callbacks run without waiting.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] or what the driver says.
    pub(crate) fn tick(&self) -> Result<(), DeviceError> {
        self.alive()?;
        self.poll(wgpu::PollType::Poll)?;
        self.alive()
    }

    /// Waits for a submission (the latest without one).
    ///
    /// # Errors
    /// [`DeviceError::Lost`], also when it takes longer than two minutes.
    pub(crate) fn wait_for(&self, index: Option<wgpu::SubmissionIndex>) -> Result<(), DeviceError> {
        self.alive()?;
        self.poll(wgpu::PollType::Wait { submission_index: index, timeout: Some(HANG) })?;
        self.alive()
    }

    /// Writes bytes before every later submission, in pieces, and keeps the staging memory bounded. `offset` and the
    /// length are multiples of 4.
    ///
    /// # Errors
    /// As [`Core::guarded`].
    pub(crate) fn upload(&self, label: &str, raw: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            let len = piece.len() as u64;
            self.guarded("write", label, len, || self.queue.write_buffer(raw, at, piece))?;
            at += len;
            if self.staged.fetch_add(len, Ordering::Relaxed) + len > STAGED {
                self.staged.store(0, Ordering::Relaxed);
                let index = self.guarded("flush", label, 0, || self.queue.submit(None))?;
                self.wait_for(Some(index))?;
            }
        }
        Ok(())
    }
}
