// What chunk_prepare leaves for chunk_chain, in `work` (f32): first the sums of the gates, [chunks, HV, D] with D = K for a
// diagonal decay and 1 otherwise, up to a multiple of four words; then a record a row and value head. The layout is that of
// `Layout` in crates/kernels/src/chunk/mod.rs.
//
// A record: qe [K] | ke [K] | w [K] (delta only) | a [16] | u [V], up to a multiple of four words. K is one.
#include "shared/tables.cuh"
#include "chain/params.cuh"

constexpr u32 KE = K;
constexpr u32 W = 2u * K;
constexpr u32 A = (UPDATE == UPDATE_DELTA ? 3u : 2u) * K;
constexpr u32 U = A + CHUNK_TOKENS;

// First word of the record of a row.
__device__ __forceinline__ u32 row_record(const u32* __restrict__ tables, const Params& p, u32 row, u32 head) {
    const u32 sums = tables[CHUNKS] * p.value_heads * (DECAY == DECAY_DIAGONAL ? K : 1u);
    const u32 words = U + (p.value + 3u) / 4u * 4u;
    return (sums + 3u) / 4u * 4u + (row * p.value_heads + head) * words;
}

// One number a token of a chunk, in registers.
struct Tokens {
    float x[CHUNK_TOKENS];
};

__device__ __forceinline__ Tokens no_tokens() {
    Tokens t;
#pragma unroll
    for (u32 j = 0u; j < CHUNK_TOKENS; j++) {
        t.x[j] = 0.0f;
    }
    return t;
}

// With number i set to x: as comparisons, because registers have no index.
__device__ __forceinline__ void set_token(Tokens& t, u32 i, float x) {
#pragma unroll
    for (u32 j = 0u; j < CHUNK_TOKENS; j++) {
        t.x[j] = i == j ? x : t.x[j];
    }
}

// Without number 0, the others one place further to the front.
__device__ __forceinline__ void drop_first(Tokens& t) {
#pragma unroll
    for (u32 j = 0u; j + 1u < CHUNK_TOKENS; j++) {
        t.x[j] = t.x[j + 1u];
    }
    t.x[CHUNK_TOKENS - 1u] = 0.0f;
}

// Quad j of the numbers.
__device__ __forceinline__ float4 four(const Tokens& t, u32 j) {
    return make_float4(t.x[4u * j], t.x[4u * j + 1u], t.x[4u * j + 2u], t.x[4u * j + 3u]);
}
