//! The same bits a hundred times: whatever the host reads in the checks of the conformance crate is compared.

use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seam_conformance::{kernels, model};
use seam_device::{
    Buffer, BufferRange, BufferUse, Caps, CommandList, Device, DeviceError, DeviceId, HostBytes, Lane, Pending,
    Recorder, Stats, Ticket,
};
use seam_engine::EngineOptions;
use seam_tests::{cpu, cuda, fixture};

/// A device that remembers what was read from it. New memory that kernels write is filled with not-a-numbers by the checks
/// themselves.
struct Witness {
    inner: Arc<dyn Device>,
    read: Arc<Mutex<Vec<u64>>>,
}

struct Seen {
    inner: Box<dyn Pending>,
    read: Arc<Mutex<Vec<u64>>>,
}

impl Pending for Seen {
    fn wait(self: Box<Self>) -> Result<Vec<u8>, DeviceError> {
        let bytes = self.inner.wait()?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        self.read.lock().expect("lock").push(hasher.finish());
        Ok(bytes)
    }
}

impl Device for Witness {
    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn alloc(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError> {
        self.inner.alloc(label, bytes, usage)
    }

    fn constant(&self, label: &str, bytes: HostBytes) -> Result<Buffer, DeviceError> {
        self.inner.constant(label, bytes)
    }

    fn write(&self, range: &BufferRange, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(range, bytes)
    }

    fn recorder(&self) -> Box<dyn Recorder> {
        self.inner.recorder()
    }

    fn submit(&self, list: &CommandList, lane: Lane, after: &[Ticket]) -> Result<Ticket, DeviceError> {
        self.inner.submit(list, lane, after)
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.inner.poll(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.inner.wait(ticket)
    }

    fn elapsed(&self, ticket: Ticket) -> Option<Duration> {
        self.inner.elapsed(ticket)
    }

    fn read(&self, range: &BufferRange, after: &[Ticket]) -> Result<Box<dyn Pending>, DeviceError> {
        let inner = self.inner.read(range, after)?;
        Ok(Box::new(Seen { inner, read: Arc::clone(&self.read) }))
    }
}

/// Runs `check` `times` times on `device`; everything read must have the same bits each time. Returns the number of reads
/// of one run.
fn repeated(device: &Arc<dyn Device>, times: usize, name: &str, check: impl Fn(&Arc<dyn Device>)) -> usize {
    let read = Arc::new(Mutex::new(Vec::new()));
    let witness: Arc<dyn Device> = Arc::new(Witness { inner: Arc::clone(device), read: Arc::clone(&read) });
    let mut first: Option<Vec<u64>> = None;
    for time in 0..times {
        check(&witness);
        let now = std::mem::take(&mut *read.lock().expect("lock"));
        match &first {
            None => first = Some(now),
            Some(first) => {
                let at = first.iter().zip(&now).position(|(a, b)| a != b);
                assert!(first.len() == now.len() && at.is_none(), "{name}, time {time}: read {at:?} differs");
            }
        }
    }
    first.unwrap_or_default().len()
}

/// Every file of kernel goldens in a thread of its own, all on one device: what runs beside a kernel changes no bit either.
fn every_kernel(device: &Arc<dyn Device>, times: usize) {
    let files = std::fs::read_dir(fixture("kernels")).expect("fixtures").map(|file| file.expect("entry").path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
    assert!(files.len() > 10, "{files:?}");
    std::thread::scope(|scope| {
        for path in &files {
            scope.spawn(move || {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let reads = repeated(device, times, &name, |device| {
                    let report = kernels::check(device, path).expect(&name);
                    assert!(report.passed(), "{name}: {:?}", report.checks.iter().find(|c| !c.passed()));
                });
                assert!(reads > 0, "{name}: nothing was read");
                println!("{name} on {}: {reads} reads, {times} times the same", device.caps().kind);
            });
        }
    });
}

/// Attention, products, chains and everything around them in a model.
fn whole_model(device: &Arc<dyn Device>, times: usize) {
    let name = "qwen3_5_dense";
    let reads = repeated(device, times, name, |device| {
        let report = model::check(device, &fixture(name), &EngineOptions::default()).expect(name);
        assert!(report.passed(), "{name}: {:?}", report.checks.iter().find(|c| !c.passed()));
    });
    assert!(reads > 0);
    println!("{name} on {}: {reads} reads, {times} times the same", device.caps().kind);
}

#[test]
fn kernels_give_the_same_bits_a_hundred_times() {
    if let Some(device) = cuda() {
        every_kernel(&device, 100);
    }
}

#[test]
fn a_model_gives_the_same_bits_a_hundred_times() {
    if let Some(device) = cuda() {
        whole_model(&device, 100);
    }
}

/// The witness itself, where there is no GPU: two runs agree, and a difference is found.
#[test]
fn the_witness_sees_every_read() {
    every_kernel(&cpu(), 2);
    let device = cpu();
    let counter = Mutex::new(0u32);
    let spoiled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        repeated(&device, 2, "spoiled", |device| {
            let mut count = counter.lock().expect("lock");
            *count += 1;
            let buffer = device.alloc("x", 4, BufferUse::Storage).expect("alloc");
            device.write(&buffer.all(), &count.to_le_bytes()).expect("write");
            device.read(&buffer.all(), &[]).expect("read").wait().expect("wait");
        })
    }));
    assert!(spoiled.is_err(), "a read that differs is noticed");
}
