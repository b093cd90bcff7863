//! Graphs: what was put on a stream, captured, to be launched again with one call.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::{Answer, Context, Refusal, Stream};

/// A captured sequence of work. It names kernels and memory by their addresses: who launches it keeps them.
pub(crate) struct Graph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
}

// SAFETY: a graph is launched under the lock of the device's timeline only, from whatever thread.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Stream {
    /// Captures what `work` puts on this stream, which is idle and which nobody else uses meanwhile; nothing runs.
    ///
    /// # Errors
    /// What `work` or the driver says; the stream can be used again afterwards.
    pub(crate) fn capture(&self, work: impl FnOnce(&Self) -> Answer<()>) -> Answer<Graph> {
        self.context.enter()?;
        // Calls of other threads, such as allocations for another device, do not disturb a capture of this one.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and idle.
        unsafe { result::stream::begin_capture(self.raw, mode) }?;
        let done = work(self);
        // SAFETY: the capture was begun above, on this thread. It is ended whatever `work` did.
        let ended = unsafe { result::stream::end_capture(self.raw) };
        let template = match ended {
            Ok(raw) => Template(raw),
            Err(error) => return Err(done.err().unwrap_or_else(|| error.into())),
        };
        done?;
        if template.0.is_null() {
            return Err(Refusal::Driver(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        }
        // SAFETY: the template is whole; the executable graph is destroyed when the value made here is dropped.
        let raw = unsafe { result::graph::instantiate(template.0, sys::CUgraphInstantiate_flags(0)) }?;
        Ok(Graph { context: Arc::clone(&self.context), raw })
    }

    /// Puts a graph on the stream. Launches of one graph run one after another, also on two streams.
    pub(crate) fn launch_graph(&self, graph: &Graph) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: graph and stream are alive and of one context; the caller keeps what the graph names until it has run.
        Ok(unsafe { result::graph::launch(graph.raw, self.raw) }?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: made once, destroyed once, and not running: lists are dropped after they have run.
        let _ = unsafe { result::graph::exec_destroy(self.raw) };
    }
}

/// What executable graphs are made from.
struct Template(sys::CUgraph);

impl Drop for Template {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { result::graph::destroy(self.0) };
        }
    }
}
