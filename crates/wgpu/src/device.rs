//! Opening a device, and the contract.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollster::block_on;
use seam_device::{
    Buffer, BufferRange, BufferUse, Caps, CommandList, DType, Device, DeviceError, DeviceId, DeviceKind, GemmCaps,
    HostBytes, KernelSet, Lane, Pending, Precision, Recorder, Stats, Ticket,
};
use seam_kernels::manifest::MANIFEST;

use crate::adapter::{AdapterChoice, Limits, choose, driver, limits};
use crate::clock::Clock;
use crate::core::{Core, Counters, Health, lock};
use crate::list::List;
use crate::memory::{alloc, memory};
use crate::read::read;
use crate::recorder::WgpuRecorder;
use crate::timeline::{Standing, Timeline};

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which adapter; the best usable one if not given.
    pub adapter: Option<AdapterChoice>,
    /// Lowers `Caps::max_binding`, which is how splitting is tested.
    pub max_binding: Option<u64>,
    /// Keeps naga's run-time checks in the shaders (bounds, loops, divisions): slower, for tests.
    pub checked: bool,
}

/// A GPU, or a software driver, reached through wgpu. Every opened device is its own, also on one adapter.
pub struct WgpuDevice(Arc<Core>);

impl std::fmt::Debug for WgpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WgpuDevice").field(&self.0.name()).finish()
    }
}

fn caps(info: &wgpu::AdapterInfo, limits: &Limits, options: &Options) -> Caps {
    let caps = Caps {
        kind: DeviceKind::Wgpu,
        name: info.name.clone(),
        driver: driver(info),
        max_binding: limits.max_binding,
        max_buffer: limits.max_buffer,
        max_storage_buffers: limits.max_storage_buffers,
        max_workgroup_bytes: limits.max_workgroup_bytes,
        max_invocations: limits.max_invocations,
        max_grid: limits.max_grid,
        subgroup: limits.subgroup,
        memory: None,
        kernels: KernelSet::of(MANIFEST.iter().filter(|k| k.wgsl.is_some()).map(|k| k.id)),
        // Few rows go through a kernel that sums in another order, so a row's bits depend on how many there are.
        gemm: GemmCaps {
            weights: vec![DType::BF16, DType::F32, DType::F8E4M3],
            accumulate: true,
            batch_invariant: false,
        },
        precision: Precision::F32,
        rows_hint: if info.device_type == wgpu::DeviceType::Cpu { 256 } else { 512 },
    };
    match options.max_binding {
        Some(bytes) => caps.with_max_binding(bytes),
        None => caps,
    }
}

/// The default limits, with what the kernels profit from raised to what the adapter has.
fn required(adapter: &wgpu::Adapter) -> wgpu::Limits {
    let has = adapter.limits();
    wgpu::Limits {
        max_buffer_size: has.max_buffer_size,
        max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
        max_storage_buffers_per_shader_stage: has.max_storage_buffers_per_shader_stage,
        max_compute_workgroup_storage_size: has.max_compute_workgroup_storage_size,
        max_compute_invocations_per_workgroup: has.max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x: has.max_compute_workgroup_size_x,
        max_compute_workgroup_size_y: has.max_compute_workgroup_size_y,
        max_compute_workgroup_size_z: has.max_compute_workgroup_size_z,
        max_compute_workgroups_per_dimension: has.max_compute_workgroups_per_dimension,
        ..wgpu::Limits::default().or_worse_values_from(&has)
    }
}

impl WgpuDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without a usable adapter, or if the driver refuses.
    pub fn open(options: &Options) -> Result<Arc<Self>, DeviceError> {
        let adapter = choose(options.adapter.as_ref())?;
        let info = adapter.get_info();
        let desc = wgpu::DeviceDescriptor {
            label: Some("seam"),
            required_features: adapter.features() & wgpu::Features::TIMESTAMP_QUERY,
            required_limits: required(&adapter),
            ..Default::default()
        };
        let (device, queue) = block_on(adapter.request_device(&desc))
            .map_err(|e| DeviceError::Unavailable { device: format!("wgpu {}", info.name), reason: e.to_string() })?;
        let health = Arc::new(Health::default());
        let lost = Arc::clone(&health);
        device.set_device_lost_callback(move |reason, message| lost.lose(format!("{reason:?}: {message}")));
        let faults = Arc::clone(&health);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| faults.fault(error.to_string())));
        let mut core = Core {
            id: DeviceId::unique(),
            caps: caps(&info, &limits(&adapter), options),
            device,
            queue,
            health,
            checked: options.checked,
            layouts: Mutex::new(HashMap::new()),
            pipelines: Mutex::new(HashMap::new()),
            timeline: Mutex::new(Timeline::default()),
            reached: Arc::new(AtomicU64::new(0)),
            counters: Counters::default(),
            clock: None,
            staged: AtomicU64::new(0),
        };
        core.clock = Clock::new(&core)?;
        Ok(Arc::new(Self(Arc::new(core))))
    }

    /// Gives the device back to the driver at once, whatever still runs. Every later call answers
    /// [`DeviceError::Lost`]; buffers and lists may be dropped as usual.
    pub fn destroy(&self) {
        self.0.health.lose("it was destroyed".to_owned());
        self.0.device.destroy();
    }

    /// Compute passes in a list of this device: one, unless copies stand between its launches.
    #[must_use]
    pub fn passes(&self, list: &CommandList) -> Option<usize> {
        list.handle::<Arc<List>>().map(|list| list.passes())
    }

    fn own_tickets(&self, tickets: &[Ticket]) -> Result<(), DeviceError> {
        if tickets.iter().all(|t| t.device == self.0.id) {
            return Ok(());
        }
        Err(DeviceError::ForeignBuffer { device: self.0.name(), label: "a ticket".to_owned() })
    }

    /// Lets go of the lists that have run.
    fn land(&self) {
        let reached = self.0.reached.load(Ordering::Acquire);
        let landed = lock(&self.0.timeline).land(reached);
        drop(landed);
    }
}

impl Device for WgpuDevice {
    fn id(&self) -> DeviceId {
        self.0.id
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn stats(&self) -> Stats {
        self.land();
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
        self.land();
        alloc(&self.0, label, bytes.checked_next_multiple_of(4).unwrap_or(bytes), usage)
    }

    fn constant(&self, label: &str, bytes: HostBytes) -> Result<Buffer, DeviceError> {
        let bytes = bytes.as_slice();
        let buffer = alloc(&self.0, label, (bytes.len() as u64).next_multiple_of(4), BufferUse::Constant)?;
        let raw = &memory(&self.0, &buffer)?.raw;
        let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
        self.0.upload(label, raw, 0, words)?;
        if !rest.is_empty() {
            let mut word = [0; 4];
            word[..rest.len()].copy_from_slice(rest);
            self.0.upload(label, raw, words.len() as u64, &word)?;
        }
        self.0.counters.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn write(&self, range: &BufferRange, bytes: &[u8]) -> Result<(), DeviceError> {
        let memory = memory(&self.0, &range.buffer)?;
        let len = bytes.len() as u64;
        let label = range.buffer.label();
        range.check_write(len)?;
        self.0.upload(label, &memory.raw, range.offset, bytes)?;
        self.0.counters.written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(WgpuRecorder::new(Arc::clone(&self.0)))
    }

    /// There is one queue, in order: every ticket of this device is before any later list, on either lane.
    fn submit(&self, list: &CommandList, _lane: Lane, after: &[Ticket]) -> Result<Ticket, DeviceError> {
        self.own_tickets(after)?;
        let core = &self.0;
        let foreign = || DeviceError::ForeignBuffer { device: core.name(), label: "a command list".to_owned() };
        let list = list.handle::<Arc<List>>().filter(|_| list.device() == core.id).ok_or_else(foreign)?;
        self.land();
        // Held until the list is on the queue, so that tickets rise in the order of the queue.
        let mut timeline = lock(&core.timeline);
        let next = timeline.last + 1;
        let index = core.guarded("submit", "a command list", 0, || {
            let mut encoder = core.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let clock = core.clock.as_ref().filter(|_| list.passes() > 0);
            let stamp = clock.map(|clock| clock.stamp(next));
            list.encode(&mut encoder, stamp.map(|(_, queries)| queries));
            if let (Some(clock), Some((stamp, _))) = (clock, stamp) {
                clock.resolve(&mut encoder, stamp, next);
            }
            core.queue.submit([encoder.finish()])
        })?;
        core.staged.store(0, Ordering::Relaxed);
        let value = timeline.push(index, Arc::clone(list));
        let reached = Arc::clone(&core.reached);
        core.queue.on_submitted_work_done(move || {
            reached.fetch_max(value, Ordering::AcqRel);
        });
        drop(timeline);
        let counters = &core.counters;
        counters.submissions.fetch_add(1, Ordering::Relaxed);
        counters.dispatches.fetch_add(list.dispatches, Ordering::Relaxed);
        counters.copied.fetch_add(list.copied, Ordering::Relaxed);
        Ok(Ticket { device: core.id, value })
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.own_tickets(&[ticket])?;
        self.0.tick()?;
        self.land();
        Ok(ticket.value <= self.0.reached.load(Ordering::Acquire))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.own_tickets(&[ticket])?;
        self.0.alive()?;
        let standing = lock(&self.0.timeline).standing(ticket.value);
        match standing {
            Standing::Reached => Ok(()),
            Standing::Flying(index) => {
                self.0.wait_for(Some(index))?;
                self.0.reached.fetch_max(ticket.value, Ordering::AcqRel);
                self.land();
                Ok(())
            }
            Standing::Unknown => Err(self.0.backend("wait", format!("no list has the ticket {}", ticket.value))),
        }
    }

    fn elapsed(&self, ticket: Ticket) -> Option<Duration> {
        if !self.poll(ticket).ok()? {
            return None;
        }
        self.0.clock.as_ref()?.elapsed(&self.0, ticket.value)
    }

    fn read(&self, range: &BufferRange, after: &[Ticket]) -> Result<Box<dyn Pending>, DeviceError> {
        self.own_tickets(after)?;
        self.0.own(&range.buffer)?;
        range.buffer.range(range.offset, range.len)?;
        let pending = read(&self.0, range)?;
        self.0.counters.read.fetch_add(range.len, Ordering::Relaxed);
        Ok(pending)
    }
}
