//! A small test of a device: a matrix product, and a small model where its fixture is found.

use std::sync::Arc;

use anyhow::{Result, bail};
use seam_conformance::check_path;
use seam_device::{BufferUse, DType, Device, Gemm, Lane};
use seam_engine::EngineOptions;

use crate::locate;

/// The fixture model: the smallest with goldens.
const FIXTURE: &str = "qwen3_5_dense";

/// Sizes of the product `[M, K]·[N, K]ᵀ`: no multiples of a tile.
const M: u32 = 17;
const N: u32 = 23;
const K: u32 = 36;

/// Tests a device; says what was tested.
///
/// # Errors
/// What does not work.
pub(super) fn run(device: &Arc<dyn Device>) -> Result<String> {
    product(&**device)?;
    let Some(fixture) = locate::fixture(FIXTURE, "golden.safetensors") else {
        return Ok("a matrix product is right (no fixture found for more)".to_owned());
    };
    let reports = check_path(device, &fixture, &EngineOptions::default())?;
    let checks = || reports.iter().flat_map(|r| &r.checks);
    match checks().find(|c| !c.passed()) {
        Some(c) => bail!("{FIXTURE}, {}: error {:.1e}, bound {:.1e}", c.name, c.error, c.bound),
        None => Ok(format!("a matrix product is right, {} goldens of the model {FIXTURE} match", checks().count())),
    }
}

/// A product of small integers, which f32 sums exactly in any order.
fn product(device: &dyn Device) -> Result<()> {
    let value = |i: u32| f32::from(u16::try_from(i % 7).unwrap_or_default()) - 3.0;
    let a: Vec<f32> = (0..M * K).map(|i| value(i * 5 + i / K)).collect();
    let w: Vec<f32> = (0..N * K).map(|i| value(i * 3 + i / K)).collect();
    let buffer = |label: &str, values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let buffer = device.alloc(label, bytes.len() as u64, BufferUse::Storage)?;
        device.write(&buffer.all(), &bytes)?;
        Ok::<_, seam_device::DeviceError>(buffer)
    };
    let (a_buffer, w_buffer) = (buffer("a", &a)?, buffer("w", &w)?);
    let c_buffer = buffer("c", &vec![f32::NAN; (M * N) as usize])?;
    let mut recorder = device.recorder();
    recorder.gemm(Gemm {
        m: M,
        n: N,
        k: K,
        lda: K,
        ldc: N,
        c_column: 0,
        weight: DType::F32,
        accumulate: false,
        a: a_buffer.all(),
        w: w_buffer.all(),
        c: c_buffer.all(),
        scales: None,
        rows: None,
    })?;
    let list = recorder.finish()?;
    let ticket = device.submit(&list, Lane::Compute, &[])?;
    let bytes = device.read(&c_buffer.all(), &[ticket])?.wait()?;
    let found: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let dot = |(a, w): (&[f32], &[f32])| a.iter().zip(w).map(|(a, w)| a * w).sum::<f32>();
    let rows = a.chunks(K as usize).flat_map(|a| w.chunks(K as usize).map(move |w| (a, w)));
    let expected: Vec<f32> = rows.map(dot).collect();
    if found != expected {
        let at = found.iter().zip(&expected).position(|(f, e)| f != e).unwrap_or(found.len());
        bail!("a matrix product is wrong: element {at} is {:?}, not {:?}", found.get(at), expected.get(at));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_passes() {
        let said = run(&crate::device::cpu()).unwrap();
        assert!(said.contains("goldens of the model"), "{said}");
    }
}
