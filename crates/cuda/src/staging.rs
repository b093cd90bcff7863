//! Pinned host memory through which bytes pass, used again once the device is done with it.

use std::collections::VecDeque;
use std::sync::Arc;

use seam_device::DeviceError;

use crate::core::{Gpu, lock};
use crate::driver::{Event, Pinned};

/// Smallest piece.
const LEAST: usize = 64 << 10;
/// Bytes that a piece of a write has at most.
pub(crate) const PIECE: usize = 4 << 20;
/// Bytes of writes under way beyond which the next write waits for the oldest.
const FLYING: usize = 64 << 20;
/// Unused bytes that are kept.
const KEPT: usize = 256 << 20;

/// The pieces.
#[derive(Default)]
pub(crate) struct Staging {
    free: Vec<Pinned>,
    /// In the order in which they were handed over.
    busy: VecDeque<(Arc<Event>, Pinned)>,
}

fn total<'a>(pieces: impl Iterator<Item = &'a Pinned>) -> usize {
    pieces.map(Pinned::len).sum()
}

impl Staging {
    /// Moves pieces whose event has passed to the free ones, up to the first that has not.
    fn reclaim(&mut self) {
        while self.busy.front().is_some_and(|(event, _)| event.passed() == Ok(true)) {
            self.free.extend(self.busy.pop_front().map(|(_, piece)| piece));
        }
        while total(self.free.iter()) > KEPT {
            self.free.pop();
        }
    }

    /// The smallest free piece of at least `bytes`, and at most four times as much.
    fn fit(&mut self, bytes: usize) -> Option<Pinned> {
        let fits = |p: &Pinned| p.len() >= bytes && p.len() / 4 <= bytes;
        let best = (0..self.free.len()).filter(|&i| fits(&self.free[i])).min_by_key(|&i| self.free[i].len())?;
        Some(self.free.swap_remove(best))
    }
}

impl Gpu {
    /// A piece of at least `bytes`, old or new.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] of the host, [`DeviceError::Lost`].
    pub(crate) fn piece(&self, label: &str, bytes: u64) -> Result<Pinned, DeviceError> {
        let least = usize::try_from(bytes).unwrap_or(usize::MAX).max(LEAST);
        let size = least.checked_next_power_of_two().unwrap_or(least);
        let mut staging = lock(&self.staging);
        staging.reclaim();
        if let Some(piece) = staging.fit(size) {
            return Ok(piece);
        }
        drop(staging);
        self.made("pin host memory", label, bytes, Pinned::new(&self.context, size))
    }

    /// Hands over a piece that the device uses until `event`.
    pub(crate) fn return_piece(&self, event: Arc<Event>, piece: Pinned) {
        lock(&self.staging).busy.push_back((event, piece));
    }

    /// Waits while too many bytes are on their way.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub(crate) fn throttle(&self) -> Result<(), DeviceError> {
        loop {
            let oldest = {
                let mut staging = lock(&self.staging);
                staging.reclaim();
                if total(staging.busy.iter().map(|(_, piece)| piece)) <= FLYING {
                    return Ok(());
                }
                staging.busy.front().map(|(event, _)| Arc::clone(event))
            };
            match oldest {
                Some(event) => self.wait(&event)?,
                None => return Ok(()),
            }
        }
    }
}
