//! `seam doctor`: which devices there are, whether they work, and what is missing.

mod hints;
mod selftest;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use seam_device::Device;
use serde::Serialize;

use super::Verdict;
use crate::device::{self, AdapterChoice, AdapterReport, CudaReport, GpuReport};
use crate::report::{Column, OutputArgs, Progress, Table, bytes, causes, count, heading, verdict};
use hints::Facts;

/// Show which devices work on this machine, and what is missing
///
/// Every usable device runs a small self-test. Exits with 1 only if no device works at all.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also check that this folder can hold a cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Document {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
    threads: usize,
    devices: Vec<Found>,
    /// What `--device auto` takes.
    auto: String,
    cache: Option<CacheDir>,
    hints: Vec<String>,
}

/// A device and how its test went.
#[derive(Clone, Debug, Serialize)]
struct Found {
    /// What `--device` calls it.
    device: String,
    name: String,
    driver: String,
    /// cpu, discrete, integrated, virtual, software or other.
    kind: String,
    max_binding: u64,
    max_workgroup_bytes: u32,
    max_invocations: u32,
    subgroup: (u32, u32),
    works: bool,
    /// What was tested, or what is wrong.
    test: String,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct CacheDir {
    dir: String,
    writable: bool,
    what: String,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let progress = Progress::spinner("testing cpu");
    let mut devices = vec![cpu()];
    let adapters = device::adapters();
    for (index, adapter) in adapters.iter().enumerate() {
        progress.say(&format!("testing {}", adapter.name));
        devices.push(found(index, adapter));
    }
    let cuda = device::cuda_report();
    for gpu in &cuda.gpus {
        progress.say(&format!("testing {} through CUDA", gpu.name));
        devices.push(nvidia(&cuda, gpu));
    }
    drop(progress);
    let works = |f: &Found| f.works && f.device.starts_with("cuda:");
    let first_cuda = devices.iter().find(|f| works(f)).map(|f| f.device.clone());
    let gpu = adapters.iter().position(|a| device::is_gpu(a) && a.usable.is_ok());
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        auto: first_cuda.unwrap_or_else(|| gpu.map_or_else(|| "cpu".to_owned(), |index| format!("wgpu:{index}"))),
        cache: args.cache.as_deref().map(cache_dir),
        hints: [hints::hints(&Facts::gather(&adapters)), cuda.missing(), cuda.advice()].concat(),
        devices,
    };
    args.output.emit(&document, || text(&document))?;
    Ok(document.devices.iter().any(|d| d.works).into())
}

fn cpu() -> Found {
    let device = device::cpu();
    let caps = device.caps().clone();
    let base = Found {
        device: "cpu".to_owned(),
        name: caps.name,
        driver: caps.driver,
        kind: "cpu".to_owned(),
        max_binding: caps.max_binding,
        max_workgroup_bytes: caps.max_workgroup_bytes,
        max_invocations: caps.max_invocations,
        subgroup: caps.subgroup,
        works: false,
        test: String::new(),
        seconds: 0.0,
    };
    tested(base, Ok(device))
}

fn found(index: usize, adapter: &AdapterReport) -> Found {
    let base = Found {
        device: format!("wgpu:{index}"),
        name: adapter.name.clone(),
        driver: format!("{}: {}", adapter.backend, adapter.driver),
        kind: if adapter.device_type == "cpu" { "software".to_owned() } else { adapter.device_type.clone() },
        max_binding: adapter.limits.max_binding,
        max_workgroup_bytes: adapter.limits.max_workgroup_bytes,
        max_invocations: adapter.limits.max_invocations,
        subgroup: adapter.limits.subgroup,
        works: false,
        test: String::new(),
        seconds: 0.0,
    };
    match &adapter.usable {
        Err(why) => Found { test: format!("cannot be used: {why}"), ..base },
        Ok(()) => tested(base, device::wgpu(Some(AdapterChoice::Index(index)))),
    }
}

fn nvidia(report: &CudaReport, gpu: &GpuReport) -> Found {
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let driver = report.driver.as_ref().map_or_else(|_| "none".to_owned(), |v| version(*v));
    let nvrtc = match &report.nvrtc {
        Ok((v, origin)) => format!("NVRTC {} ({origin})", version(*v)),
        Err(_) => "no NVRTC".to_owned(),
    };
    let products = match &report.cublas_lt {
        Ok((v, origin)) => format!("cublasLt {} ({origin})", version(*v)),
        Err(_) => "no cublasLt, products by own kernels".to_owned(),
    };
    let base = Found {
        device: format!("cuda:{}", gpu.gpu),
        name: gpu.name.clone(),
        driver: format!("CUDA {driver}, {nvrtc}, {products}"),
        kind: "discrete".to_owned(),
        max_binding: 0,
        max_workgroup_bytes: 0,
        max_invocations: 0,
        subgroup: (32, 32),
        works: false,
        test: String::new(),
        seconds: 0.0,
    };
    if let Err(why) = &gpu.usable {
        return Found { test: format!("cannot be used: {why}"), ..base };
    }
    let device = device::cuda(Some(gpu.gpu), seam_device::Precision::F32);
    let base = match device.as_ref().map(|d| d.caps()) {
        Ok(caps) => Found {
            max_binding: caps.max_binding,
            max_workgroup_bytes: caps.max_workgroup_bytes,
            max_invocations: caps.max_invocations,
            ..base
        },
        Err(_) => base,
    };
    tested(base, device)
}

fn tested(base: Found, device: Result<Arc<dyn Device>>) -> Found {
    let start = Instant::now();
    let outcome = device.map_err(|e| causes(&e)).and_then(|device| selftest::run(&device).map_err(|e| causes(&e)));
    let seconds = start.elapsed().as_secs_f64();
    let works = outcome.is_ok();
    Found { works, test: outcome.unwrap_or_else(|why| why), seconds, ..base }
}

/// Whether entries can be written below `dir`, which need not exist yet. Leaves nothing behind.
fn cache_dir(dir: &Path) -> CacheDir {
    let named = |writable, what: String| CacheDir { dir: dir.display().to_string(), writable, what };
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let Some(existing) = absolute.ancestors().find(|a| a.exists()) else {
        return named(false, "no folder above it exists".to_owned());
    };
    if !existing.is_dir() {
        return named(false, format!("{} is not a folder", existing.display()));
    }
    let probe = existing.join(format!(".seam-doctor-{}", std::process::id()));
    let written = std::fs::write(&probe, b"probe").and_then(|()| std::fs::remove_file(&probe));
    match written {
        Ok(()) if existing == absolute => named(true, "writable".to_owned()),
        Ok(()) => named(true, "does not exist yet and can be made".to_owned()),
        Err(e) => named(false, format!("{} cannot be written: {e}", existing.display())),
    }
}

fn text(document: &Document) -> String {
    let d = document;
    let mut out = format!("seam {} on {} {}, {} processor threads\n\n", d.version, d.os, d.arch, d.threads);
    let mut table = Table::new(&[
        Column::Left("device"),
        Column::Left("name"),
        Column::Left("driver"),
        Column::Left("kind"),
        Column::Right("largest binding"),
        Column::Right("workgroup memory"),
        Column::Right("subgroups"),
    ]);
    for f in &d.devices {
        let processor = f.kind == "cpu";
        let limit = |text: String| if processor { "-".to_owned() } else { text };
        let (low, high) = f.subgroup;
        let subgroups = if high <= 1 { "none".to_owned() } else { format!("{low}..{high}") };
        table.row([
            f.device.clone(),
            f.name.clone(),
            f.driver.clone(),
            f.kind.clone(),
            limit(bytes(f.max_binding)),
            limit(bytes(u64::from(f.max_workgroup_bytes))),
            limit(subgroups),
        ]);
    }
    out += &format!("{}\n{}\n{}\n", heading("Devices"), table.render(), heading("Self-tests"));
    let width = d.devices.iter().map(|f| f.device.len()).max().unwrap_or_default();
    for f in &d.devices {
        let state = if f.works { "works" } else { "FAILED" };
        out += &verdict(f.works, &format!("{:width$}  {state:<6}  {} ({:.1} s)", f.device, f.test, f.seconds));
        out.push('\n');
    }
    out += &format!("\n--device auto takes {}\n", d.auto);
    out += &match &d.cache {
        Some(c) => format!("cache folder {}: {}\n", c.dir, c.what),
        None => "cache folder: none given, entries live as long as the process (`seam ask --cache DIR` keeps them)\n"
            .to_owned(),
    };
    if !d.hints.is_empty() {
        out += &format!("\n{}\n", heading("What is missing"));
        for hint in &d.hints {
            out += &format!("- {hint}\n");
        }
    }
    let working = d.devices.iter().filter(|f| f.works).count();
    out += &format!("\n{} of {} devices work\n", count(working as u64), count(d.devices.len() as u64));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_folder_is_probed_without_a_trace() {
        let dir = std::env::temp_dir().join(format!("seam-doctor-test-{}", std::process::id()));
        let new = cache_dir(&dir.join("a/b"));
        assert!(new.writable && new.what.contains("can be made"), "{new:?}");
        assert!(!dir.exists(), "looking made the folder");
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(cache_dir(&dir).what, "writable");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "the probe is left behind");
        let file = dir.join("file");
        std::fs::write(&file, b"x").unwrap();
        let blocked = cache_dir(&file.join("sub"));
        assert!(!blocked.writable && blocked.what.contains("not a folder"), "{blocked:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_report_says_what_works_and_what_is_missing() {
        let device = Found {
            device: "cpu".into(),
            name: "cpu, 2 threads".into(),
            driver: "linux".into(),
            kind: "cpu".into(),
            max_binding: 1 << 46,
            max_workgroup_bytes: 16 << 10,
            max_invocations: 256,
            subgroup: (1, 1),
            works: true,
            test: "a product is right".into(),
            seconds: 0.1,
        };
        let gpu = Found {
            device: "wgpu:0".into(),
            kind: "discrete".into(),
            works: false,
            test: "lost".into(),
            ..device.clone()
        };
        let document = Document {
            version: "0",
            os: "linux",
            arch: "x",
            threads: 2,
            devices: vec![device, gpu],
            auto: "cpu".into(),
            cache: None,
            hints: vec!["install a driver".into()],
        };
        let text = text(&document);
        for wanted in ["1 of 2 devices work", "- install a driver", "--device auto takes cpu", "16.0 KiB"] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(text.lines().any(|l| l.starts_with("wgpu:0") && l.contains("FAILED  lost")), "{text}");
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!((&json["devices"][0]["works"], &json["devices"][1]["works"]), (&true.into(), &false.into()));
    }
}
