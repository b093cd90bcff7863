//! Checked mode: looking through the residual stream and the gates of a pass.

use std::sync::Arc;

use seam_conformance::Check;
use seam_conformance::tolerance::EXACT;
use seam_device::Device;
use seam_kernels::scan::CLEAN;
use seam_kernels::tables::ROWS;
use seam_ops::{Scan, Test};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::{Lab, plain_pass};
use crate::random::Random;
use crate::reference::output;
use crate::registry::Scale;

/// Rows, columns of the residual stream, and value heads.
fn sizes(scale: Scale) -> [u32; 3] {
    match scale {
        Scale::Small => [60, 256, 4],
        Scale::Real => [512, 4096, 32],
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let [rows, hidden, heads] = sizes(scale);
    format!("{rows} rows of {hidden} and {heads}")
}

/// The flag as a float, and back.
fn flag(at: u32) -> f32 {
    f32::from_bits(at)
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let [rows, hidden, heads] = sizes(scale);
    let mut random = Random::new(15);
    let mut lab = Lab::new(device);
    let pass = plain_pass(rows)?;
    let tables = lab.tables(&pass)?;
    let capacity = pass.shape.rows;
    let mut h = random.signed(rows * hidden);
    let mut gates = random.reals(rows * 2 * heads, -8.0, -1.0);
    // The last value of each, so that what is found is known and everything has been looked at.
    let bad = rows * hidden - 1;
    h[bad as usize] = f32::NAN;
    gates[((rows - 1) * 2 * heads + heads - 1) as usize] = 1e-6;
    let flags = lab.in_place("flags", 1, 2, &[flag(CLEAN), flag(CLEAN)])?;
    let range = flags.range();
    let x = lab.input("h", capacity, hidden, &h)?;
    let rows_of = (&tables, ROWS);
    lab.record(&Scan { rows: rows_of, x: &x, part: (0, hidden), test: Test::NonFinite, flag: (&range, 0) })?;
    let x = lab.input("gates", capacity, 2 * heads, &gates)?;
    lab.record(&Scan { rows: rows_of, x: &x, part: (0, heads), test: Test::PositiveLogGate, flag: (&range, 1) })?;
    let cost = Cost { bytes: Some(4 * u64::from(rows) * u64::from(hidden + heads)), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let wanted = [bad, rows * heads - 1].map(|at| f64::from(flag(at)));
        Ok(vec![Check::compare("flags", output(outputs, 0), &wanted, EXACT)])
    })
}
