// expert_tiles: C[pair] = A[pair / share]·W[expert]ᵀ for up to 32 pairs of an expert.
//
// Layout    as expert_few, pairs sorted.
// Grid      x covers n by 32, y = tiles; one thread computes 4×4 results, a block of 8×8 threads 32×32.
// Shared memory: none, no barrier.
// Numbers   a result is one f32 sum over k in order, whatever pairs are in the tile. FP8 weights are widened and multiplied by
//           their scale, which is exact for scales of bf16.
// Why       as gemm. Pairs and columns past the end are read as the last one and not written, so the loop has no branch.
#define GROUPED 1u
#include "experts/params.cuh"
#include "shared/weights.cuh"

// The sum of one result goes on by one step of four.
__device__ __forceinline__ float step(float4 a, float4 w, float sum) {
    return fmaf(a.w, w.w, fmaf(a.z, w.z, fmaf(a.y, w.y, fmaf(a.x, w.x, sum))));
}

extern "C" __global__ void __launch_bounds__(64) expert_tiles(
    Params p, const u32* __restrict__ tables, const u32* __restrict__ groups, const float4* __restrict__ a,
    const uint2* __restrict__ w, const float* __restrict__ scales, float* c) {
    const Tile tile = tile_of(p, tables, groups, blockIdx.y);
    const u32 row = 4u * (threadIdx.x / 8u);
    const u32 col = 4u * (blockIdx.x * 8u + threadIdx.x % 8u);
    if (row >= tile.count || col >= p.n) {
        return;
    }
    const u32 steps = p.k / 4u;
    u32 pairs[4];
    const float4* a_rows[4];
    size_t w_rows[4];
    size_t blocks[4];
    float scale[4];
    float sums[4][4];
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        pairs[i] = pair_at(groups, tile.first + min(row + i, tile.count - 1u));
        a_rows[i] = a + (size_t)(pairs[i] / p.share) * (p.lda / 4u);
        const u32 column = min(col + i, p.n - 1u);
        w_rows[i] = ((size_t)tile.expert * p.n + column) * steps;
        blocks[i] = scale_row(p, tile.expert, column);
        scale[i] = 1.0f;
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            sums[i][j] = 0.0f;
        }
    }
    for (u32 s = 0u; s < steps; s++) {
        float4 x[4];
        float4 y[4];
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            x[i] = a_rows[i][s];
            y[i] = weights(w, w_rows[i] + s);
            if (WEIGHT == 2u) {
                if (s % 32u == 0u) {
                    scale[i] = scales[blocks[i] + s / 32u];
                }
                y[i] = times(y[i], all(scale[i]));
            }
        }
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
#pragma unroll
            for (u32 j = 0u; j < 4u; j++) {
                sums[i][j] = step(x[i], y[j], sums[i][j]);
            }
        }
    }
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            if (row + i < tile.count && col + j < p.n) {
                c[(size_t)pairs[i] * p.ldc + p.column + col + j] = sums[i][j];
            }
        }
    }
}
