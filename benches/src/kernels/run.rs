//! Runs cases: ceilings first, then each case verified and timed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seam_device::{Command, CommandList, Device, DeviceError, DeviceKind, Lane};
use seam_kernels::gemm::{GEMM, GEMM_FEW};
use seam_kernels::manifest::MANIFEST;
use seam_ops::OpError;

use super::KernelCase;
use super::report::{Ceiling, KernelReport, KernelRow, Status};
use super::roofline::Roofline;
use super::rows::product;
use super::verify::{Verifier, overwrites};
use crate::case::Cost;
use crate::error::BenchError;
use crate::lab::{Lab, Parts, kernels, list};
use crate::measure::Spread;
use crate::registry::Scale;

/// Bytes that a cache is taken to hold: the L2 of a large GPU.
const CACHE: u64 = 60_000_000;
/// Sets of inputs at most.
const MOST_SETS: u64 = 256;
/// A list is timed that takes about so long at least, of so many runs at most.
const LIST_TIME: f64 = 200e-6;
const MOST_RUNS: usize = 256;
/// Samples that are taken however long they last.
const LEAST: usize = 3;

/// How cases are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The scale of all cases.
    pub scale: Scale,
    /// Samples of each case.
    pub repeats: usize,
    /// After this time no further sample of a case is taken, if there are three.
    pub budget: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { scale: Scale::Small, repeats: 30, budget: Duration::from_secs(2) }
    }
}

/// Measures the ceilings, then verifies and times each case. `progress` hears the name of each before it runs, and the
/// name of the ceilings first.
///
/// # Errors
/// What a ceiling says. A missing kernel, a case that does not fit, a wrong result and an error of one case are rows of the
/// report, so that what was measured before is not lost.
pub fn run(
    device: &Arc<dyn Device>,
    cases: &[KernelCase],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<KernelReport, BenchError> {
    progress("ceilings");
    let (copy, product) = (copy_ceiling(device, options)?, product_ceiling(device, options)?);
    let rate = |amount: u64, s: &Spread| if s.median > 0.0 { amount as f64 / s.median } else { 0.0 };
    let roofline =
        Roofline { bytes_per_s: rate(copy.bytes, &copy.seconds), flops_per_s: rate(product.flops, &product.seconds) };
    let mut verifier = Verifier::new(device);
    let mut kernels = Vec::new();
    for case in cases {
        progress(&case.name());
        kernels.push(row(device, case, options, &roofline, &mut verifier));
    }
    let caps = device.caps();
    // A device may have products of its own in the place of these.
    let own_products = !caps.gemm.weights.is_empty();
    let missing_kernels = MANIFEST.iter().filter(|k| !caps.kernels.contains(k.id));
    let missing_kernels = missing_kernels.map(|k| k.name);
    let missing_kernels =
        missing_kernels.filter(|n| !(own_products && [GEMM.name, GEMM_FEW.name].contains(n))).collect();
    let passed = kernels.iter().all(|row| !matches!(row.status, Status::Wrong | Status::Failed));
    Ok(KernelReport {
        kind: caps.kind,
        device: caps.name.clone(),
        driver: caps.driver.clone(),
        precision: caps.precision,
        size: options.scale,
        repeats: options.repeats,
        copy,
        product,
        roofline,
        missing_kernels,
        kernels,
        passed,
    })
}

/// Copies between buffers that are larger than any cache.
fn copy_ceiling(device: &Arc<dyn Device>, options: &Options) -> Result<Ceiling, BenchError> {
    let words: u64 = match options.scale {
        Scale::Small => 1 << 20,
        Scale::Real => (256 << 20).min(device.caps().max_buffer / 4),
    };
    let mut lab = Lab::new(device);
    let (src, dst) = (lab.slab("source", &vec![1.0; words as usize])?, lab.slab("target", &vec![0.0; words as usize])?);
    lab.copy(src.all(), dst.all());
    let timed = time(device, &[lab.parts()], options)?;
    Ok(Ceiling { shape: format!("{} MiB", words >> 18), bytes: 8 * words, flops: 0, seconds: timed.seconds })
}

/// A product that is bound by arithmetic.
fn product_ceiling(device: &Arc<dyn Device>, options: &Options) -> Result<Ceiling, BenchError> {
    // Where 8192 would take minutes less is enough: what fills a large GPU is not needed to fill others.
    let size = match (options.scale, device.caps().kind) {
        (Scale::Small, _) => 256,
        (Scale::Real, DeviceKind::Cpu) => 1024,
        (Scale::Real, DeviceKind::Wgpu) => 4096,
        (Scale::Real, DeviceKind::Cuda) => 8192,
    };
    let mut lab = Lab::new(device);
    let cost = product(&mut lab, [size; 3], 1)?;
    let timed = time(device, &[lab.parts()], options)?;
    Ok(Ceiling {
        shape: format!("[{size}, {size}] x [{size}, {size}] bf16"),
        bytes: cost.bytes.unwrap_or_default(),
        flops: cost.flops.unwrap_or_default(),
        seconds: timed.seconds,
    })
}

/// Why a case has no time, where that is no failure.
pub(super) fn refused(error: &BenchError) -> Option<Status> {
    match error {
        BenchError::Op(OpError::Unsupported { .. } | OpError::Device(DeviceError::Unsupported { .. }))
        | BenchError::Device(DeviceError::Unsupported { .. })
        | BenchError::Subject(seam_algebra::laws::SubjectError::NotApplicable { .. }) => Some(Status::Missing),
        BenchError::Op(OpError::Device(DeviceError::OutOfMemory { .. } | DeviceError::TooLarge { .. }))
        | BenchError::Op(OpError::Shape { op: "tensor", .. })
        | BenchError::Device(DeviceError::OutOfMemory { .. } | DeviceError::TooLarge { .. }) => Some(Status::TooLarge),
        _ => None,
    }
}

fn row(
    device: &Arc<dyn Device>,
    case: &KernelCase,
    options: &Options,
    roofline: &Roofline,
    verifier: &mut Verifier,
) -> KernelRow {
    let mut row = KernelRow {
        name: case.name(),
        group: case.group.clone(),
        shape: case.shape.clone(),
        kernels: Vec::new(),
        status: Status::Timed,
        reason: String::new(),
        checks: Vec::new(),
        seconds: None,
        device_time: false,
        samples: 0,
        runs: 0,
        sets: 0,
        cached: false,
        bytes: 0,
        flops: 0,
        achieved: None,
    };
    if let Err(error) = fill(device, case, options, roofline, verifier, &mut row) {
        (row.status, row.reason) = (refused(&error).unwrap_or(Status::Failed), error.to_string());
    }
    row
}

fn fill(
    device: &Arc<dyn Device>,
    case: &KernelCase,
    options: &Options,
    roofline: &Roofline,
    verifier: &mut Verifier,
    row: &mut KernelRow,
) -> Result<(), BenchError> {
    let build = |seed: u64| -> Result<(Parts, Cost), BenchError> {
        let mut lab = Lab::new(device);
        let cost = (case.build)(&mut lab, seed)?;
        Ok((lab.parts(), cost))
    };
    row.checks = verifier.small(case)?;
    let (first, cost) = build(1)?;
    let kernels: BTreeSet<&'static str> = first.commands.iter().flat_map(kernels).collect();
    row.kernels = kernels.into_iter().collect();
    (row.bytes, row.flops) = (cost.bytes.unwrap_or_default(), cost.flops.unwrap_or_default());
    row.checks.extend(overwrites(device, &first)?);
    if let Some(failed) = row.checks.iter().find(|check| !check.passed) {
        row.status = Status::Wrong;
        row.reason = format!("{}: {:.1e}, at most {:.1e}", failed.name, failed.error, failed.bound);
        return Ok(());
    }
    let wanted = match options.scale {
        Scale::Small => 1,
        Scale::Real => (2 * CACHE).div_ceil(row.bytes.max(1)).clamp(1, MOST_SETS),
    };
    let mut sets = vec![first];
    for set in 1..wanted {
        match build(1 + 16 * set) {
            Ok((parts, _)) => sets.push(parts),
            // Fewer sets than wanted; the report says whether they fit a cache.
            Err(error) if refused(&error) == Some(Status::TooLarge) => break,
            Err(error) => return Err(error),
        }
    }
    row.sets = sets.len();
    row.cached = row.bytes.saturating_mul(sets.len() as u64) < CACHE;
    let timed = time(device, &sets, options)?;
    (row.samples, row.runs, row.device_time) = (timed.samples, timed.runs, timed.device);
    row.achieved = roofline.achieved(row.bytes, row.flops, timed.seconds.median);
    row.seconds = Some(timed.seconds);
    Ok(())
}

/// Times of one run.
struct Timed {
    seconds: Spread,
    samples: usize,
    runs: usize,
    device: bool,
}

/// Times lists of as many runs as make one long enough, over the sets in turn. What a run changes in place is not put
/// back within a list.
fn time(device: &Arc<dyn Device>, sets: &[Parts], options: &Options) -> Result<Timed, BenchError> {
    let record = |runs: usize| -> Result<CommandList, BenchError> {
        let commands = sets.iter().cycle().take(runs).flat_map(|parts| parts.commands.iter().cloned());
        list(device, commands.collect::<Vec<Command>>())
    };
    let resets = list(device, sets.iter().flat_map(|parts| parts.resets.iter().cloned().map(Command::Copy)))?;
    submit(device, &resets)?;
    let one = record(sets.len())?;
    // The first run may compile and touch memory.
    submit(device, &one)?;
    let (host, own) = submit(device, &one)?;
    let each = own.unwrap_or(host).as_secs_f64() / sets.len() as f64;
    let enough = if each > 0.0 { (LIST_TIME / each).ceil().min(MOST_RUNS as f64) as usize } else { MOST_RUNS };
    let runs = enough.max(1).next_multiple_of(sets.len());
    let timed = if runs == sets.len() { one } else { record(runs)? };
    submit(device, &resets)?;
    submit(device, &timed)?;
    let start = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < options.repeats.max(1) && (samples.len() < LEAST || start.elapsed() < options.budget) {
        samples.push(submit(device, &timed)?);
    }
    let own: Option<Vec<Duration>> = samples.iter().map(|(_, own)| *own).collect();
    let device_time = own.is_some();
    let times = own.unwrap_or_else(|| samples.iter().map(|(host, _)| *host).collect());
    let nothing = Spread { min: 0.0, lower: 0.0, median: 0.0, upper: 0.0, max: 0.0 };
    let seconds = Spread::of(&times).unwrap_or(nothing).over(runs);
    Ok(Timed { seconds, samples: samples.len(), runs, device: device_time })
}

/// The time of a list as the host sees it, and as the device measures it.
fn submit(device: &Arc<dyn Device>, list: &CommandList) -> Result<(Duration, Option<Duration>), BenchError> {
    let start = Instant::now();
    let ticket = device.submit(list, Lane::Compute, &[])?;
    device.wait(ticket)?;
    Ok((start.elapsed(), device.elapsed(ticket)))
}
