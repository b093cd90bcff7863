// What tile_prepare leaves for tile_chain, in `work`. The layout is that of crates/kernels/src/tile.rs.
//
// A tile is up to 64 tokens of a run: four chunks of the tables. Everything lies as tile_chain has it in shared memory, a chunk of
// 16 rows after the other, so that the parts of a tile are ranges. Matrices of bf16 are made of core matrices (see right.cuh),
// 8 rows by 8 columns of 128 bytes: those of 8 rows one after the other, then those of the next 8.
//   matrices [HV, parts, chunks, 16, 64] bf16: for a delta update the inverse of I + G as the sum of two parts, then A;
//   otherwise A alone.
//   scales [HV, chunks, 16, 4] f32: β, e^b, e^(gates after it), b; zeros past the run.
//   keys [H, 2, chunks, 16, K] bf16: k, then q; zeros past the run.
#include "shared/tables.cuh"
#include "shared/right.cuh"
#include "chain/params.cuh"

constexpr u32 TILE = 64u;
constexpr u32 CHUNKS_OF_TILE = TILE / CHUNK_TOKENS;
constexpr bool INVERSE = UPDATE == UPDATE_DELTA;
constexpr u32 PARTS = INVERSE ? 3u : 1u;
// The last part is A.
constexpr u32 NEAR = PARTS - 1u;
// Words of 16 rows.
constexpr u32 MATRIX_CHUNK = CHUNK_TOKENS * TILE / 2u;
constexpr u32 SCALE_CHUNK = CHUNK_TOKENS * 4u;
constexpr u32 KEY_CHUNK = CHUNK_TOKENS * K / 2u;
// Bytes of a core matrix, and of the core matrices of 8 rows.
constexpr u32 CORE = 128u;
constexpr u32 MATRIX_ROWS = TILE / 8u * CORE;
constexpr u32 KEY_ROWS = K / 8u * CORE;

// The word of element (row, column) of a matrix of `width` columns, with an even column.
__device__ __forceinline__ u32 core_word(u32 row, u32 column, u32 width) {
    return (row / 8u * (width / 8u) + column / 8u) * (CORE / 4u) + row % 8u * 4u + column % 8u / 2u;
}

// First word of a chunk's rows of a matrix.
__device__ __forceinline__ u32 matrix_words(u32 chunks, u32 head, u32 part, u32 chunk) {
    return ((head * PARTS + part) * chunks + chunk) * MATRIX_CHUNK;
}

// First word of a chunk's scales.
__device__ __forceinline__ u32 scale_words(const Params& p, u32 chunks, u32 head, u32 chunk) {
    return p.value_heads * PARTS * chunks * MATRIX_CHUNK + (head * chunks + chunk) * SCALE_CHUNK;
}

// First word of a chunk's k (`part` 0) or q (1).
__device__ __forceinline__ u32 key_words(const Params& p, u32 chunks, u32 key_head, u32 part, u32 chunk) {
    const u32 before = p.value_heads * chunks * (PARTS * MATRIX_CHUNK + SCALE_CHUNK);
    return before + ((key_head * 2u + part) * chunks + chunk) * KEY_CHUNK;
}
