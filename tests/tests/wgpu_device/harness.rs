//! Runs one dispatch on the wgpu device and by its twin, on the same words.

use std::sync::{Arc, OnceLock};

use seam_device::{Access, Buffer, BufferRange, BufferUse, Device, Dispatch, Lane};
use seam_kernels::twin::{Args, Slot};
use seam_kernels::{Kernel, tables};
use seam_wgpu::{Options, WgpuDevice};

/// The devices of a test: with naga's checks, and trusted as in production. `None` (and a line on stderr) without an
/// adapter; a failure if the environment requires wgpu.
pub(crate) fn gpus() -> Option<&'static [Arc<WgpuDevice>; 2]> {
    static DEVICES: OnceLock<Result<[Arc<WgpuDevice>; 2], String>> = OnceLock::new();
    let opened = DEVICES.get_or_init(|| {
        let open = |checked| WgpuDevice::open(&Options { checked, ..Options::default() }).map_err(|e| e.to_string());
        let devices = [open(true)?, open(false)?];
        eprintln!("wgpu: {} ({})", devices[0].caps().name, devices[0].caps().driver);
        Ok(devices)
    });
    match opened {
        Ok(devices) => Some(devices),
        Err(reason) => {
            let required = std::env::var("SEAM_REQUIRE").is_ok_and(|list| list.split(',').any(|x| x.trim() == "wgpu"));
            assert!(!required, "wgpu is required: {reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// Numbers from a fixed sequence.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n
    }

    /// In `[low, high)`.
    pub(crate) fn real(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.bits() >> 8) as f32 / (1 << 24) as f32
    }

    /// `n` words that hold reals of `[-1, 1)`.
    pub(crate) fn words(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.real(-1.0, 1.0).to_bits()).collect()
    }
}

pub(crate) fn words(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

pub(crate) fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

/// Tables of a pass, built by hand.
pub(crate) struct Tables(pub(crate) Vec<u32>);

impl Tables {
    pub(crate) fn new(rows: usize, logits: usize) -> Self {
        let mut words = vec![0; tables::HEADER];
        words[tables::ROWS] = rows as u32;
        words[tables::LOGITS] = logits as u32;
        Self(words)
    }

    /// Appends a table and puts its offset into the header word.
    pub(crate) fn put(&mut self, header: usize, words: impl IntoIterator<Item = u32>) {
        self.0[header] = self.0.len() as u32;
        self.0.extend(words);
    }
}

/// One launch with everything it reads.
pub(crate) struct Case {
    pub(crate) kernel: &'static Kernel,
    pub(crate) constants: Vec<u32>,
    pub(crate) params: Vec<u8>,
    /// Words of each binding.
    pub(crate) data: Vec<Vec<u32>>,
    pub(crate) grid: [u32; 3],
}

impl Case {
    /// What the writable bindings hold after the twin ran, by binding.
    pub(crate) fn twin(&self) -> Vec<Option<Vec<u32>>> {
        let mut data = self.data.clone();
        let slots = data
            .iter_mut()
            .zip(self.kernel.bindings)
            .map(|(words, binding)| match binding.access {
                Access::Read => Slot::Read(words),
                Access::ReadWrite => Slot::Write(words),
            })
            .collect();
        let twin = self.kernel.twin.expect("the kernel has a twin");
        twin(&mut Args::new(&self.params, &self.constants, slots));
        let writable = self.kernel.bindings.iter().map(|b| b.access == Access::ReadWrite);
        data.into_iter().zip(writable).map(|(words, w)| w.then_some(words)).collect()
    }

    /// The same on a device.
    pub(crate) fn device(&self, device: &WgpuDevice) -> Vec<Option<Vec<u32>>> {
        let buffers: Vec<Buffer> = self.data.iter().map(|words| upload(device, words)).collect();
        let mut recorder = device.recorder();
        recorder
            .dispatch(Dispatch {
                kernel: self.kernel.id,
                constants: self.constants.clone(),
                params: self.params.clone(),
                bindings: buffers.iter().map(Buffer::all).collect(),
                grid: self.grid,
            })
            .unwrap();
        let list = recorder.finish().unwrap();
        let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
        let reading = |(buffer, binding): (&Buffer, &seam_kernels::Binding)| {
            (binding.access == Access::ReadWrite).then(|| device.read(&buffer.all(), &[ticket]).unwrap())
        };
        let pending: Vec<_> = buffers.iter().zip(self.kernel.bindings).map(reading).collect();
        pending.into_iter().map(|p| p.map(|p| to_words(&p.wait().unwrap()))).collect()
    }

    /// Runs twin and devices and compares every writable binding; `margin` is the absolute part of the tolerance and,
    /// times the value, its relative part. Returns the twin's words.
    pub(crate) fn check(&self, margin: f32) -> Vec<Option<Vec<u32>>> {
        self.check_on(&["checked", "trusted"], margin)
    }

    /// As [`Case::check`] on the named devices.
    pub(crate) fn check_on(&self, names: &[&str], margin: f32) -> Vec<Option<Vec<u32>>> {
        let expected = self.twin();
        let devices = gpus().into_iter().flatten().zip(["checked", "trusted"]);
        for (device, name) in devices.filter(|(_, name)| names.contains(name)) {
            for (i, (got, want)) in self.device(device).iter().zip(&expected).enumerate() {
                if let (Some(got), Some(want)) = (got, want) {
                    let binding = self.kernel.bindings[i].name;
                    let what = format!("{name} {} {:?} {binding}", self.kernel.name, self.constants);
                    compare(&what, &floats(got), &floats(want), margin);
                }
            }
        }
        expected
    }
}

/// A storage buffer with these words.
pub(crate) fn upload(device: &WgpuDevice, words: &[u32]) -> Buffer {
    let buffer = device.alloc("test", words.len() as u64 * 4, BufferUse::Storage).unwrap();
    device.write(&buffer.all(), bytemuck::cast_slice(words)).unwrap();
    buffer
}

pub(crate) fn download(device: &WgpuDevice, range: &BufferRange) -> Vec<u32> {
    to_words(&device.read(range, &[]).unwrap().wait().unwrap())
}

pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Compares element by element and reports the worst one. "No key yet" counts as equal to −∞.
pub(crate) fn compare(what: &str, got: &[f32], want: &[f32], margin: f32) {
    assert_eq!(got.len(), want.len(), "{what}");
    let mut worst = (0.0f32, 0);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        if g.to_bits() == w.to_bits() || (*w == f32::NEG_INFINITY && *g < -1e38) {
            continue;
        }
        let error = (g - w).abs() / (1.0 + w.abs());
        // Not a number is the worst of all.
        if error.is_nan() || error > worst.0 {
            worst = (if error.is_nan() { f32::INFINITY } else { error }, i);
        }
    }
    if std::env::var_os("SEAM_SHOW_ERRORS").is_some() {
        eprintln!("{what}: {:e} of {margin:e}", worst.0);
    }
    let (error, i) = worst;
    assert!(error <= margin, "{what}: element {i} is {}, expected {}: {error:e} > {margin:e}", got[i], want[i]);
}
