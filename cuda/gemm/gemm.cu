// gemm: C (+)= A·Wᵀ for many rows.
//
// Layout    A [m, k] f32 with rows `lda` apart; W [n, k] f32, bf16 or FP8 (WEIGHT 0, 1, 2), the last with scales
//           [⌈n / 2^shift⌉, ⌈k / 128⌉] f32; C rows `ldc` apart, written from column `column` on. k and lda are multiples
//           of 4.
// Grid      x covers n by 32, y covers m by 32; one thread computes 4×4 results, a block of 8×8 threads 32×32.
// Shared memory: none, no barrier.
// Numbers   a result is one f32 sum over k in order, whatever m, n and the grid are: a row's bits do not depend on the
//           other rows. Weights are widened exactly, FP8 ones multiplied by their scale.
// Why       16 results take 8 loads of four elements a step, which the caches serve to the neighbours that read the same
//           rows; there is no barrier. W is read as pairs of words, because a row of bf16 starts at a multiple of 8 bytes
//           only. Rows and columns past the end are read as the last one and not written, so the loop has no branch.
#include "shared/tables.cuh"
#include "shared/weights.cuh"

struct Params {
    u32 m;
    u32 n;
    u32 k;
    u32 lda;
    u32 ldc;
    u32 column;
    u32 count;
    u32 shift;
};

// The sum of one result goes on by one step of four.
__device__ __forceinline__ float step(float4 a, float4 w, float sum) {
    return fmaf(a.w, w.w, fmaf(a.z, w.z, fmaf(a.y, w.y, fmaf(a.x, w.x, sum))));
}

extern "C" __global__ void __launch_bounds__(64) gemm(
    Params p, const u32* __restrict__ tables, const float4* __restrict__ a, const uint2* __restrict__ w,
    const float* __restrict__ scales, float* c) {
    const u32 rows = p.count == 0xffffffffu ? p.m : min(p.m, tables[p.count]);
    const u32 row = 4u * (blockIdx.y * 8u + threadIdx.x / 8u);
    const u32 col = 4u * (blockIdx.x * 8u + threadIdx.x % 8u);
    if (row >= rows || col >= p.n) {
        return;
    }
    const u32 steps = p.k / 4u;
    const float4* a_rows[4];
    size_t w_rows[4];
    size_t blocks[4];
    float scale[4];
    float sums[4][4];
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        a_rows[i] = a + (size_t)(p.lda / 4u) * min(row + i, rows - 1u);
        const u32 column = min(col + i, p.n - 1u);
        w_rows[i] = (size_t)steps * column;
        blocks[i] = (size_t)(column >> p.shift) * ((p.k + 127u) / 128u);
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
            if (row + i < rows && col + j < p.n) {
                float* to = c + (size_t)(row + i) * p.ldc + p.column + col + j;
                *to = ACCUMULATE == 1u ? *to + sums[i][j] : sums[i][j];
            }
        }
    }
}
