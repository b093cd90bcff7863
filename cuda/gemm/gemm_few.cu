// gemm_few: C (+)= A·Wᵀ for up to 8 rows (decode), where reading W once is all that counts.
//
// Layout    as gemm: A [m, k] f32 with rows `lda` apart; W [n, k] f32, bf16 or FP8 (WEIGHT 0, 1, 2), the last with
//           scales [⌈n / 2^shift⌉, ⌈k / 128⌉] f32; C rows `ldc` apart, written from column `column` on. k and lda are
//           multiples of 4.
// Grid      x covers n by 4 (or less: blocks go on to the columns that are left), y covers m by 8; a block of 64 is two
//           warps, each with two columns at a time.
// Shared memory: none, no barrier.
// Numbers   a lane sums every 32nd piece of W in order, lanes are added pairwise. gemm sums in another order, so a row's bits
//           may differ between the two kernels. They do not depend on the other rows.
// Why       a warp reads 512 bytes of a row of W together, 16 a thread, and has eight such loads in flight, so a few warps
//           on every processor keep the memory busy. A is small and stays in the caches; two columns share what is read of
//           it. Rows that do not exist are skipped by a uniform branch, which makes one row cheap.
#include "shared/tables.cuh"
#include "gemm/few.cuh"

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

extern "C" __global__ void __launch_bounds__(64) gemm_few(
    Params p, const u32* __restrict__ tables, const float4* __restrict__ a, const uint2* __restrict__ w,
    const float* __restrict__ scales, float* c) {
    const u32 rows = p.count == 0xffffffffu ? p.m : min(p.m, tables[p.count]);
    const u32 first = blockIdx.y * FEW;
    if (first >= rows) {
        return;
    }
    const u32 here = min(rows - first, FEW);
    const size_t a_row = p.lda / 4u;
    const float4* at = a + first * a_row;
    const u32 columns = (p.k + SCALE_COLUMNS - 1u) / SCALE_COLUMNS;
    const u32 warps = gridDim.x * 2u;
    for (u32 col = COLUMNS * (blockIdx.x * 2u + threadIdx.x / LANES); col < p.n; col += COLUMNS * warps) {
        // A column past the end reads the last one and is not written.
        const u32 next = min(col + 1u, p.n - 1u);
        const size_t from[COLUMNS] = {(size_t)p.k * col, (size_t)p.k * next};
        const float* const blocks[COLUMNS] = {
            scales + (size_t)(col >> p.shift) * columns, scales + (size_t)(next >> p.shift) * columns};
        const auto put = [&](u32 i, u32 j, float sum) {
            if (col + j < p.n) {
                float* to = c + (size_t)(first + i) * p.ldc + p.column + col + j;
                *to = ACCUMULATE == 1u ? *to + sum : sum;
            }
        };
        few_rows(w, from, blocks, [&](u32 i) { return at + i * a_row; }, p.k, here, put);
    }
}
