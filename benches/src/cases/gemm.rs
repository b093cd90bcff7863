//! Products with bf16 weights.

use std::sync::Arc;

use half::bf16;
use seam_conformance::tolerance::PRODUCT;
use seam_device::Device;
use seam_kernels::tables::ROWS;
use seam_ops::Linear;

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::reference::{compare, output, sampled, wide};
use crate::registry::Scale;

/// `[m, k]` by `[n, k]`.
struct Sizes {
    m: u32,
    n: u32,
    k: u32,
}

fn sizes(scale: Scale, decode: bool) -> Sizes {
    let (m, n, k) = match scale {
        Scale::Small => (60, 448, 256),
        Scale::Real => (512, 12288, 4096),
    };
    Sizes { m: if decode { 1 } else { m }, n, k }
}

pub(crate) fn prefill_shape(scale: Scale) -> String {
    words(&sizes(scale, false))
}

pub(crate) fn decode_shape(scale: Scale) -> String {
    words(&sizes(scale, true))
}

fn words(Sizes { m, n, k }: &Sizes) -> String {
    format!("[{m}, {k}] x [{n}, {k}] bf16")
}

pub(crate) fn prefill(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    prepare(name, device, scale, sizes(scale, false))
}

pub(crate) fn decode(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    prepare(name, device, scale, sizes(scale, true))
}

fn prepare(
    name: &'static str,
    device: &Arc<dyn Device>,
    scale: Scale,
    Sizes { m, n, k }: Sizes,
) -> Result<Case, BenchError> {
    let mut random = Random::new(2);
    let mut lab = Lab::new(device);
    let pass = plain_pass(m)?;
    let tables = lab.tables(&pass)?;
    let a = random.signed(m * k);
    let w: Vec<bf16> = (0..n * k).map(|_| bf16::from_f32(random.real(-1.0, 1.0))).collect();
    let x = lab.input("A", pass.shape.rows, k, &a)?;
    let weight = lab.weight("W", n, k, &w)?;
    let out = lab.output("C", pass.shape.rows, m, n)?;
    lab.record(&Linear { rows: (&tables, ROWS), x: &x, weight: &weight, out: &out, accumulate: false })?;
    let (m64, n64, k64) = (u64::from(m), u64::from(n), u64::from(k));
    let cost = Cost {
        bytes: Some(4 * m64 * k64 + 2 * n64 * k64 + 4 * m64 * n64),
        flops: Some(2 * m64 * n64 * k64),
        tokens: None,
    };
    let product = lab.tolerance(PRODUCT);
    lab.finish(name, cost, move |outputs| {
        let rows = sampled(scale, m);
        Ok(vec![compare("C", output(outputs, 0), (n, n), &rows, product, |r| {
            let a = wide(&a[r * k as usize..][..k as usize]);
            w.chunks_exact(k as usize).map(|w| a.iter().zip(w).map(|(a, w)| a * w.to_f64()).sum()).collect()
        })])
    })
}
