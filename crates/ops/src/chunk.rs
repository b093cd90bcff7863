//! Chains of any recurrence but those of rank one, in chunks of 16 tokens.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::chunk::{CHUNK_CHAIN, CHUNK_PREPARE, Layout};

use crate::chain::check;
use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::recurrence::{Recurrence, Update};
use crate::tensor::Tensor;

/// Words of what [`ChunkPrepare`] leaves for [`ChunkChain`], for a pass of at most `rows` rows in `chunks` chunks.
#[must_use]
pub fn chunk_words(r: &Recurrence, rows: u32, chunks: u32) -> u64 {
    layout(r).words(rows as usize, chunks as usize) as u64
}

fn layout(r: &Recurrence) -> Layout {
    let constants = r.constants();
    Layout::new(r.key as usize, r.value as usize, r.value_heads as usize, constants[1], constants[2])
}

fn check_update(op: &'static str, r: &Recurrence) -> Result<(), OpError> {
    ensure(op, r.update != Update::RankOne, || "a rank-one update runs token by token".to_owned())
}

fn check_work(op: &'static str, r: &Recurrence, rows: u32, chunks: u32, work: &BufferRange) -> Result<(), OpError> {
    let words = chunk_words(r, rows, chunks);
    ensure(op, work.len >= words * 4, || format!("{} bytes of scratch memory, {} needed", work.len, words * 4))
}

/// What chunks need no state for: decayed queries and keys, their products, the solved writes of a delta update.
#[derive(Debug)]
pub struct ChunkPrepare<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// The recurrence.
    pub recurrence: Recurrence,
    /// `[rows, 2·H·K + HV·V]`: q (scaled), k and v.
    pub qkv: &'a Tensor,
    /// `[rows, …]`: g, then β, as [`Recurrence::gate_row`] says; one row for a fixed decay.
    pub gates: &'a Tensor,
    /// Scratch memory of [`chunk_words`].
    pub work: &'a BufferRange,
    /// An upper bound of the chunks of the pass.
    pub chunks: u32,
}

impl Operation for ChunkPrepare<'_> {
    fn check(&self) -> Result<(), OpError> {
        check_update("chunk_prepare", &self.recurrence)?;
        check("chunk_prepare", &self.recurrence, self.qkv, self.gates)?;
        check_work("chunk_prepare", &self.recurrence, self.qkv.rows(), self.chunks, self.work)
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let r = &self.recurrence;
        if self.chunks == 0 {
            return Ok(Vec::new());
        }
        let bindings = vec![self.tables.clone(), self.qkv.range(), self.gates.range(), self.work.clone()];
        let constants = r.constants()[..3].to_vec();
        let grid = [self.chunks, r.value_heads, 1];
        Ok(vec![launch("chunk_prepare", caps, CHUNK_PREPARE.id, constants, &r.params(0), bindings, grid)?])
    }
}

/// Walks the chains of one launch of the pass, from what [`ChunkPrepare`] left.
#[derive(Debug)]
pub struct ChunkChain<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// The recurrence.
    pub recurrence: Recurrence,
    /// The scratch memory.
    pub work: &'a BufferRange,
    /// `[rows, HV·V]`.
    pub out: &'a Tensor,
    /// Which launch, an upper bound of its chains, and whether any builds an operator.
    pub launch: (u32, u32, bool),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Operation for ChunkChain<'_> {
    fn check(&self) -> Result<(), OpError> {
        let r = &self.recurrence;
        check_update("chunk_chain", r)?;
        r.check("chunk_chain")?;
        check_work("chunk_chain", r, self.out.rows(), 0, self.work)?;
        ensure("chunk_chain", self.out.cols() == r.out(), || {
            format!("outputs of {}, {r:?} has {}", self.out.cols(), r.out())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let r = &self.recurrence;
        let mut bindings = vec![self.tables.clone(), self.work.clone(), self.out.range()];
        bindings.extend(self.slabs.iter().cloned());
        let grid = [r.columns(self.launch.2).div_ceil(32), r.value_heads, self.launch.1];
        let params = r.params(self.launch.0);
        Ok(vec![launch("chunk_chain", caps, CHUNK_CHAIN.id, r.constants(), &params, bindings, grid)?])
    }
}
