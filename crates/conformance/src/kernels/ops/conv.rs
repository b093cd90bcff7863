//! The causal convolution and the state that it leaves.

use seam_ops::{ConvSilu, ConvTail, Operation, PassBuilder, RunSpec, SlabId, Source, Tensor};

use super::{Case, Checks, OnDevice};
use crate::kernels::measure::values;
use crate::report::Check;
use crate::tolerance::{CONV, EXACT};

/// Word of the private slab at which the state lies before and after: it is overwritten, as in decoding.
const PRIVATE: u32 = 3;
/// Word of the shared slab at which the state of an entry lies.
const SHARED: u32 = 7;

/// `y = silu(conv(x))`, `y_bias = silu(conv(x) + bias)` and the state after it, with the state before it all zeros (fresh), or in the private slab and
/// once more in a shared slab (continued).
pub(super) fn conv(on: &OnDevice<'_>, case: &Case<'_>, continued: bool) -> Checks {
    case.only(&["x", "w", "bias", "state_in", "state_out", "y", "y_bias"])?;
    let [channels, taps] = case.shape("w")?;
    let history = taps.checked_sub(1).filter(|&n| n > 0);
    let history = history.ok_or_else(|| case.golden.not_understood(format!("{} has no history", case.name)))?;
    // Goldens keep `[C, k−1]`, slabs `[k−1, C]`; both oldest first.
    let before = case.singles("state_in", &[channels, history])?;
    let tail: Vec<f32> = (0..history * channels).map(|i| before[i % channels * history + i / channels]).collect();
    let from = |slab: SlabId, word: u32| -> Vec<Source> {
        (0..history).map(|i| Source::Words(slab, word + (i * channels) as u32)).collect()
    };
    let mut checks = Vec::new();
    if continued {
        checks.extend(one(on, case, "", &from(SlabId::Private(0), PRIVATE), &tail)?);
        checks.extend(one(on, case, " (from an entry)", &from(SlabId::Shared(0), SHARED), &tail)?);
    } else {
        checks.extend(one(on, case, "", &vec![Source::Zero; history], &tail)?);
    }
    Ok(checks)
}

fn one(on: &OnDevice<'_>, case: &Case<'_>, how: &str, history: &[Source], tail: &[f32]) -> Checks {
    let shape @ [count, channels] = case.shape("x")?;
    let (c, kernel) = (case.narrow(channels)?, case.narrow(history.len() + 1)?);
    let mut pass = PassBuilder::new(kernel, 0, 1.0);
    pass.run(&RunSpec { tokens: &vec![0; count], pos: 0, origin: 0, kv: &[], spans: (0, 0), history })?;
    let inputs = history.iter().copied().chain((0..count as u32).map(Source::Row));
    let sources: Vec<Source> = inputs.skip(count).collect();
    pass.tail(0, PRIVATE, &sources)?;
    let pass = pass.finish()?;

    let x = on.tensor(&pass, "x", c, &case.singles("x", &shape)?)?;
    let taps = case.singles("w", &[channels, history.len() + 1])?;
    let biases = case.singles("bias", &[channels])?;
    let with_bias: Vec<f32> =
        taps.chunks_exact(history.len() + 1).zip(&biases).flat_map(|(taps, bias)| [taps, &[*bias]].concat()).collect();
    let weight = Tensor::constant(&**on.device, "w", c, kernel, &taps)?;
    let weight_bias = Tensor::constant(&**on.device, "w and bias", c, kernel + 1, &with_bias)?;
    let [out, out_bias] = [on.result(&pass, "y", c)?, on.result(&pass, "y_bias", c)?];
    let filled = |word: u32| [vec![f32::NAN; word as usize], tail.to_vec()].concat();
    let private = on.slab("states", PRIVATE as usize + tail.len(), &filled(PRIVATE))?;
    let shared = on.slab("operators", SHARED as usize + tail.len(), &filled(SHARED))?;
    let empty = on.slab("no slab", 1, &[])?;
    // A launch's first shared slab is the only one there is.
    let slabs = || [private.all(), shared.all(), empty.all(), empty.all()];
    on.run(&pass, &|recorder, tables| {
        for (i, launch) in pass.shape.conv.iter().enumerate() {
            let launch = (i as u32, launch.rows);
            for (weight, bias, out) in [(&weight, false, &out), (&weight_bias, true, &out_bias)] {
                ConvSilu { tables, x: &x, weight, bias, out, launch, slabs: slabs() }
                    .record(recorder, on.device.caps())?;
            }
        }
        for (i, launch) in pass.shape.tails.iter().enumerate() {
            let launch = (i as u32, launch.tails);
            ConvTail { tables, x: &x, kernel, launch, slabs: slabs() }.record(recorder, on.device.caps())?;
        }
        Ok(())
    })?;
    let after = on.words(&private, PRIVATE as usize, tail.len())?;
    let len = history.len();
    let after: Vec<f64> = (0..len * channels).map(|i| after[i % len * channels + i / len]).collect();
    let check = |tensor: &str, found: &[f64], shape: &[usize], tolerance| -> Result<Check, _> {
        let name = format!("{}{how}", case.tensor(tensor));
        case.floats(tensor, shape).map(|reference| values(&name, found, &reference, tolerance))
    };
    Ok(vec![
        check("y", &on.read(&out, count)?, &shape, CONV)?,
        check("y_bias", &on.read(&out_bias, count)?, &shape, CONV)?,
        check("state_out", &after, &[channels, len], EXACT)?,
    ])
}
