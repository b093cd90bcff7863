//! The causal convolution of two runs: one goes on from an older chunk, one from a cached entry.

use std::sync::Arc;

use seam_conformance::Check;
use seam_conformance::tolerance::{CONV, EXACT};
use seam_device::Device;
use seam_ops::{ConvSilu, ConvTail, PassBuilder, RunSpec, SlabId, Source};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{compare, output, sampled, silu, wide};
use crate::registry::Scale;

/// Taps.
const TAPS: u32 = 4;

/// Inputs that a run's first row sees from before.
const HISTORY: u32 = TAPS - 1;

/// Rows, half of them in each run, and channels.
fn sizes(scale: Scale) -> (u32, u32) {
    match scale {
        Scale::Small => (44, 512),
        Scale::Real => (512, 8192),
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let (rows, channels) = sizes(scale);
    format!("{rows} rows, {channels} channels, {TAPS} taps")
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let (rows, channels) = sizes(scale);
    let half = rows / 2;
    let mut random = Random::new(7);
    let [older, cached] = [(); 2].map(|()| random.signed(HISTORY * channels));
    let from = |slab: SlabId| -> Vec<Source> { (0..HISTORY).map(|i| Source::Words(slab, i * channels)).collect() };
    let mut pass = PassBuilder::new(TAPS, 0, 1.0);
    for (slab, rows) in [(SlabId::Private(0), half), (SlabId::Shared(0), rows - half)] {
        let (tokens, history) = (vec![0; rows as usize], from(slab));
        pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &history })?;
    }
    // The older tail stays, so that every run begins alike; the new one goes behind it.
    let new = HISTORY * channels;
    let last: Vec<Source> = (rows - HISTORY..rows).map(Source::Row).collect();
    pass.tail(0, new, &last)?;
    let pass = pass.finish()?;

    let mut lab = Lab::new(device);
    let tables = lab.tables(&pass)?;
    let inputs = random.signed(rows * channels);
    let taps = random.signed(channels * TAPS);
    let x = lab.input("x", pass.shape.rows, channels, &inputs)?;
    let weight = lab.small("w", channels, TAPS, &taps)?;
    let out = lab.output("y", pass.shape.rows, rows, channels)?;
    let private = lab.slab("states", &[older.clone(), older.clone()].concat())?;
    let shared = lab.slab("operators", &cached)?;
    lab.written(&private, new, HISTORY * channels)?;
    let none = lab.no_slab()?;
    let slabs = || [private.all(), shared.all(), none.clone(), none.clone()];
    for (i, launch) in pass.shape.conv.iter().enumerate() {
        let launch = (i as u32, launch.rows);
        lab.record(&ConvSilu {
            tables: &tables,
            x: &x,
            weight: &weight,
            bias: false,
            out: &out,
            launch,
            slabs: slabs(),
        })?;
    }
    for (i, launch) in pass.shape.tails.iter().enumerate() {
        let launch = (i as u32, launch.tails);
        lab.record(&ConvTail { tables: &tables, x: &x, kernel: TAPS, launch, slabs: slabs() })?;
    }
    let read_and_written = u64::from(2 * rows + TAPS + 4 * HISTORY) * u64::from(channels);
    let cost = Cost { bytes: Some(4 * read_and_written), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let c = channels as usize;
        // Each run's inputs with its history in front.
        let (first, second) = inputs.split_at(half as usize * c);
        let runs = [[&older, first].concat(), [&cached, second].concat()];
        let row = |r: usize| -> Vec<f64> {
            let (run, at) = if r < half as usize { (&runs[0], r) } else { (&runs[1], r - half as usize) };
            let sum = |channel: usize| -> f64 {
                (0..TAPS as usize)
                    .map(|i| f64::from(taps[channel * TAPS as usize + i]) * f64::from(run[(at + i) * c + channel]))
                    .sum()
            };
            (0..c).map(|channel| silu(sum(channel))).collect()
        };
        let tail = &inputs[(rows - HISTORY) as usize * c..];
        Ok(vec![
            compare("y", output(outputs, 0), (channels, 1), &sampled(scale, rows), CONV, row),
            Check::compare("tail", output(outputs, 1), &wide(tail), EXACT),
        ])
    })
}
