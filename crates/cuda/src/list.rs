//! A finished list: its commands in the driver's terms, put on a stream one after another, or at once as a graph.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use seam_device::Buffer;

use crate::core::lock;
use crate::driver::{Address, Graph, Launch, Refusal, Stream};
use crate::products::Product;

/// One command.
pub(crate) enum Step {
    Launch(Launch),
    Product(Product),
    Copy { from: Address, to: Address, bytes: u64 },
    Zero { at: Address, bytes: u64 },
}

/// How often lists became graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphCounts {
    /// Lists that were captured.
    pub captured: u64,
    /// Lists whose capture the driver refused; they are put on the stream command by command.
    pub refused: u64,
    /// Launches of graphs.
    pub launches: u64,
}

/// [`GraphCounts`] while they rise.
#[derive(Default)]
pub(crate) struct GraphCounters {
    captured: AtomicU64,
    refused: AtomicU64,
    launches: AtomicU64,
}

impl GraphCounters {
    pub(crate) fn get(&self) -> GraphCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GraphCounts { captured: get(&self.captured), refused: get(&self.refused), launches: get(&self.launches) }
    }
}

/// What has become of a list so far.
#[derive(Default)]
pub(crate) enum Form {
    /// Never submitted.
    #[default]
    New,
    /// Submitted once: the next time it is worth a capture.
    Once,
    /// The driver refused to capture it, or it is too short.
    Plain,
    Captured(Graph),
}

/// A finished list.
pub(crate) struct List {
    pub(crate) steps: Vec<Step>,
    pub(crate) form: Mutex<Form>,
    /// Keeps the buffers, and their bytes in the count, as long as the list lives or runs.
    pub(crate) _buffers: Vec<Buffer>,
    /// It uses the memory that products share.
    pub(crate) products: bool,
    pub(crate) dispatches: u64,
    pub(crate) copied: u64,
}

impl List {
    pub(crate) fn new(steps: Vec<Step>, buffers: Vec<Buffer>) -> Self {
        let products = steps.iter().any(|step| matches!(step, Step::Product(_)));
        Self { steps, form: Mutex::default(), _buffers: buffers, products, dispatches: 0, copied: 0 }
    }

    /// Puts the list on `stream`. After an error some of it may run. With a stream for captures (idle, used under the same
    /// lock as this call) a list becomes a graph when it is submitted again: one that is submitted once does not pay for it.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        captures: Option<&Stream>,
        counters: &GraphCounters,
    ) -> Result<(), Refusal> {
        let Some(captures) = captures else { return self.replay(stream) };
        let mut form = lock(&self.form);
        *form = match std::mem::take(&mut *form) {
            // A launch of a graph costs as much as one or two of kernels.
            Form::New if self.steps.len() < 2 => Form::Plain,
            Form::New => Form::Once,
            Form::Once => match captures.capture(|stream| self.replay(stream)) {
                Ok(graph) => {
                    counters.captured.fetch_add(1, Ordering::Relaxed);
                    Form::Captured(graph)
                }
                Err(refusal) if refusal.fatal() => return Err(refusal),
                Err(_) => {
                    counters.refused.fetch_add(1, Ordering::Relaxed);
                    Form::Plain
                }
            },
            settled => settled,
        };
        match &*form {
            Form::Captured(graph) => {
                counters.launches.fetch_add(1, Ordering::Relaxed);
                stream.launch_graph(graph)
            }
            _ => self.replay(stream),
        }
    }

    /// Puts all steps on `stream`, one after another.
    fn replay(&self, stream: &Stream) -> Result<(), Refusal> {
        for step in &self.steps {
            match step {
                Step::Launch(launch) => stream.launch(launch)?,
                Step::Product(product) => product.run(stream)?,
                Step::Copy { from, to, bytes } => stream.copy(*from, *to, *bytes)?,
                Step::Zero { at, bytes } => stream.zero(*at, *bytes)?,
            }
        }
        Ok(())
    }
}
