// gemm_few: C (+)= A·Wᵀ for up to 8 rows (decode), where reading W once is all that counts.
//
// Layout    as gemm: A [m, k] f32 with rows `lda` apart; W [n, k] bf16 (BF16 = 1) or f32; C rows `ldc` apart, written from
//           column `column` on. k and lda are multiples of 4.
// Grid      x covers n by 8, y covers m by 8; a block of 64 computes 8 columns, 8 lanes to a column.
// Shared memory: 2 KiB of partial sums. One barrier.
// Numbers   a lane sums every eighth step of four in order, the eight sums are added in order. gemm sums in another
//           order, so a row's bits may differ between the two kernels.
// Why       lanes of a column read neighbouring pieces of its row of W, 64 bytes together for bf16; each piece is used
//           for all rows at once. Rows that do not exist are skipped by a uniform branch, which makes one row cheap.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 m;
    u32 n;
    u32 k;
    u32 lda;
    u32 ldc;
    u32 column;
    u32 count;
    u32 pad;
};

constexpr u32 COLUMNS = 8u;
constexpr u32 LANES = 8u;
constexpr u32 FEW = 8u;

// Elements 4·i .. 4·i + 3 of W.
__device__ __forceinline__ float4 weights(const uint2* __restrict__ w, size_t i) {
    if (BF16 == 1u) {
        const uint2 x = w[i];
        return make_float4(bf16_low(x.x), bf16_high(x.x), bf16_low(x.y), bf16_high(x.y));
    }
    return reinterpret_cast<const float4*>(w)[i];
}

extern "C" __global__ void __launch_bounds__(64) gemm_few(
    Params p, const u32* __restrict__ tables, const float4* __restrict__ a, const uint2* __restrict__ w, float* c) {
    // Partial sums, [row, column, lane].
    __shared__ float partial[FEW * COLUMNS * LANES];
    const u32 id = threadIdx.x;
    const u32 rows = p.count == 0xffffffffu ? p.m : min(p.m, tables[p.count]);
    const u32 first = blockIdx.y * FEW;
    if (first >= rows) {
        return;
    }
    const u32 here = min(rows - first, FEW);
    const u32 column = id / LANES;
    const u32 lane = id % LANES;
    const u32 steps = p.k / 4u;
    const size_t a_row = p.lda / 4u;
    // A column past the end reads the last one and is not written.
    const size_t w_row = (size_t)steps * min(blockIdx.x * COLUMNS + column, p.n - 1u);
    float sums[FEW];
#pragma unroll
    for (u32 i = 0u; i < FEW; i++) {
        sums[i] = 0.0f;
    }
    for (u32 s = lane; s < steps; s += LANES) {
        const float4 x = weights(w, w_row + s);
        const float4* at = a + first * a_row + s;
#pragma unroll
        for (u32 i = 0u; i < FEW; i++) {
            if (i < here) {
                const float4 y = at[i * a_row];
                sums[i] = fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sums[i]))));
            }
        }
    }
#pragma unroll
    for (u32 i = 0u; i < FEW; i++) {
        partial[i * COLUMNS * LANES + id] = sums[i];
    }
    __syncthreads();
    const u32 row = id / COLUMNS;
    const u32 col = blockIdx.x * COLUMNS + id % COLUMNS;
    if (row >= here || col >= p.n) {
        return;
    }
    const u32 start = id * LANES;
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0u; i < LANES; i++) {
        sum += partial[start + i];
    }
    float* to = c + (size_t)(first + row) * p.ldc + p.column + col;
    *to = ACCUMULATE == 1u ? *to + sum : sum;
}
