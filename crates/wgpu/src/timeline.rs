//! Tickets: which submission each names, and which lists are still in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::list::List;

/// A list that was submitted and may still run.
pub(crate) struct Flight {
    pub(crate) value: u64,
    pub(crate) index: wgpu::SubmissionIndex,
    /// Keeps the list's buffers until it has run.
    pub(crate) _list: Arc<List>,
}

/// The submissions of a device, in order.
#[derive(Default)]
pub(crate) struct Timeline {
    /// Value of the latest ticket.
    pub(crate) last: u64,
    flights: VecDeque<Flight>,
}

/// Where a ticket stands as far as the host knows.
pub(crate) enum Standing {
    Reached,
    Flying(wgpu::SubmissionIndex),
    Unknown,
}

impl Timeline {
    /// The next submission.
    pub(crate) fn push(&mut self, index: wgpu::SubmissionIndex, list: Arc<List>) -> u64 {
        self.last += 1;
        self.flights.push_back(Flight { value: self.last, index, _list: list });
        self.last
    }

    /// Takes out the lists up to ticket `reached`; the caller drops them outside the lock.
    pub(crate) fn land(&mut self, reached: u64) -> Vec<Flight> {
        let n = self.flights.partition_point(|f| f.value <= reached);
        self.flights.drain(..n).collect()
    }

    /// Where ticket `value` stands.
    pub(crate) fn standing(&self, value: u64) -> Standing {
        if value > self.last {
            return Standing::Unknown;
        }
        match self.flights.iter().find(|f| f.value == value) {
            Some(flight) => Standing::Flying(flight.index.clone()),
            None => Standing::Reached,
        }
    }

    /// The latest submission that may still run.
    pub(crate) fn latest(&self) -> Option<wgpu::SubmissionIndex> {
        self.flights.back().map(|f| f.index.clone())
    }
}
