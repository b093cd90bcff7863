//! What is held before anything is timed.

use std::collections::HashMap;
use std::sync::Arc;

use seam_conformance::Check;
use seam_conformance::tolerance::DEVICES;
use seam_cpu::CpuDevice;
use seam_device::{BufferRange, Device, DeviceKind, Lane, Precision};

use super::report::{CheckReport, Status};
use super::run::refused;
use super::{KernelCase, kernel_cases};
use crate::error::BenchError;
use crate::lab::{Lab, Parts, floats, list};
use crate::registry::{BENCHES, Scale};

/// A number that no kernel makes: what no output may hold after a run.
const POISON: u32 = 0x7fc5_ea40;

/// Verdicts by bench and by group: many cases share one.
pub(super) struct Verifier {
    device: Arc<dyn Device>,
    cpu: Option<Arc<dyn Device>>,
    small: Vec<KernelCase>,
    benches: HashMap<&'static str, Vec<CheckReport>>,
    groups: HashMap<String, Vec<CheckReport>>,
}

impl Verifier {
    pub(super) fn new(device: &Arc<dyn Device>) -> Self {
        let other = device.caps().kind != DeviceKind::Cpu;
        let cpu = other.then(|| -> Arc<dyn Device> { CpuDevice::open(seam_cpu::Options::default()) });
        let (benches, groups) = (HashMap::new(), HashMap::new());
        Self { device: Arc::clone(device), cpu, small: kernel_cases(Scale::Small), benches, groups }
    }

    /// Checks of a case's bench and of its group, at the small scale.
    ///
    /// # Errors
    /// What preparing, running or a reference says.
    pub(super) fn small(&mut self, case: &KernelCase) -> Result<Vec<CheckReport>, BenchError> {
        if !self.benches.contains_key(case.bench) {
            self.benches.insert(case.bench, self.against_reference(case.bench)?);
        }
        if !self.groups.contains_key(&case.group) {
            self.groups.insert(case.group.clone(), self.against_cpu(&case.group)?);
        }
        let benches = self.benches.get(case.bench).into_iter().flatten();
        Ok(benches.chain(self.groups.get(&case.group).into_iter().flatten()).cloned().collect())
    }

    /// The bench of the registry against its f64 reference.
    fn against_reference(&self, bench: &'static str) -> Result<Vec<CheckReport>, BenchError> {
        let found = BENCHES.iter().find(|b| b.name == bench).ok_or(BenchError::Unknown(bench))?;
        let verdict = found.prepare(&self.device, Scale::Small)?.verify()?;
        let mut checks: Vec<CheckReport> =
            verdict.checks.iter().map(|check| CheckReport::of(&format!("{bench} by f64"), check)).collect();
        if checks.is_empty() {
            checks.push(CheckReport::condition(&format!("{bench}: nothing was compared"), 1));
        }
        Ok(checks)
    }

    /// The small cases of a group against the processor's twins; none on the processor.
    fn against_cpu(&self, group: &str) -> Result<Vec<CheckReport>, BenchError> {
        let Some(cpu) = &self.cpu else { return Ok(Vec::new()) };
        let mut checks = Vec::new();
        // Keys in bf16 are words of another kind than the twin's: the reference in f64 holds them.
        if group == "kv_write" && self.device.caps().precision == Precision::Bf16 {
            return Ok(checks);
        }
        let tolerance = DEVICES.in_precision(self.device.caps().precision);
        for case in self.small.iter().filter(|c| c.group == group) {
            let on = |device: &Arc<dyn Device>| outputs(device, &recorded(device, case, 1)?);
            // What no twin does is held against the reference alone.
            let reference = match on(cpu) {
                Err(error) if refused(&error) == Some(Status::Missing) => continue,
                other => other?,
            };
            let found = on(&self.device)?;
            for (i, (found, reference)) in found.iter().zip(&reference).enumerate() {
                let wide: Vec<f64> = reference.iter().map(|&x| f64::from(x)).collect();
                let check = Check::compare(&format!("output {i}"), found, &wide, tolerance);
                checks.push(CheckReport::of(&format!("{} by cpu", case.name()), &check));
            }
        }
        Ok(checks)
    }
}

/// What a case records with the inputs of a seed.
pub(super) fn recorded(device: &Arc<dyn Device>, case: &KernelCase, seed: u64) -> Result<Parts, BenchError> {
    let mut lab = Lab::new(device);
    (case.build)(&mut lab, seed)?;
    Ok(lab.parts())
}

/// Runs once over poisoned outputs and counts the words that are still there, and those that are no finite numbers.
pub(super) fn overwrites(device: &Arc<dyn Device>, parts: &Parts) -> Result<[CheckReport; 2], BenchError> {
    let (mut kept, mut bad) = (0, 0);
    poisoned_run(device, parts)?;
    for range in &parts.outputs {
        let words = read(device, range)?;
        kept += words.iter().filter(|x| x.to_bits() == POISON).count();
        bad += words.iter().filter(|x| !x.is_finite()).count();
    }
    Ok([
        CheckReport::condition("values that were not overwritten", kept),
        CheckReport::condition("values that are not finite", bad),
    ])
}

fn outputs(device: &Arc<dyn Device>, parts: &Parts) -> Result<Vec<Vec<f32>>, BenchError> {
    poisoned_run(device, parts)?;
    parts.outputs.iter().map(|range| read(device, range)).collect()
}

fn poisoned_run(device: &Arc<dyn Device>, parts: &Parts) -> Result<(), BenchError> {
    let longest = parts.outputs.iter().map(|range| range.len as usize / 4).max().unwrap_or_default();
    let poison = vec![POISON; longest];
    for range in &parts.outputs {
        device.write(range, bytemuck::cast_slice(&poison[..range.len as usize / 4]))?;
    }
    let resets = parts.resets.iter().cloned().map(seam_device::Command::Copy);
    let list = list(device, resets.chain(parts.commands.iter().cloned()))?;
    let ticket = device.submit(&list, Lane::Compute, &[])?;
    Ok(device.wait(ticket)?)
}

fn read(device: &Arc<dyn Device>, range: &BufferRange) -> Result<Vec<f32>, BenchError> {
    Ok(floats(&device.read(range, &[])?.wait()?))
}
