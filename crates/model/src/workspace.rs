//! Activations of a pass, allocated once.

use seam_device::{Buffer, BufferRange, BufferUse, Device};
use seam_ops::{Choice, OpError, PART_ROWS, Recurrence, Tensor, most_chunks, splits_keys, takes_tiles, tile_words};

use crate::layers::ExpertWork;
use crate::spec::StackSpec;

/// Activations of the linear layers.
pub struct LinearWork {
    /// Raw q, k and v `[rows, C]`; the memory of `conv` where rows need no second place.
    pub qkv: Tensor,
    /// What the chain reads `[rows, C]`: after convolution and norm.
    pub conv: Tensor,
    /// Output gate `[rows, HV·V]`; one element a row where the stack has none, as for the next three.
    pub z: Tensor,
    /// First raw gates.
    pub a: Tensor,
    /// Second raw gates.
    pub b: Tensor,
    /// Between the two narrow matrices of a gate.
    pub low: Tensor,
    /// g, then beta, as the recurrence reads them.
    pub gates: Tensor,
    /// Output of the recurrence `[rows, HV·V]`.
    pub o: Tensor,
    /// After norm and gate `[rows, HV·V]`.
    pub y: Tensor,
    /// What tiles need no state for, where the device walks chains in tiles.
    pub tiles: Option<BufferRange>,
}

/// Activations of the dense MLPs.
pub struct MlpWork {
    /// `[rows, intermediate]`.
    pub gate: Tensor,
    /// `[rows, intermediate]`.
    pub up: Tensor,
}

/// Activations of the attention layers.
pub struct AttentionWork {
    /// Raw queries `[rows, heads·head]`, or query and gate per head `[rows, heads·2·head]`.
    pub qg: Tensor,
    /// Normalised queries `[rows, heads·head]`.
    pub q: Tensor,
    /// `[rows, kv_heads·head]`.
    pub k: Tensor,
    /// `[rows, kv_heads·head]`.
    pub v: Tensor,
    /// Running maximum and sum `[rows, heads·2]`.
    pub stats: Tensor,
    /// `[rows, heads·head]`.
    pub out: Tensor,
    /// Outputs and statistics of parts of the keys, `[seam_ops::PART_ROWS, …]`, on devices that split them.
    pub parts: Option<(Tensor, Tensor)>,
}

/// All activations of a pass of at most `rows` rows, of which `logits` want logits.
pub struct Workspace {
    /// Residual stream `[rows, hidden]`.
    pub h: Tensor,
    /// Normalised input of a mixer or MLP `[rows, hidden]`.
    pub x: Tensor,
    /// A mixer's result before it joins the residual stream `[rows, hidden]`, where it is scaled or normalised first.
    pub branch: Option<Tensor>,
    /// Dense MLPs.
    pub mlp: Option<MlpWork>,
    /// Linear layers.
    pub linear: Option<LinearWork>,
    /// Attention layers.
    pub attention: Option<AttentionWork>,
    /// Mixture-of-experts layers.
    pub experts: Option<ExpertWork>,
    /// Rows that want logits `[logits, hidden]`.
    pub last: Tensor,
    /// Their final norm `[logits, hidden]`.
    pub last_norm: Tensor,
    /// `[logits, vocab]`.
    pub logits: Tensor,
    /// Where the host reads logits.
    pub readback: Buffer,
    /// How the token of each such row is chosen: a `seam_ops::Choice` a row.
    pub choices: Buffer,
    /// Tokens and their log-probabilities `[logits, 2]`.
    pub chosen: Tensor,
    /// Where the host reads them.
    pub chosen_readback: Buffer,
}

/// Scratch memory of the tiles of a pass of at most `rows` rows, if there are to be any.
fn tiles(device: &dyn Device, r: &Recurrence, rows: u32) -> Result<Option<BufferRange>, OpError> {
    let chunks = most_chunks(rows);
    if !takes_tiles(device.caps(), r, rows, chunks) {
        return Ok(None);
    }
    Ok(Some(device.alloc("tiles", tile_words(r, chunks) * 4, BufferUse::Storage)?.all()))
}

impl Workspace {
    /// Rows and logits that a device with binding limit `limit` can hold, at most what is asked for.
    #[must_use]
    pub fn fit(spec: &StackSpec, limit: u64, rows: u32, logits: u32) -> (u32, u32) {
        let most = |width: u32| u32::try_from(limit / (u64::from(width) * 4)).unwrap_or(u32::MAX);
        (rows.min(most(spec.widest())), logits.min(most(spec.vocab.max(spec.hidden))))
    }

    /// Allocates it.
    ///
    /// # Errors
    /// [`OpError`] if a single row passes the binding limit, or what the device says.
    pub fn new(device: &dyn Device, spec: &StackSpec, rows: u32, logits: u32) -> Result<Self, OpError> {
        let rows_of = |label: &str, cols: u32| Tensor::new(device, label, rows, cols);
        let plan = &spec.work;
        let linear = spec.linear.map(|l| -> Result<LinearWork, OpError> {
            let (r, value) = (&l.recurrence, l.recurrence.out());
            let conv = rows_of("rows of a chain", r.row())?;
            let qkv = if l.kernel > 1 || plan.raw { rows_of("qkv", r.row())? } else { conv.clone() };
            Ok(LinearWork {
                qkv,
                conv,
                z: rows_of("z", plan.z.max(1))?,
                a: rows_of("a", plan.a.max(1))?,
                b: rows_of("b", plan.b.max(1))?,
                low: rows_of("narrow gates", plan.low.max(1))?,
                gates: rows_of("gates", r.gate_row())?,
                o: rows_of("o", value)?,
                y: rows_of("y", value)?,
                tiles: tiles(device, &l.recurrence, rows)?,
            })
        });
        let heads = plan.heads;
        let limit = device.caps().max_binding;
        let attention = spec.kv.map(|kv| -> Result<AttentionWork, OpError> {
            let width = heads * kv.head;
            Ok(AttentionWork {
                qg: rows_of("raw q", plan.queries.max(1))?,
                q: rows_of("q", width)?,
                k: rows_of("k", kv.width())?,
                v: rows_of("v", kv.width())?,
                stats: rows_of("softmax statistics", 2 * heads)?,
                out: rows_of("attention", width.max(kv.width()))?,
                // A device that binds too little for them walks all keys of a row in one block.
                parts: (splits_keys(device.caps(), kv.dtype) && u64::from(PART_ROWS) * u64::from(width) * 4 <= limit)
                    .then(|| -> Result<_, OpError> {
                        let part = |label: &str, cols: u32| Tensor::new(device, label, PART_ROWS, cols);
                        Ok((part("attention of parts", width)?, part("statistics of parts", 2 * heads)?))
                    })
                    .transpose()?,
            })
        });
        let bytes = u64::from(logits) * u64::from(spec.vocab) * 4;
        Ok(Self {
            h: rows_of("hidden", spec.hidden)?,
            x: rows_of("normalised", spec.hidden)?,
            branch: (plan.branch > 0).then(|| rows_of("branch", plan.branch)).transpose()?,
            mlp: (plan.mlp > 0)
                .then(|| -> Result<_, OpError> {
                    Ok(MlpWork { gate: rows_of("gate", plan.mlp)?, up: rows_of("up", plan.mlp)? })
                })
                .transpose()?,
            linear: linear.transpose()?,
            attention: attention.transpose()?,
            experts: spec.experts.map(|plan| ExpertWork::new(device, &plan, rows)).transpose()?,
            last: Tensor::new(device, "last", logits, spec.hidden)?,
            last_norm: Tensor::new(device, "last normalised", logits, spec.hidden)?,
            logits: Tensor::new(device, "logits", logits, spec.vocab)?,
            readback: device.alloc("logits for the host", bytes, BufferUse::Readback)?,
            choices: device.alloc("choices", u64::from(logits) * size_of::<Choice>() as u64, BufferUse::Storage)?,
            chosen: Tensor::new(device, "chosen tokens", logits, 2)?,
            chosen_readback: device.alloc("tokens for the host", u64::from(logits) * 8, BufferUse::Readback)?,
        })
    }
}
