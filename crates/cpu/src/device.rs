//! The device.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use seam_device::{
    Buffer, BufferRange, BufferUse, Caps, Command, CommandList, DType, Device, DeviceError, DeviceId, DeviceKind,
    GemmCaps, HostBytes, KernelSet, Lane, Pending, Precision, Recorder, Stats, Ticket,
};
use seam_kernels::manifest::MANIFEST;

use crate::list::{CpuRecorder, run};
use crate::memory::{Counted, Memory, read, write};

/// dtypes of weights that a product takes.
pub(crate) const GEMM_WEIGHTS: [DType; 3] = [DType::BF16, DType::F32, DType::F8E4M3];

/// Lists whose times are remembered.
const REMEMBERED: usize = 256;

/// How to open the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Lowers the largest binding, in bytes, to test splitting.
    pub max_binding: Option<u64>,
}

/// The host's processor.
pub struct CpuDevice {
    id: DeviceId,
    caps: Caps,
    allocated: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stats: Stats,
    times: VecDeque<(u64, Duration)>,
}

impl CpuDevice {
    /// Opens it; this cannot fail.
    #[must_use]
    pub fn open(options: Options) -> Arc<Self> {
        let caps = Caps {
            kind: DeviceKind::Cpu,
            name: format!("cpu, {} threads", rayon::current_num_threads()),
            driver: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            max_binding: 1 << 46,
            max_buffer: 1 << 46,
            max_storage_buffers: 8,
            max_workgroup_bytes: 16 << 10,
            max_invocations: 256,
            max_grid: u32::MAX,
            subgroup: (1, 1),
            memory: None,
            kernels: KernelSet::of(MANIFEST.iter().filter(|k| k.twin.is_some()).map(|k| k.id)),
            gemm: GemmCaps { weights: GEMM_WEIGHTS.to_vec(), accumulate: true, batch_invariant: true },
            precision: Precision::F32,
            rows_hint: 1024,
        };
        let caps = match options.max_binding {
            Some(bytes) => caps.with_max_binding(bytes),
            None => caps,
        };
        Arc::new(Self {
            id: DeviceId::unique(),
            caps,
            allocated: Arc::new(AtomicU64::new(0)),
            state: Mutex::new(State::default()),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self, buffer: &Buffer) -> Result<(), DeviceError> {
        if buffer.device() == self.id {
            return Ok(());
        }
        Err(DeviceError::ForeignBuffer { device: "cpu".to_owned(), label: buffer.label().to_owned() })
    }

    fn own_tickets(&self, tickets: &[Ticket]) -> Result<(), DeviceError> {
        if tickets.iter().all(|t| t.device == self.id) {
            return Ok(());
        }
        Err(DeviceError::ForeignBuffer { device: "cpu".to_owned(), label: "a ticket".to_owned() })
    }
}

struct Ready(Vec<u8>);

impl Pending for Ready {
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError> {
        Ok(self.0)
    }
}

impl Device for CpuDevice {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&self) -> Stats {
        Stats { allocated: self.allocated.load(Ordering::Relaxed), ..self.state().stats }
    }

    fn alloc(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError> {
        if bytes > self.caps.max_buffer {
            return Err(DeviceError::TooLarge {
                device: "cpu".to_owned(),
                label: label.to_owned(),
                bytes,
                limit: self.caps.max_buffer,
            });
        }
        let out_of_memory = || DeviceError::OutOfMemory { device: "cpu".to_owned(), label: label.to_owned(), bytes };
        let words = usize::try_from(bytes.div_ceil(4)).map_err(|_| out_of_memory())?;
        let mut vec = Vec::new();
        vec.try_reserve_exact(words).map_err(|_| out_of_memory())?;
        vec.resize(words, 0);
        let bytes = words as u64 * 4;
        let memory = Memory::Words { words: RwLock::new(vec), _counted: Counted::new(bytes, &self.allocated) };
        Ok(Buffer::new(self.id, label, bytes, usage, Box::new(memory)))
    }

    fn constant(&self, label: &str, bytes: HostBytes) -> Result<Buffer, DeviceError> {
        if bytemuck::try_cast_slice::<u8, u32>(bytes.as_slice()).is_ok() {
            let len = bytes.len() as u64;
            return Ok(Buffer::new(self.id, label, len, BufferUse::Constant, Box::new(Memory::Host(bytes))));
        }
        // Not on a word boundary, or no whole number of words: a padded copy.
        let words: Vec<u32> = bytes
            .as_slice()
            .chunks(4)
            .map(|chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                u32::from_le_bytes(word)
            })
            .collect();
        let len = words.len() as u64 * 4;
        let memory = Memory::Words { words: RwLock::new(words), _counted: Counted::new(len, &self.allocated) };
        Ok(Buffer::new(self.id, label, len, BufferUse::Constant, Box::new(memory)))
    }

    fn write(&self, range: &BufferRange, bytes: &[u8]) -> Result<(), DeviceError> {
        self.own(&range.buffer)?;
        range.check_write(bytes.len() as u64)?;
        let mut words = write(&range.buffer)?;
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        target[range.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        self.state().stats.written += bytes.len() as u64;
        Ok(())
    }

    fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(CpuRecorder { id: self.id, max_binding: self.caps.max_binding, commands: Vec::new() })
    }

    fn submit(&self, list: &CommandList, _lane: Lane, after: &[Ticket]) -> Result<Ticket, DeviceError> {
        self.own_tickets(after)?;
        let foreign = || DeviceError::ForeignBuffer { device: "cpu".to_owned(), label: "command list".to_owned() };
        if list.device() != self.id {
            return Err(foreign());
        }
        let commands: &Vec<Command> = list.handle().ok_or_else(foreign)?;
        // Held while the list runs: lists run one after another.
        let mut state = self.state();
        let start = Instant::now();
        for command in commands {
            state.stats.copied += run(command)?;
        }
        state.stats.submissions += 1;
        state.stats.dispatches += list.dispatches() as u64;
        let value = state.stats.submissions;
        state.times.push_back((value, start.elapsed()));
        if state.times.len() > REMEMBERED {
            state.times.pop_front();
        }
        Ok(Ticket { device: self.id, value })
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.own_tickets(&[ticket])?;
        Ok(ticket.value <= self.state().stats.submissions)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.own_tickets(&[ticket])
    }

    fn elapsed(&self, ticket: Ticket) -> Option<Duration> {
        self.own_tickets(&[ticket]).ok()?;
        self.state().times.iter().find(|(value, _)| *value == ticket.value).map(|(_, time)| *time)
    }

    fn read(&self, range: &BufferRange, after: &[Ticket]) -> Result<Box<dyn Pending>, DeviceError> {
        self.own_tickets(after)?;
        self.own(&range.buffer)?;
        range.buffer.range(range.offset, range.len)?;
        let reading = read(&range.buffer)?;
        let bytes: &[u8] = bytemuck::cast_slice(reading.words());
        let bytes = bytes[range.offset as usize..][..range.len as usize].to_vec();
        self.state().stats.read += range.len;
        Ok(Box::new(Ready(bytes)))
    }
}
