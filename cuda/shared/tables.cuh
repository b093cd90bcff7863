// The layout of the tables of a pass: the constants of crates/kernels/src/tables.rs, which documents them.
//
// Every kernel includes this file first. NVRTC has no headers, so the type of a word is named here.
typedef unsigned int u32;

// No kernel uses all of the constants.
#pragma nv_diag_suppress 177

constexpr u32 ROWS = 0u;
constexpr u32 LOGITS = 1u;
constexpr u32 RUNS = 2u;
constexpr u32 CHUNKS = 3u;
constexpr u32 ROW_TABLE = 4u;
constexpr u32 RUN_TABLE = 5u;
constexpr u32 SPAN_TABLE = 6u;
constexpr u32 HISTORY_TABLE = 7u;
constexpr u32 TAIL_TABLE = 8u;
constexpr u32 LOGIT_TABLE = 9u;
constexpr u32 ANGLE_TABLE = 10u;
constexpr u32 CONV_LAUNCHES = 11u;
constexpr u32 TAIL_LAUNCHES = 12u;
constexpr u32 CHAIN_LAUNCHES = 13u;
constexpr u32 CHAIN_TABLE = 14u;
constexpr u32 STEP_TABLE = 15u;
constexpr u32 ATTENTION_LAUNCHES = 16u;
constexpr u32 CHUNK_TABLE = 17u;
constexpr u32 TILE_TABLE = 18u;
constexpr u32 WIDE_TILES = 19u;
constexpr u32 NARROW_TILES = 20u;
constexpr u32 HEADER = 32u;

constexpr u32 ROW_WORDS = 8u;
constexpr u32 RUN_WORDS = 8u;
constexpr u32 SPAN_WORDS = 8u;
constexpr u32 SOURCE_WORDS = 2u;
constexpr u32 CONV_LAUNCH_WORDS = 4u;
constexpr u32 LAUNCH_WORDS = 2u;
constexpr u32 CHAIN_WORDS = 4u;
constexpr u32 STEP_WORDS = 8u;
constexpr u32 CHUNK_WORDS = 4u;
constexpr u32 ATTENTION_LAUNCH_WORDS = 8u;
constexpr u32 TILE_WORDS = 4u;

constexpr u32 WIDE_TILE = 64u;
constexpr u32 NARROW_TILE = 16u;

constexpr u32 CHUNK_TOKENS = 16u;

constexpr u32 SHARED_SLABS = 3u;
constexpr u32 KV_SLABS = 4u;

constexpr u32 SOURCE_ZERO = 0u;
constexpr u32 SOURCE_ROW = 1u;
constexpr u32 SOURCE_PRIVATE = 2u;
constexpr u32 SOURCE_SHARED = 3u;

constexpr u32 STEP_ZERO = 0u;
constexpr u32 STEP_LOAD = 1u;
constexpr u32 STEP_RUN = 2u;
constexpr u32 STEP_BEGIN = 3u;
constexpr u32 STEP_APPLY = 4u;
constexpr u32 STEP_STORE = 5u;
constexpr u32 STEP_SNAPSHOT = 6u;

constexpr u32 CHAIN_OPERATOR = 1u;

constexpr u32 FORM_ZERO = 0u;
constexpr u32 FORM_IDENTITY = 1u;
constexpr u32 FORM_DENSE = 2u;
constexpr u32 FORM_SCALAR = 3u;
constexpr u32 FORM_DIAGONAL = 4u;

// First word of record `i` of the table whose offset is in header word `table`.
__device__ __forceinline__ u32 record(const u32* __restrict__ tables, u32 table, u32 i, u32 words) {
    return tables[table] + i * words;
}
