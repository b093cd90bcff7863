//! Tickets: which submission each names, what is in flight on each lane, and how long lists took.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use seam_device::{DeviceError, Lane};

use crate::core::Gpu;
use crate::driver::{Event, Refusal};
use crate::list::List;

/// Lists whose times are remembered.
const REMEMBERED: usize = 256;

/// A list that was submitted and may still run.
pub(crate) struct Flight {
    value: u64,
    lane: Lane,
    begin: Arc<Event>,
    end: Arc<Event>,
    /// Keeps the list's buffers until it has run.
    list: Arc<List>,
}

/// The submissions of a device, in order.
#[derive(Default)]
pub(crate) struct Timeline {
    /// Value of the latest ticket.
    last: u64,
    flights: VecDeque<Flight>,
    times: VecDeque<(u64, Duration)>,
    /// The compute stream has work of the host that the copy lane has not been told of.
    marked: bool,
}

impl Timeline {
    /// Value of the latest ticket.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Takes note of work that the host puts on the compute stream beside lists.
    pub(crate) fn mark(&mut self) {
        self.marked = true;
    }

    /// Before a write or read of the host goes to the compute stream: the copy lane's lists come first, and later ones
    /// come after.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn host_work(&mut self, gpu: &Gpu) -> Result<(), DeviceError> {
        self.marked = true;
        match self.flights.iter().rev().find(|f| f.lane == Lane::Copy) {
            Some(flight) => gpu.done("wait for the copy lane", gpu.compute.wait_for(&flight.end)),
            None => Ok(()),
        }
    }

    /// Before a list goes to `lane`: the host's work and the tickets `after` on the other lane come first, and so do the
    /// lists with products there if this one has some (`products`), for they share memory.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn order(&mut self, gpu: &Gpu, lane: Lane, after: &[u64], products: bool) -> Result<(), DeviceError> {
        let stream = match lane {
            Lane::Compute => &gpu.compute,
            Lane::Copy => &gpu.copy,
        };
        if lane == Lane::Copy && self.marked {
            let event = gpu.done("mark", gpu.compute.mark())?;
            gpu.done("wait for the host's work", stream.wait_for(&event))?;
            self.marked = false;
        }
        let first = |f: &&Flight| after.contains(&f.value) || (products && f.list.products);
        for flight in self.flights.iter().filter(|f| f.lane != lane).filter(first) {
            gpu.done("wait for a ticket", stream.wait_for(&flight.end))?;
        }
        Ok(())
    }

    /// What another device must wait for before it reads this one's memory: everything submitted or written so far.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn settled(&mut self, gpu: &Gpu) -> Result<Arc<Event>, DeviceError> {
        self.host_work(gpu)?;
        gpu.done("mark", gpu.compute.mark())
    }

    /// The next submission.
    pub(crate) fn push(&mut self, lane: Lane, begin: Arc<Event>, end: Arc<Event>, list: Arc<List>) -> u64 {
        self.last += 1;
        self.flights.push_back(Flight { value: self.last, lane, begin, end, list });
        self.last
    }

    /// Takes out the lists that have run; the caller drops them outside the lock.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn land(&mut self) -> Result<Vec<Flight>, Refusal> {
        let mut landed = Vec::new();
        for lane in [Lane::Compute, Lane::Copy] {
            // A lane runs its lists in order: the first that has not run ends the search.
            while let Some(at) = self.flights.iter().position(|f| f.lane == lane) {
                if !self.flights[at].end.passed()? {
                    break;
                }
                let Some(flight) = self.flights.remove(at) else { break };
                if let Ok(ms) = flight.end.since(&flight.begin) {
                    self.times.push_back((flight.value, Duration::from_secs_f64(f64::from(ms.max(0.0)) * 1e-3)));
                }
                landed.push(flight);
            }
        }
        while self.times.len() > REMEMBERED {
            self.times.pop_front();
        }
        Ok(landed)
    }

    /// Ends of the lists in flight up to ticket `value`.
    pub(crate) fn ends(&self, value: u64) -> Vec<Arc<Event>> {
        self.flights.iter().filter(|f| f.value <= value).map(|f| Arc::clone(&f.end)).collect()
    }

    /// Device time of the list behind ticket `value`, if it has run and is not long ago.
    pub(crate) fn time(&self, value: u64) -> Option<Duration> {
        self.times.iter().find(|(v, _)| *v == value).map(|(_, time)| *time)
    }
}
