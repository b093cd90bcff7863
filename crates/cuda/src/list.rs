//! A finished list: its commands in the driver's terms, put on a stream one after another.

use seam_device::Buffer;

use crate::driver::{Address, Launch, Refusal, Stream};

/// One command.
pub(crate) enum Step {
    Launch(Launch),
    Copy { from: Address, to: Address, bytes: u64 },
    Zero { at: Address, bytes: u64 },
}

/// A finished list.
pub(crate) struct List {
    pub(crate) steps: Vec<Step>,
    /// Keeps the buffers, and their bytes in the count, as long as the list lives or runs.
    pub(crate) _buffers: Vec<Buffer>,
    pub(crate) dispatches: u64,
    pub(crate) copied: u64,
}

impl List {
    /// Puts all steps on `stream`. After an error some of them may run.
    pub(crate) fn replay(&self, stream: &Stream) -> Result<(), Refusal> {
        for step in &self.steps {
            match step {
                Step::Launch(launch) => stream.launch(launch)?,
                Step::Copy { from, to, bytes } => stream.copy(*from, *to, *bytes)?,
                Step::Zero { at, bytes } => stream.zero(*at, *bytes)?,
            }
        }
        Ok(())
    }
}
