//! Chains of a recurrence in tiles of 64 tokens, on tensor cores.

use seam_device::{BufferRange, Caps, Command, Precision};
use seam_kernels::tile::{TILE_CHAIN, TILE_COLUMNS, TILE_KEY_SIZES, TILE_PREPARE, heads_of_block, words};

use crate::chain::check;
use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::pass::Form;
use crate::recurrence::{Decay, Recurrence, Update};
use crate::tensor::Tensor;

/// Words of what [`TilePrepare`] leaves for [`TileChain`], for a pass of at most `chunks` chunks.
#[must_use]
pub fn tile_words(r: &Recurrence, chunks: u32) -> u64 {
    let heads = (r.heads as usize, r.value_heads as usize);
    words(heads, r.key as usize, r.constants()[2], chunks as usize) as u64
}

/// Why a recurrence has no tile form, if so.
fn refusal(r: &Recurrence) -> Option<&'static str> {
    if !TILE_KEY_SIZES.contains(&r.key) {
        Some("its K")
    } else if !r.value.is_multiple_of(TILE_COLUMNS) {
        Some("a V that is no multiple of 64")
    } else if r.decay == Decay::Diagonal {
        Some("a decay a key dim")
    } else if r.update == Update::RankOne {
        Some("a rank-one update")
    } else if r.update == Update::Delta && r.rotation.is_some() {
        Some("dense operators that move")
    } else {
        None
    }
}

/// Whether a device should walk the chains of a pass in tiles: it has the kernels, rounds operands to bf16 anyway, the
/// recurrence has the form, and chunks are long enough (4 rows on average) to pay for what a tile costs; a step of decoding
/// is not.
#[must_use]
pub fn takes_tiles(caps: &Caps, r: &Recurrence, rows: u32, chunks: u32) -> bool {
    caps.precision == Precision::Bf16
        && [&TILE_PREPARE, &TILE_CHAIN].iter().all(|k| caps.kernels.contains(k.id))
        && refusal(r).is_none()
        && chunks > 0
        && chunks <= most_chunks(rows)
}

/// Most chunks of a pass of `rows` rows that is walked in tiles.
#[must_use]
pub fn most_chunks(rows: u32) -> u32 {
    rows / 4
}

fn check_form(op: &'static str, r: &Recurrence, chunks: u32, work: &BufferRange) -> Result<(), OpError> {
    r.check(op)?;
    if let Some(why) = refusal(r) {
        return Err(OpError::Shape { op, what: format!("{r:?} has no tile form because of {why}") });
    }
    let bytes = tile_words(r, chunks) * 4;
    ensure(op, work.len >= bytes, || format!("{} bytes of scratch memory, {bytes} needed", work.len))
}

/// What tiles need no state for.
#[derive(Debug)]
pub struct TilePrepare<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// The recurrence.
    pub recurrence: Recurrence,
    /// `[rows, 2·H·K + HV·V]`: q (scaled), k and v.
    pub qkv: &'a Tensor,
    /// `[rows, …]`: g, then β, as [`Recurrence::gate_row`] says; one row for a fixed decay.
    pub gates: &'a Tensor,
    /// Scratch memory of [`tile_words`].
    pub work: &'a BufferRange,
    /// An upper bound of the chunks of the pass.
    pub chunks: u32,
}

impl Operation for TilePrepare<'_> {
    fn check(&self) -> Result<(), OpError> {
        check_form("tile_prepare", &self.recurrence, self.chunks, self.work)?;
        check("tile_prepare", &self.recurrence, self.qkv, self.gates)
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let r = &self.recurrence;
        if self.chunks == 0 {
            return Ok(Vec::new());
        }
        let bindings = vec![self.tables.clone(), self.qkv.range(), self.gates.range(), self.work.clone()];
        let constants = r.constants()[..3].to_vec();
        let grid = [self.chunks, r.value_heads / heads_of_block(r.heads, r.value_heads), 1];
        Ok(vec![launch("tile_prepare", caps, TILE_PREPARE.id, constants, &r.params(0), bindings, grid)?])
    }
}

/// Walks the chains of one launch of the pass, from what [`TilePrepare`] left.
#[derive(Debug)]
pub struct TileChain<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// The recurrence.
    pub recurrence: Recurrence,
    /// `[rows, 2·H·K + HV·V]`, of which v is read.
    pub qkv: &'a Tensor,
    /// The scratch memory.
    pub work: &'a BufferRange,
    /// `[rows, HV·V]`.
    pub out: &'a Tensor,
    /// Which launch, an upper bound of its chains, and whether any builds an operator.
    pub launch: (u32, u32, bool),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Operation for TileChain<'_> {
    fn check(&self) -> Result<(), OpError> {
        let r = &self.recurrence;
        check_form("tile_chain", r, 0, self.work)?;
        ensure("tile_chain", self.qkv.cols() == r.row() && self.out.cols() == r.out(), || {
            format!(
                "rows of {} and outputs of {}, {r:?} has {} and {}",
                self.qkv.cols(),
                self.out.cols(),
                r.row(),
                r.out()
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let r = &self.recurrence;
        let (launch_of, chains, operator) = self.launch;
        let mut bindings = vec![self.tables.clone(), self.qkv.range(), self.work.clone(), self.out.range()];
        bindings.extend(self.slabs.iter().cloned());
        let dense = r.form() == Form::Dense;
        let columns = match (operator, dense) {
            (false, _) => r.value,
            (true, false) => 2 * r.value,
            (true, true) => 2 * r.value + r.key,
        };
        let logs = u32::from(operator && r.form() == Form::Scalar);
        let grid = [columns.div_ceil(TILE_COLUMNS) + logs, r.value_heads, chains];
        let params = r.params(launch_of);
        Ok(vec![launch("tile_chain", caps, TILE_CHAIN.id, r.constants(), &params, bindings, grid)?])
    }
}

#[cfg(test)]
mod tests {
    use seam_device::{DeviceKind, GemmCaps, KernelSet};

    use super::*;
    use crate::recurrence::{Pairing, Rotation};

    fn hopper(precision: Precision) -> Caps {
        Caps {
            kind: DeviceKind::Cuda,
            name: "a Hopper chip".to_owned(),
            driver: String::new(),
            max_binding: 8 << 30,
            max_buffer: 96 << 30,
            max_storage_buffers: 8,
            max_workgroup_bytes: 227 << 10,
            max_invocations: 1024,
            max_grid: 65535,
            subgroup: (32, 32),
            memory: Some(96 << 30),
            kernels: KernelSet::of([TILE_PREPARE.id, TILE_CHAIN.id]),
            gemm: GemmCaps { weights: Vec::new(), accumulate: true, batch_invariant: false },
            precision,
            rows_hint: 4096,
        }
    }

    const GDN: Recurrence = Recurrence {
        decay: Decay::Scalar,
        update: Update::Delta,
        heads: 16,
        value_heads: 32,
        key: 128,
        value: 128,
        rotation: None,
    };

    #[test]
    fn tiles_are_for_long_chunks_of_what_has_the_form_in_bf16() {
        let caps = hopper(Precision::Bf16);
        assert!(takes_tiles(&caps, &GDN, 512, 32));
        assert!(takes_tiles(&caps, &GDN, 64, 8), "seams of 8 rows");
        assert!(!takes_tiles(&caps, &GDN, 8, 8), "decoding");
        assert!(!takes_tiles(&caps, &GDN, 0, 0));
        assert!(!takes_tiles(&hopper(Precision::F32), &GDN, 512, 32));
        assert!(!takes_tiles(&Caps { kernels: KernelSet::default(), ..caps.clone() }, &GDN, 512, 32));
        let ring = Some(Rotation { pairing: Pairing::Halves, dims: 64 });
        assert!(takes_tiles(&caps, &Recurrence { update: Update::Add, rotation: ring, ..GDN }, 512, 32));
        for other in [
            Recurrence { key: 32, ..GDN },
            Recurrence { key: 256, ..GDN },
            Recurrence { value: 40, ..GDN },
            Recurrence { decay: Decay::Diagonal, ..GDN },
            Recurrence { decay: Decay::Diagonal, update: Update::RankOne, ..GDN },
            Recurrence { rotation: ring, ..GDN },
        ] {
            assert!(!takes_tiles(&caps, &other, 512, 32), "{other:?}");
        }
    }

    #[test]
    fn scratch_memory_has_the_words_that_the_kernels_address() {
        // Per chunk three matrices of 16 rows of 64 bf16 and 16 times four scales a value head, k and q of 128 bf16 a key head.
        let head = 16 * (3 * 64 / 2 + 4);
        assert_eq!(tile_words(&GDN, 7), 7 * (32 * head + 16 * 16 * 128));
        let head = 16 * (64 / 2 + 4);
        assert_eq!(tile_words(&Recurrence { update: Update::Add, ..GDN }, 7), 7 * (32 * head + 16 * 16 * 128));
    }
}
