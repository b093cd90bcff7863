//! Gates and activations of a layer.

use std::sync::Arc;

use seam_conformance::tolerance::{ACTIVATION, BLEND, GATE_BETA, GATE_DECAY};
use seam_device::Device;
use seam_kernels::tables::ROWS;
use seam_ops::{Blend, GdnGate, SigmoidGate, SwiGlu};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::reference::{compare, output, sampled, sigmoid, silu, wide};
use crate::registry::Scale;

/// Whether silu comes first, and the factors.
const BLENDS: [(bool, f32, f32); 2] = [(false, 0.22, 1.0), (true, 1.0, -0.5)];

struct Sizes {
    rows: u32,
    /// Value heads.
    heads: u32,
    /// Query heads and their size.
    query: (u32, u32),
    /// Columns between the two halves of the MLP.
    intermediate: u32,
}

fn sizes(scale: Scale) -> Sizes {
    match scale {
        Scale::Small => Sizes { rows: 60, heads: 4, query: (4, 64), intermediate: 448 },
        Scale::Real => Sizes { rows: 512, heads: 32, query: (16, 256), intermediate: 12288 },
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let Sizes { rows, heads, query, intermediate } = sizes(scale);
    format!("{rows} rows of {heads}, {} and {intermediate}", query.0 * query.1)
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let Sizes { rows, heads, query: (count, head), intermediate } = sizes(scale);
    let width = count * head;
    let mut random = Random::new(9);
    let mut lab = Lab::new(device);
    let pass = plain_pass(rows)?;
    let tables = lab.tables(&pass)?;
    let capacity = pass.shape.rows;
    let [a, b] = [(); 2].map(|()| random.reals(rows * heads, -8.0, 4.0));
    let [a_log, dt_bias] = [(); 2].map(|()| random.reals(heads, -4.0, 2.0));
    let (qg, attended) = (random.reals(rows * 2 * width, -8.0, 8.0), random.signed(rows * width));
    let (up, gate) = (random.signed(rows * intermediate), random.reals(rows * intermediate, -8.0, 8.0));

    let gates = lab.output("gates", capacity, rows, 2 * heads)?;
    lab.record(&GdnGate {
        tables: &tables,
        a: &lab.input("a", capacity, heads, &a)?,
        b: &lab.input("b", capacity, heads, &b)?,
        a_log: &lab.small("A_log", 1, heads, &a_log)?,
        dt_bias: &lab.small("dt_bias", 1, heads, &dt_bias)?,
        out: &gates,
    })?;
    let x = lab.in_place("attended", capacity, width, &attended)?;
    lab.record(&SigmoidGate { tables: &tables, qg: &lab.input("q and gate", capacity, 2 * width, &qg)?, x: &x, head })?;
    let x = lab.in_place("gate", capacity, intermediate, &gate)?;
    lab.record(&SwiGlu { tables: &tables, up: &lab.input("up", capacity, intermediate, &up)?, x: &x })?;

    let raw = lab.input("raw", capacity, intermediate, &gate)?;
    for (silu, a, b) in BLENDS {
        let y = lab.in_place("stream", capacity, intermediate, &up)?;
        lab.record(&Blend { rows: (&tables, ROWS), x: Some(&raw), y: &y, a, b, silu })?;
    }

    // Of `qg` only the gates are read.
    let elements = u64::from(rows) * u64::from(4 * heads + 3 * width + 9 * intermediate);
    let cost = Cost { bytes: Some(4 * elements), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let some = sampled(scale, rows);
        let of = |x: &[f32], cols: u32, r: usize| wide(&x[r * cols as usize..][..cols as usize]);
        let decay = |r: usize| -> Vec<f64> {
            let parameters = a_log.iter().zip(&dt_bias);
            let one = |(a, (a_log, bias)): (f64, (&f32, &f32))| {
                -f64::from(*a_log).exp() * (a + f64::from(*bias)).exp().ln_1p()
            };
            of(&a, heads, r).into_iter().zip(parameters).map(one).collect()
        };
        let beta = |r: usize| -> Vec<f64> { of(&b, heads, r).into_iter().map(sigmoid).collect() };
        let gated = |r: usize| -> Vec<f64> {
            let (x, qg) = (of(&attended, width, r), of(&qg, 2 * width, r));
            let gates = qg.chunks_exact(2 * head as usize).flat_map(|qg| &qg[head as usize..]);
            x.iter().zip(gates).map(|(x, gate)| x * sigmoid(*gate)).collect()
        };
        let swiglu = |r: usize| -> Vec<f64> {
            let (gate, up) = (of(&gate, intermediate, r), of(&up, intermediate, r));
            gate.into_iter().zip(up).map(|(gate, up)| silu(gate) * up).collect()
        };
        let blended = |(silu_first, a, b): (bool, f32, f32), r: usize| -> Vec<f64> {
            let (x, y) = (of(&gate, intermediate, r), of(&up, intermediate, r));
            let f = |x: f64| if silu_first { silu(x) } else { x };
            x.into_iter().zip(y).map(|(x, y)| f64::from(a) * f(x) + f64::from(b) * y).collect()
        };
        let found = output(outputs, 0);
        let half = |from: u32| -> Vec<f32> {
            let rows = found.chunks_exact(2 * heads as usize);
            rows.flat_map(|row| &row[from as usize..][..heads as usize]).copied().collect()
        };
        Ok(vec![
            compare("g", &half(0), (heads, 1), &some, GATE_DECAY, decay),
            compare("beta", &half(heads), (heads, 1), &some, GATE_BETA, beta),
            compare("sigmoid gate", output(outputs, 1), (width, 1), &some, ACTIVATION, gated),
            compare("swiglu", output(outputs, 2), (intermediate, 1), &some, ACTIVATION, swiglu),
            compare("blend", output(outputs, 3), (intermediate, 1), &some, BLEND, |r| blended(BLENDS[0], r)),
            compare("silu and blend", output(outputs, 4), (intermediate, 1), &some, BLEND, |r| blended(BLENDS[1], r)),
        ])
    })
}
