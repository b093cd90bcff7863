// The layout of the tables of a pass: the constants of crates/kernels/src/tables.rs, which documents them. A test
// compares the two files. A kernel declares `var<storage, read> tables: array<u32>`.

const ROWS: u32 = 0u;
const LOGITS: u32 = 1u;
const RUNS: u32 = 2u;
const CHUNKS: u32 = 3u;
const ROW_TABLE: u32 = 4u;
const RUN_TABLE: u32 = 5u;
const SPAN_TABLE: u32 = 6u;
const HISTORY_TABLE: u32 = 7u;
const TAIL_TABLE: u32 = 8u;
const LOGIT_TABLE: u32 = 9u;
const ANGLE_TABLE: u32 = 10u;
const CONV_LAUNCHES: u32 = 11u;
const TAIL_LAUNCHES: u32 = 12u;
const CHAIN_LAUNCHES: u32 = 13u;
const CHAIN_TABLE: u32 = 14u;
const STEP_TABLE: u32 = 15u;
const ATTENTION_LAUNCHES: u32 = 16u;
const CHUNK_TABLE: u32 = 17u;
const TILE_TABLE: u32 = 18u;
const WIDE_TILES: u32 = 19u;
const NARROW_TILES: u32 = 20u;
const HEADER: u32 = 32u;

const ROW_WORDS: u32 = 8u;
const RUN_WORDS: u32 = 8u;
const SPAN_WORDS: u32 = 8u;
const SOURCE_WORDS: u32 = 2u;
const CONV_LAUNCH_WORDS: u32 = 4u;
const LAUNCH_WORDS: u32 = 2u;
const CHAIN_WORDS: u32 = 4u;
const STEP_WORDS: u32 = 8u;
const CHUNK_WORDS: u32 = 4u;
const ATTENTION_LAUNCH_WORDS: u32 = 8u;
const TILE_WORDS: u32 = 4u;

const WIDE_TILE: u32 = 64u;
const NARROW_TILE: u32 = 16u;

const CHUNK_TOKENS: u32 = 16u;

const SHARED_SLABS: u32 = 3u;
const KV_SLABS: u32 = 4u;

const SOURCE_ZERO: u32 = 0u;
const SOURCE_ROW: u32 = 1u;
const SOURCE_PRIVATE: u32 = 2u;
const SOURCE_SHARED: u32 = 3u;

const STEP_ZERO: u32 = 0u;
const STEP_LOAD: u32 = 1u;
const STEP_RUN: u32 = 2u;
const STEP_BEGIN: u32 = 3u;
const STEP_APPLY: u32 = 4u;
const STEP_STORE: u32 = 5u;
const STEP_SNAPSHOT: u32 = 6u;

const CHAIN_OPERATOR: u32 = 1u;

const FORM_ZERO: u32 = 0u;
const FORM_IDENTITY: u32 = 1u;
const FORM_DENSE: u32 = 2u;
const FORM_SCALAR: u32 = 3u;
const FORM_DIAGONAL: u32 = 4u;

// First word of record `i` of the table whose offset is in header word `table`.
fn record(table: u32, i: u32, words: u32) -> u32 {
    return tables[table] + i * words;
}

// `n`, written so that no compiler sees a constant: a loop up to it is not unrolled. Every place of a memory access costs
// software drivers compile time, which grows with the square of their number. (A pass has less than 2^31 rows. A value
// of the uniform would not do: lavapipe compiles a shader anew for each value of a uniform that a branch depends on.)
fn not_unrolled(n: u32) -> u32 {
    return n + (tables[ROWS] >> 31u);
}
