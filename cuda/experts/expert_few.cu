// expert_few: C[pair] = A[pair / share]·W[expert]ᵀ for up to 8 pairs of an expert.
//
// Layout    A f32 with rows `lda` apart; W [count, n, k] f32, bf16 or FP8 (WEIGHT 0, 1, 2), the last with scales
//           [count, ⌈n / 2^shift⌉, ⌈k / 128⌉] f32; C rows `ldc` apart, written from column `column` on. k and lda are
//           multiples of 4.
// Grid      x covers n by 8 (or less: blocks go on to the columns that are left), y = tiles, or pairs where they are not sorted
//           (GROUPED 0); a block of 64 is two warps, each with two columns at a time.
// Shared memory: none, no barrier.
// Numbers   sums as few.cuh, whatever pairs are in the tile. FP8 weights are widened and multiplied by their scale, which is
//           exact for scales of bf16.
// Why       as gemm_few: reading an expert's weights once is all that counts. Pairs are gathered by their order, so nothing
//           is copied before or after.
#include "experts/params.cuh"
#include "gemm/few.cuh"

extern "C" __global__ void __launch_bounds__(64) expert_few(
    Params p, const u32* __restrict__ tables, const u32* __restrict__ groups, const float4* __restrict__ a,
    const uint2* __restrict__ w, const float* __restrict__ scales, float* c) {
    const Tile tile = tile_of(p, tables, groups, blockIdx.y);
    if (tile.count == 0u) {
        return;
    }
    const float4* rows[FEW];
#pragma unroll
    for (u32 i = 0u; i < FEW; i++) {
        const u32 pair = pair_at(groups, tile.first + (i < tile.count ? i : 0u));
        rows[i] = a + (size_t)(pair / p.share) * (p.lda / 4u);
    }
    const u32 warps = gridDim.x * 2u;
    for (u32 col = COLUMNS * (blockIdx.x * 2u + threadIdx.x / LANES); col < p.n; col += COLUMNS * warps) {
        // A column past the end reads the last one and is not written.
        const u32 next = min(col + 1u, p.n - 1u);
        const size_t expert = (size_t)tile.expert * p.n;
        const size_t from[COLUMNS] = {(expert + col) * p.k, (expert + next) * p.k};
        const float* const blocks[COLUMNS] = {
            scales + scale_row(p, tile.expert, col), scales + scale_row(p, tile.expert, next)};
        const auto put = [&](u32 i, u32 j, float sum) {
            if (col + j < p.n) {
                c[(size_t)pair_at(groups, tile.first + i) * p.ldc + p.column + col + j] = sum;
            }
        };
        few_rows(w, from, blocks, [&](u32 i) { return rows[i]; }, p.k, tile.count, put);
    }
}
