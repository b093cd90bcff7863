//! Choosing and opening a device. The only file that names the device crates.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use seam_cuda::CudaDevice;
pub(crate) use seam_cuda::{GpuReport, Report as CudaReport};
use seam_device::{Device, Precision};
use seam_wgpu::WgpuDevice;
pub(crate) use seam_wgpu::{AdapterChoice, AdapterReport};

use crate::report::note;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// A GPU if there is one, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// An adapter; the best usable one if none is named.
    Wgpu(Option<AdapterChoice>),
    /// An NVIDIA GPU by its number; the first usable one if none is given.
    Cuda(Option<u32>),
}

/// A device name that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseDeviceError(String);

impl fmt::Display for ParseDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown device {:?}: expected auto, cpu, wgpu, cuda, wgpu: with a number or part of a name, or cuda: with a number",
            self.0
        )
    }
}

impl std::error::Error for ParseDeviceError {}

impl FromStr for DeviceChoice {
    type Err = ParseDeviceError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.split_once(':') {
            None if s == "auto" => Ok(Self::Auto),
            None if s == "cpu" => Ok(Self::Cpu),
            None if s == "wgpu" => Ok(Self::Wgpu(None)),
            None if s == "cuda" => Ok(Self::Cuda(None)),
            Some(("cuda", which)) => {
                which.parse().map(|gpu| Self::Cuda(Some(gpu))).map_err(|_| ParseDeviceError(s.to_owned()))
            }
            Some(("wgpu", which)) if !which.trim().is_empty() => Ok(Self::Wgpu(Some(match which.parse() {
                Ok(index) => AdapterChoice::Index(index),
                Err(_) => AdapterChoice::Name(which.to_owned()),
            }))),
            _ => Err(ParseDeviceError(s.to_owned())),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(AdapterChoice::Index(index))) => write!(f, "wgpu:{index}"),
            Self::Wgpu(Some(AdapterChoice::Name(name))) => write!(f, "wgpu:{name}"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(gpu)) => write!(f, "cuda:{gpu}"),
        }
    }
}

/// The option every command that computes has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    /// Where to compute: auto, cpu, wgpu, cuda, or one of several such as wgpu:1 (see `seam doctor`).
    ///
    /// auto takes an NVIDIA GPU through CUDA if that works, else a GPU if there is one, else the processor; never a software driver.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub(crate) device: DeviceChoice,

    /// How exact products are: f32, or bf16 where the device has tensor cores for it (CUDA).
    ///
    /// Left out, it is what the device is fastest with; commands that check numbers take f32.
    #[arg(long, value_name = "PRECISION")]
    pub(crate) precision: Option<PrecisionChoice>,
}

/// A precision by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PrecisionChoice {
    /// Operands keep the bits of f32.
    F32,
    /// Operands of products are rounded to bf16.
    Bf16,
}

impl DeviceArgs {
    /// Opens the device and says on standard error which one it is, and why.
    ///
    /// # Errors
    /// The device asked for by name is not available.
    pub(crate) fn open(&self) -> Result<Arc<dyn Device>> {
        self.open_with(Precision::Bf16)
    }

    /// As [`DeviceArgs::open`], in f32 unless asked otherwise.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn open_exact(&self) -> Result<Arc<dyn Device>> {
        self.open_with(Precision::F32)
    }

    /// `usual`: the precision of a CUDA device that was not asked for another.
    fn open_with(&self, usual: Precision) -> Result<Arc<dyn Device>> {
        let asked = self.precision.map(|p| match p {
            PrecisionChoice::F32 => Precision::F32,
            PrecisionChoice::Bf16 => Precision::Bf16,
        });
        let precision = asked.unwrap_or(usual);
        let (device, why) = match &self.device {
            DeviceChoice::Cpu => (cpu(), "as asked".to_owned()),
            DeviceChoice::Wgpu(adapter) => (wgpu(adapter.clone())?, "as asked".to_owned()),
            DeviceChoice::Cuda(gpu) => (cuda(*gpu, precision)?, "as asked".to_owned()),
            DeviceChoice::Auto => auto(precision),
        };
        let has = device.caps().precision;
        if let Some(asked) = asked.filter(|asked| *asked != has) {
            anyhow::bail!("{} computes in {has}, not in {asked}; bf16 needs --device cuda", name(&*device));
        }
        note(&format!("device: {} in {has} ({why})", name(&*device)));
        Ok(device)
    }
}

/// `wgpu, NVIDIA …`, `cpu, 8 threads`.
pub(crate) fn name(device: &dyn Device) -> String {
    let caps = device.caps();
    let kind = caps.kind.to_string();
    if caps.name.starts_with(&kind) { caps.name.clone() } else { format!("{kind}, {}", caps.name) }
}

/// The processor.
pub(crate) fn cpu() -> Arc<dyn Device> {
    seam_cpu::CpuDevice::open(seam_cpu::Options::default())
}

/// An adapter.
///
/// # Errors
/// It is not there, or the driver refuses.
pub(crate) fn wgpu(adapter: Option<AdapterChoice>) -> Result<Arc<dyn Device>> {
    let options = seam_wgpu::Options { adapter, ..seam_wgpu::Options::default() };
    Ok(WgpuDevice::open(&options).context("cannot open the device; `seam doctor` lists what there is")?)
}

/// An NVIDIA GPU.
///
/// # Errors
/// It is not there, or something that CUDA needs.
pub(crate) fn cuda(gpu: Option<u32>, precision: Precision) -> Result<Arc<dyn Device>> {
    let options = seam_cuda::Options { gpu, precision, ..seam_cuda::Options::default() };
    Ok(CudaDevice::open(&options).context("cannot open the device; `seam doctor` lists what there is")?)
}

/// What CUDA needs, and what was found of it.
pub(crate) fn cuda_report() -> CudaReport {
    seam_cuda::report()
}

/// Every adapter, best first.
pub(crate) fn adapters() -> Vec<AdapterReport> {
    seam_wgpu::adapters()
}

/// Whether a driver stands for hardware; a software driver is slower than the processor's own kernels.
pub(crate) fn is_gpu(adapter: &AdapterReport) -> bool {
    matches!(adapter.device_type.as_str(), "discrete" | "integrated" | "virtual")
}

/// Which adapter `auto` takes, or why it takes none.
fn pick(adapters: &[AdapterReport]) -> Result<usize, String> {
    if let Some(index) = adapters.iter().position(|a| is_gpu(a) && a.usable.is_ok()) {
        return Ok(index);
    }
    if let Some((gpu, why)) = adapters.iter().filter(|a| is_gpu(a)).find_map(|a| Some((a, a.usable.as_ref().err()?))) {
        return Err(format!("the GPU {} cannot be used: {why}", gpu.name));
    }
    Err(match adapters.first() {
        Some(software) => format!("no GPU; the software driver {} is used only when asked for", software.name),
        None => "no GPU, or no driver for it".to_owned(),
    })
}

fn auto(precision: Precision) -> (Arc<dyn Device>, String) {
    let report = cuda_report();
    let mut missed = String::new();
    if report.gpus.iter().any(|gpu| gpu.usable.is_ok()) {
        match cuda(None, precision) {
            Ok(device) => return (device, "the first usable NVIDIA GPU".to_owned()),
            Err(error) => missed = format!("; without CUDA: {}", crate::report::causes(&error)),
        }
    }
    let (device, why) = auto_without_cuda();
    (device, why + &missed)
}

fn auto_without_cuda() -> (Arc<dyn Device>, String) {
    let adapters = adapters();
    let index = match pick(&adapters) {
        Ok(index) => index,
        Err(why) => return (cpu(), why),
    };
    match wgpu(Some(AdapterChoice::Index(index))) {
        Ok(device) => (device, "the first usable GPU".to_owned()),
        Err(error) => (cpu(), format!("the GPU does not open: {}", crate::report::causes(&error))),
    }
}

#[cfg(test)]
mod tests {
    use seam_wgpu::Limits;

    use super::*;

    fn adapter(name: &str, device_type: &str, usable: Result<(), String>) -> AdapterReport {
        AdapterReport {
            name: name.into(),
            backend: "vulkan".into(),
            driver: "d".into(),
            device_type: device_type.into(),
            limits: Limits {
                max_binding: 1 << 27,
                max_buffer: 1 << 28,
                max_storage_buffers: 8,
                max_workgroup_bytes: 16 << 10,
                max_invocations: 256,
                max_grid: 65535,
                subgroup: (1, 1),
            },
            usable,
        }
    }

    #[test]
    fn names_of_devices_round_trip() {
        for name in ["auto", "cpu", "wgpu", "wgpu:1", "wgpu:llvmpipe", "cuda", "cuda:3"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        for bad in ["", "gpu", "cpu:0", "wgpu:", "CPU", "wgpu: ", "cuda:", "cuda:x", "cuda:-1"] {
            assert!(bad.parse::<DeviceChoice>().is_err(), "{bad}");
        }
        assert_eq!("wgpu:1".parse(), Ok(DeviceChoice::Wgpu(Some(AdapterChoice::Index(1)))));
    }

    #[test]
    fn auto_takes_a_usable_gpu_and_never_a_software_driver() {
        let software = adapter("soft", "cpu", Ok(()));
        let broken = adapter("old", "integrated", Err("no compute shaders".into()));
        let gpu = adapter("gpu", "discrete", Ok(()));
        assert_eq!(pick(&[broken.clone(), gpu, software.clone()]), Ok(1));
        let why = pick(&[broken, software.clone()]).unwrap_err();
        assert!(why.contains("old") && why.contains("no compute shaders"), "{why}");
        assert!(pick(&[software]).unwrap_err().contains("soft"));
        assert!(pick(&[]).unwrap_err().contains("no driver"));
    }
}
