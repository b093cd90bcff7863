//! Copies within the device: what its memory can do at most.

use std::sync::Arc;

use seam_conformance::Check;
use seam_conformance::tolerance::EXACT;
use seam_device::Device;

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{output, wide};
use crate::registry::Scale;

/// Words of a buffer, and copies in one list. Real buffers are larger than any cache, and there are so many copies that
/// the launch of the list does not count: lists without kernels have no device time on some devices.
fn sizes(scale: Scale) -> (u32, u32) {
    match scale {
        Scale::Small => (1 << 20, 4),
        Scale::Real => (64 << 20, 16),
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let (words, times) = sizes(scale);
    format!("{} MiB x {times}", words >> 18)
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let (words, times) = sizes(scale);
    let mut lab = Lab::new(device);
    let values = Random::new(1).signed(words);
    let src = lab.slab("source", &values)?;
    let dst = lab.slab("target", &[0.0].repeat(words as usize))?;
    lab.written(&dst, 0, words)?;
    for _ in 0..times {
        lab.copy(src.all(), dst.all());
    }
    // Read and written.
    let cost = Cost { bytes: Some(2 * 4 * u64::from(words) * u64::from(times)), ..Cost::default() };
    lab.finish(name, cost, move |outputs| Ok(vec![Check::compare("target", output(outputs, 0), &wide(&values), EXACT)]))
}
