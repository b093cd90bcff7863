//! Opening a device, and the contract.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seam_device::{
    BIND_ALIGN, Buffer, BufferRange, BufferUse, Caps, CommandList, DType, Device, DeviceError, DeviceId, DeviceKind,
    GemmCaps, HostBytes, KernelSet, Lane, Pending, Precision, Recorder, Stats, Ticket,
};
use seam_kernels::manifest::MANIFEST;

use crate::blas::{Blas, Session};
use crate::cache::{Cache, default_dir};
use crate::core::{Core, Counters, Gpu, lock};
use crate::doctor::{find_driver, usable};
use crate::driver::{Described, Refusal};
use crate::find::Search;
use crate::kernels::Kernels;
use crate::list::{GraphCounters, GraphCounts, List};
use crate::memory::{alloc, memory, upload};
use crate::nvrtc::Nvrtc;
use crate::peer::import;
use crate::products::Products;
use crate::read::read;
use crate::recorder::CudaRecorder;
use crate::timeline::Timeline;

/// Where compiled kernels are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelCache {
    /// `seam/cuda` in `XDG_CACHE_HOME` or `~/.cache`.
    #[default]
    User,
    /// This folder.
    Dir(PathBuf),
    /// Nowhere: every process compiles its own.
    Off,
}

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which GPU, in the driver's order; the first usable one if not given.
    pub gpu: Option<u32>,
    /// Lowers `Caps::max_binding`, which is how splitting is tested.
    pub max_binding: Option<u64>,
    /// Where compiled kernels are kept.
    pub cache: KernelCache,
    /// How exact products are; `f32` unless asked otherwise.
    pub precision: Precision,
    /// Whether lists that are submitted again become CUDA graphs; they do unless asked otherwise.
    pub graphs: bool,
    /// Whether products go to cublasLt where it is found; they do unless asked otherwise.
    pub library: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gpu: None,
            max_binding: None,
            cache: KernelCache::default(),
            precision: Precision::default(),
            graphs: true,
            library: true,
        }
    }
}

/// An NVIDIA GPU. Every opened device is its own, also on one GPU, where they share memory and the driver's context.
pub struct CudaDevice(pub(crate) Arc<Core>);

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CudaDevice").field(&self.0.gpu.name).finish()
    }
}

/// Largest binding: kernels count elements in 32 bits, and 2³² elements of bf16 are 8 GiB.
const MAX_BINDING: u64 = (8 << 30) - BIND_ALIGN;

/// What computes products, for people.
pub(crate) fn products_words(library: Result<(u32, u32), &str>) -> String {
    match library {
        Ok((major, minor)) => format!("cublasLt {major}.{minor}"),
        Err(why) => format!("products by own kernels ({why})"),
    }
}

fn caps(gpu: &Described, driver: u32, nvrtc: &Nvrtc, products: &str, options: &Options) -> Caps {
    let memory = gpu.memory / BIND_ALIGN * BIND_ALIGN;
    let caps = Caps {
        kind: DeviceKind::Cuda,
        name: gpu.name.clone(),
        driver: format!(
            "CUDA {}.{}, NVRTC {}.{}, {products}",
            driver / 1000,
            driver % 1000 / 10,
            nvrtc.version.0,
            nvrtc.version.1
        ),
        max_binding: memory.min(MAX_BINDING),
        max_buffer: memory,
        max_storage_buffers: 8,
        max_workgroup_bytes: gpu.shared,
        max_invocations: 1024,
        // Along y and z; x takes more.
        max_grid: 65535,
        subgroup: (32, 32),
        memory: Some(gpu.memory),
        kernels: KernelSet::of(MANIFEST.iter().filter(|k| k.cuda.is_some()).map(|k| k.id)),
        // Few rows go through a kernel that sums in another order, so a row's bits depend on how many there are.
        gemm: GemmCaps {
            weights: vec![DType::BF16, DType::F32, DType::F8E4M3],
            accumulate: true,
            batch_invariant: false,
        },
        precision: options.precision,
        rows_hint: 4096,
    };
    match options.max_binding {
        Some(bytes) => caps.with_max_binding(bytes),
        None => caps,
    }
}

fn unavailable(reason: String) -> DeviceError {
    DeviceError::Unavailable { device: "cuda".to_owned(), reason }
}

impl CudaDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without a driver, with one that is too old, without a usable GPU, or without NVRTC.
    pub fn open(options: &Options) -> Result<Arc<Self>, DeviceError> {
        let search = Search::from_env();
        let (driver, version) = find_driver(&search).map_err(unavailable)?;
        let said = |what: &str| {
            let what = what.to_owned();
            move |refusal: Refusal| unavailable(format!("{what}: {refusal}"))
        };
        let count = driver.count().map_err(said("counting GPUs"))?;
        let ordinal = match options.gpu {
            Some(ordinal) if ordinal < count => ordinal,
            Some(ordinal) => return Err(unavailable(format!("no GPU has the number {ordinal}; there are {count}"))),
            None => {
                let works = |&i: &u32| driver.describe(i).is_ok_and(|gpu| usable(&gpu).is_ok());
                (0..count).find(works).unwrap_or(0)
            }
        };
        if count == 0 {
            return Err(unavailable("the driver sees no GPU".to_owned()));
        }
        let gpu = driver.describe(ordinal).map_err(said("describing the GPU"))?;
        usable(&gpu).map_err(|why| unavailable(format!("{}: {why}", gpu.name)))?;
        let nvrtc = Nvrtc::find(&search, Some(version / 1000))
            .map_err(|why| unavailable(format!("NVRTC, CUDA's compiler, was not found: {why}")))?;
        let context = driver.context(ordinal).map_err(said("opening the GPU"))?;
        let library = if options.library {
            Blas::find(&search, Some(version / 1000)).map_err(|_| "cublasLt was not found".to_owned()).and_then(
                |blas| {
                    let version = blas.version;
                    let session = Session::new(blas, &context).map_err(|refusal| refusal.to_string())?;
                    Ok((version, Products::new(session)))
                },
            )
        } else {
            Err("as asked".to_owned())
        };
        let words = products_words(library.as_ref().map(|(version, _)| *version).map_err(String::as_str));
        let caps = caps(&gpu, version, &nvrtc, &words, options);
        let name = format!("cuda {}", gpu.name);
        let cache = match &options.cache {
            KernelCache::User => default_dir(),
            KernelCache::Dir(dir) => Some(dir.clone()),
            KernelCache::Off => None,
        };
        let kernels = Kernels::new(nvrtc, Cache::new(cache), gpu.capability);
        let gpu = Arc::new(Gpu::new(context, name, gpu.pools).map_err(said("opening the GPU"))?);
        Ok(Arc::new(Self(Arc::new(Core {
            id: DeviceId::unique(),
            caps,
            gpu,
            kernels,
            products: library.ok().map(|(_, products)| products),
            graphs: options.graphs,
            timeline: Mutex::new(Timeline::default()),
            counters: Counters::default(),
            graph_counters: GraphCounters::default(),
        }))))
    }

    /// How often lists became graphs, for tests and benches.
    #[must_use]
    pub fn graphs(&self) -> GraphCounts {
        self.0.graph_counters.get()
    }

    fn own_tickets(&self, tickets: &[Ticket]) -> Result<(), DeviceError> {
        if tickets.iter().all(|t| t.device == self.0.id) {
            return Ok(());
        }
        Err(DeviceError::ForeignBuffer { device: self.0.gpu.name.clone(), label: "a ticket".to_owned() })
    }
}

impl Device for CudaDevice {
    fn id(&self) -> DeviceId {
        self.0.id
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn stats(&self) -> Stats {
        // A lost device still counts.
        let _ = self.0.land();
        let counters = &self.0.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            submissions: get(&counters.submissions),
            dispatches: get(&counters.dispatches),
            written: get(&counters.written),
            read: get(&counters.read),
            copied: get(&counters.copied),
            allocated: get(&counters.allocated),
        }
    }

    fn alloc(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError> {
        self.0.land()?;
        alloc(&self.0, label, bytes.checked_next_multiple_of(4).unwrap_or(bytes), usage)
    }

    fn constant(&self, label: &str, bytes: HostBytes) -> Result<Buffer, DeviceError> {
        self.0.land()?;
        let bytes = bytes.as_slice();
        let buffer = alloc(&self.0, label, (bytes.len() as u64).next_multiple_of(4), BufferUse::Constant)?;
        upload(&self.0, label, memory(&self.0, &buffer)?, 0, bytes)?;
        self.0.counters.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn write(&self, range: &BufferRange, bytes: &[u8]) -> Result<(), DeviceError> {
        let memory = memory(&self.0, &range.buffer)?;
        let len = bytes.len() as u64;
        let label = range.buffer.label();
        range.check_write(len)?;
        upload(&self.0, label, memory, range.offset, bytes)?;
        self.0.counters.written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(CudaRecorder::new(Arc::clone(&self.0)))
    }

    /// The lanes are two streams. A list of the copy lane also waits for what the host has written or read before it,
    /// which stands in order with the kernels.
    fn submit(&self, list: &CommandList, lane: Lane, after: &[Ticket]) -> Result<Ticket, DeviceError> {
        self.own_tickets(after)?;
        let core = &self.0;
        let gpu = &core.gpu;
        let foreign = || DeviceError::ForeignBuffer { device: gpu.name.clone(), label: "a command list".to_owned() };
        let list = list.handle::<Arc<List>>().filter(|_| list.device() == core.id).ok_or_else(foreign)?;
        core.land()?;
        let stream = match lane {
            Lane::Compute => &gpu.compute,
            Lane::Copy => &gpu.copy,
        };
        let after: Vec<u64> = after.iter().map(|t| t.value).collect();
        let mut timeline = lock(&core.timeline);
        timeline.order(gpu, lane, &after, list.products)?;
        let begin = gpu.done("mark", stream.mark())?;
        let captures = core.graphs.then_some(&gpu.captures);
        let ran = list.run(stream, captures, &core.graph_counters).and_then(|()| stream.mark());
        let end = match ran {
            Ok(end) => end,
            Err(refusal) => {
                // Part of the list may run: its buffers must not return before that is over. If the device is lost, a
                // library says so less clearly than the driver.
                let refusal = stream.synchronize().err().filter(|worse| worse.fatal()).unwrap_or(refusal);
                return gpu.done("submit", Err(refusal));
            }
        };
        let value = timeline.push(lane, begin, end, Arc::clone(list));
        drop(timeline);
        let counters = &core.counters;
        counters.submissions.fetch_add(1, Ordering::Relaxed);
        counters.dispatches.fetch_add(list.dispatches, Ordering::Relaxed);
        counters.copied.fetch_add(list.copied, Ordering::Relaxed);
        Ok(Ticket { device: core.id, value })
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.own_tickets(&[ticket])?;
        self.0.land()?;
        let timeline = lock(&self.0.timeline);
        Ok(ticket.value <= timeline.last() && timeline.ends(ticket.value).is_empty())
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.own_tickets(&[ticket])?;
        self.0.gpu.alive()?;
        let timeline = lock(&self.0.timeline);
        if ticket.value > timeline.last() {
            return Err(self.0.gpu.backend("wait", format!("no list has the ticket {}", ticket.value)));
        }
        let ends = timeline.ends(ticket.value);
        drop(timeline);
        // A lane's last event covers the ones before it, so most of these answer at once.
        for end in ends.iter().rev() {
            self.0.gpu.wait(end)?;
        }
        self.0.land()
    }

    fn elapsed(&self, ticket: Ticket) -> Option<Duration> {
        if !self.poll(ticket).ok()? {
            return None;
        }
        lock(&self.0.timeline).time(ticket.value)
    }

    /// A read comes after every list submitted so far, on either lane, and before every later one.
    fn read(&self, range: &BufferRange, after: &[Ticket]) -> Result<Box<dyn Pending>, DeviceError> {
        self.own_tickets(after)?;
        self.0.own(&range.buffer)?;
        range.buffer.range(range.offset, range.len)?;
        let pending = read(&self.0, range)?;
        self.0.counters.read.fetch_add(range.len, Ordering::Relaxed);
        Ok(pending)
    }

    /// Memory of another CUDA device is reached where both are on one GPU, or where the driver offers peer access.
    fn import(
        &self,
        src: &BufferRange,
        from: &dyn Device,
        dst: &BufferRange,
        after: &[Ticket],
    ) -> Option<Result<Ticket, DeviceError>> {
        let from: &dyn Any = from;
        let from = from.downcast_ref::<Self>()?;
        import(&self.0, &from.0, src, dst, after).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds on every machine: a missing part is a typed error that names it, never a panic.
    #[test]
    fn opening_answers_with_a_device_or_with_what_is_missing() {
        match CudaDevice::open(&Options { cache: KernelCache::Off, ..Options::default() }) {
            Ok(device) => assert_eq!(device.caps().kind, DeviceKind::Cuda),
            Err(DeviceError::Unavailable { device, reason }) => {
                assert_eq!(device, "cuda");
                assert!(["driver", "GPU", "NVRTC"].iter().any(|part| reason.contains(part)), "{reason}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}
