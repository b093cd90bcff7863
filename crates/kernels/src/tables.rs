//! The tables of a pass: one u32 buffer that says what every row of the flat batch is.
//!
//! The header holds counts and the word offsets of the tables behind it. Kernels leave early for rows past
//! [`ROWS`], so a recorded list serves every pass whose counts fit its grids. The builder lives in the ops crate; WGSL
//! reads the same constants from `shaders/shared/tables.wgsl` (a test compares the two).
//!
//! | table | record |
//! |---|---|
//! | rows | run, position, query angle, key angle, KV slab, KV row, token id, 0 |
//! | runs | first row, rows, first span, spans, first history source, 0, 0, 0 |
//! | spans | KV slab, first KV row, keys, position of the first key, origin angle, 0, 0, 0 |
//! | history | source kind, row or word offset: `k−1` sources a run, oldest first |
//! | tails | destination word, 0, then `k−1` sources, oldest first |
//! | logits | row |
//! | angles | `rot/2` cosines, `rot/2` sines (f32 bits) |
//! | conv launches | first run, runs, first row, rows |
//! | tail launches | first tail, tails |
//! | chain launches | first chain, chains |
//! | chains | first step, steps, flags, 0 |
//! | steps | operation and seven operands |
//! | chunks | first row, rows, rows from there to the end of its run step, number in its run step |
//! | attention launches | number of slabs, 0, 0, 0, then four KV slabs |
//! | tiles | run, first query of the run, queries, 0: wide ones, then narrow ones |
//!
//! A *query* of a run is a pair of a row and a query head of one KV head: query `i` is row `i / group`, head `i % group` of
//! the group. Tiles are there only where keys are bf16.

/// Number of rows in the pass.
pub const ROWS: usize = 0;
/// Number of rows that want logits.
pub const LOGITS: usize = 1;
/// Number of runs.
pub const RUNS: usize = 2;
/// Number of chunks of the runs in chains.
pub const CHUNKS: usize = 3;
/// Word offset of the rows.
pub const ROW_TABLE: usize = 4;
/// Word offset of the runs.
pub const RUN_TABLE: usize = 5;
/// Word offset of the spans.
pub const SPAN_TABLE: usize = 6;
/// Word offset of the history sources.
pub const HISTORY_TABLE: usize = 7;
/// Word offset of the conv tails to write.
pub const TAIL_TABLE: usize = 8;
/// Word offset of the rows that want logits.
pub const LOGIT_TABLE: usize = 9;
/// Word offset of the angles.
pub const ANGLE_TABLE: usize = 10;
/// Word offset of the conv launches.
pub const CONV_LAUNCHES: usize = 11;
/// Word offset of the tail launches.
pub const TAIL_LAUNCHES: usize = 12;
/// Word offset of the chain launches.
pub const CHAIN_LAUNCHES: usize = 13;
/// Word offset of the chains.
pub const CHAIN_TABLE: usize = 14;
/// Word offset of the chain steps.
pub const STEP_TABLE: usize = 15;
/// Word offset of the attention launches.
pub const ATTENTION_LAUNCHES: usize = 16;
/// Word offset of the chunks.
pub const CHUNK_TABLE: usize = 17;
/// Word offset of the tiles.
pub const TILE_TABLE: usize = 18;
/// Number of wide tiles.
pub const WIDE_TILES: usize = 19;
/// Number of narrow tiles, which stand behind the wide ones.
pub const NARROW_TILES: usize = 20;
/// Words of the header.
pub const HEADER: usize = 32;

/// Words of a row record.
pub const ROW_WORDS: usize = 8;
/// Words of a run record.
pub const RUN_WORDS: usize = 8;
/// Words of a span record.
pub const SPAN_WORDS: usize = 8;
/// Words of a source.
pub const SOURCE_WORDS: usize = 2;
/// Words of a conv launch.
pub const CONV_LAUNCH_WORDS: usize = 4;
/// Words of a tail launch, and of a chain launch.
pub const LAUNCH_WORDS: usize = 2;
/// Words of a chain record.
pub const CHAIN_WORDS: usize = 4;
/// Words of a chain step.
pub const STEP_WORDS: usize = 8;
/// Words of a chunk.
pub const CHUNK_WORDS: usize = 4;
/// Words of an attention launch.
pub const ATTENTION_LAUNCH_WORDS: usize = 8;

/// Words of a tile.
pub const TILE_WORDS: usize = 4;

/// Most queries of a wide tile: a run has full ones, then one for what is left.
pub const WIDE_TILE: usize = 64;
/// Most queries of a narrow tile, for runs with so few left.
pub const NARROW_TILE: usize = 16;

/// Most rows of a chunk. A run step of n rows has ⌈n/16⌉ chunks, all but the last of them full.
pub const CHUNK_TOKENS: usize = 16;

/// Slabs of cached entries that one launch of the convolution or of a chain can bind.
pub const SHARED_SLABS: usize = 3;
/// KV slabs that one launch of the attention can bind.
pub const KV_SLABS: usize = 4;

/// Source: zeros.
pub const SOURCE_ZERO: u32 = 0;
/// Source: a row of this pass.
pub const SOURCE_ROW: u32 = 1;
/// Source: words of the private slab.
pub const SOURCE_PRIVATE: u32 = 2;
/// Source: words of shared slab 0; 1 and 2 follow.
pub const SOURCE_SHARED: u32 = 3;

/// Step: the state becomes zero.
pub const STEP_ZERO: u32 = 0;
/// Step: load from the private slab. Operands: base word, 1 if operator columns are loaded too.
pub const STEP_LOAD: u32 = 1;
/// Step: run rows. Operands: first row, rows, first chunk.
pub const STEP_RUN: u32 = 2;
/// Step: the operator columns start, from `0 | I`.
pub const STEP_BEGIN: u32 = 3;
/// Step: `h ← T·h + S`. Operands: binding (0..2 shared, 3 private), word of S, word of T, form of T, angle + 1 of the
/// rotation R that moves the operator to `R·S`, `R·T·Rᵀ`, or 0.
pub const STEP_APPLY: u32 = 4;
/// Step: store to the private slab. Operands as for a load.
pub const STEP_STORE: u32 = 5;

/// Step: store the running state alone, for a prefix point. Operand: base word.
pub const STEP_SNAPSHOT: u32 = 6;

/// Chain flag: operator columns exist.
pub const CHAIN_OPERATOR: u32 = 1;

/// Form of T: exactly zero (`last-state`, absent).
pub const FORM_ZERO: u32 = 0;
/// Form of T: the identity (`addition`).
pub const FORM_IDENTITY: u32 = 1;
/// Form of T: dense `[HV, K, K]` f32.
pub const FORM_DENSE: u32 = 2;

/// Form of T: one factor a head, `[HV]` f32 logarithms.
pub const FORM_SCALAR: u32 = 3;
/// Form of T: one factor a head and key dim, `[HV, K]` f32 logarithms.
pub const FORM_DIAGONAL: u32 = 4;

/// A view of tables as the twins read them.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(pub &'a [u32]);

impl<'a> View<'a> {
    /// Header word.
    #[must_use]
    pub fn header(&self, word: usize) -> usize {
        self.0[word] as usize
    }

    /// `words` words of record `i` of the table whose offset is in header word `table`.
    #[must_use]
    pub fn record(&self, table: usize, i: usize, words: usize) -> &'a [u32] {
        let at = self.header(table) + i * words;
        &self.0[at..at + words]
    }

    /// Cosines and sines of angle `i`; `rot` rotated dimensions.
    #[must_use]
    pub fn angle(&self, i: u32, rot: usize) -> (&'a [f32], &'a [f32]) {
        let record: &[f32] = bytemuck::cast_slice(self.record(ANGLE_TABLE, i as usize, rot));
        record.split_at(rot / 2)
    }
}
