//! What all linear layers share: the causal convolution with its tails, and the chains.

use seam_device::Recorder;
use seam_ops::{Chain, ConvSilu, ConvTail, OpError, Operation, Tensor, TileChain, TilePrepare, takes_tiles};

use super::{PassContext, missing};
use crate::spec::LinearSpec;
use crate::workspace::LinearWork;

/// The activations of the linear layers.
///
/// # Errors
/// [`OpError::Shape`] if the workspace was made for another stack.
pub(super) fn work<'a>(pass: &PassContext<'a>) -> Result<&'a LinearWork, OpError> {
    pass.work.linear.as_ref().ok_or_else(|| missing("linear"))
}

/// Where rows go that are about to be convolved: the raw ones, or, without a convolution, those the chain reads.
#[expect(dead_code, reason = "for layers without a convolution")]
pub(super) fn raw<'a>(spec: &LinearSpec, work: &'a LinearWork) -> &'a Tensor {
    if spec.kernel > 1 { &work.qkv } else { &work.conv }
}

/// `conv ← silu(conv1d(qkv))` from the raw rows before each run, then the tails. `weight` is `[channels, k]`, with a bias
/// `[channels, k + 1]`; `layer` counts the linear layers.
///
/// # Errors
/// As the operations.
pub(super) fn convolve(
    recorder: &mut dyn Recorder,
    pass: &PassContext<'_>,
    spec: &LinearSpec,
    layer: usize,
    (weight, bias): (&Tensor, bool),
) -> Result<(), OpError> {
    let (caps, tables, shape, work) = (pass.caps, pass.tables, pass.shape, work(pass)?);
    let [x, out] = [&work.qkv, &work.conv].map(|t| t.first(shape.rows));
    for (i, launch) in shape.conv.iter().enumerate() {
        let slabs = pass.memory.linear_slabs(layer, launch.private, &launch.shared);
        let launch = (i as u32, launch.rows);
        ConvSilu { tables, x: &x, weight, bias, out: &out, launch, slabs }.record(recorder, caps)?;
    }
    for (i, launch) in shape.tails.iter().enumerate() {
        let slabs = pass.memory.linear_slabs(layer, Some(launch.private), &launch.shared);
        let launch = (i as u32, launch.tails);
        ConvTail { tables, x: &x, kernel: spec.kernel, launch, slabs }.record(recorder, caps)?;
    }
    Ok(())
}

/// Walks the chains of the pass over the rows in `conv`, in tiles where the device takes them; outputs go to `o`. `gates`
/// are `[rows, …]`, or one row of a fixed decay; `layer` counts the linear layers.
///
/// # Errors
/// As the operations.
pub(super) fn walk(
    recorder: &mut dyn Recorder,
    pass: &PassContext<'_>,
    spec: &LinearSpec,
    layer: usize,
    gates: &Tensor,
) -> Result<(), OpError> {
    let (caps, tables, shape, work) = (pass.caps, pass.tables, pass.shape, work(pass)?);
    let recurrence = spec.recurrence;
    let [qkv, out] = [&work.conv, &work.o].map(|t| t.first(shape.rows));
    let (qkv, out) = (&qkv, &out);
    let tiles = work.tiles.as_ref().filter(|_| takes_tiles(caps, &recurrence, shape.rows, shape.chunks));
    if let Some(work) = tiles {
        TilePrepare { tables, recurrence, qkv, gates, work, chunks: shape.chunks }.record(recorder, caps)?;
    }
    for (i, launch) in shape.chains.iter().enumerate() {
        let slabs = pass.memory.linear_slabs(layer, Some(launch.private), &launch.shared);
        let launch = (i as u32, launch.chains, launch.operator);
        match tiles {
            Some(work) => TileChain { tables, recurrence, qkv, work, out, launch, slabs }.record(recorder, caps)?,
            None => Chain { tables, recurrence, qkv, gates, out, launch, slabs }.record(recorder, caps)?,
        }
    }
    Ok(())
}
