// gemm_few: C (+)= A·Wᵀ for up to 8 rows (decode), where reading W once is all that counts.
//
// Layout    as gemm: A [m, k] f32 with rows `lda` apart; W [n, k] bf16 (BF16 = 1) or f32; C rows `ldc` apart, written from
//           column `column` on. k and lda are multiples of 4.
// Grid      x covers n by 4 (or less: blocks go on to the columns that are left), y covers m by 8; a block of 64 is two
//           warps, each with two columns at a time.
// Shared memory: none, no barrier.
// Numbers   a lane sums every 32nd piece of W in order, lanes are added pairwise. gemm sums in another order, so a row's bits
//           may differ between the two kernels. They do not depend on the other rows.
// Why       a warp reads 512 bytes of a row of W together, 16 a thread, and has eight such loads in flight, so a few warps
//           on every processor keep the memory busy. A is small and stays in the caches; two columns share what is read of
//           it. Rows that do not exist are skipped by a uniform branch, which makes one row cheap.
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

constexpr u32 LANES = 32u;
// Columns of a warp at a time.
constexpr u32 COLUMNS = 2u;
// Pieces of a column that a lane loads before it uses the first.
constexpr u32 DEPTH = 4u;
constexpr u32 FEW = 8u;

// A piece of W as floats: 16 bytes, or 8 where a row of bf16 does not begin at a multiple of 16.
__device__ __forceinline__ void widen(float4 piece, float (&x)[4]) {
    x[0] = piece.x;
    x[1] = piece.y;
    x[2] = piece.z;
    x[3] = piece.w;
}

__device__ __forceinline__ void widen(uint2 piece, float (&x)[4]) {
    x[0] = bf16_low(piece.x);
    x[1] = bf16_high(piece.x);
    x[2] = bf16_low(piece.y);
    x[3] = bf16_high(piece.y);
}

__device__ __forceinline__ void widen(uint4 piece, float (&x)[8]) {
    x[0] = bf16_low(piece.x);
    x[1] = bf16_high(piece.x);
    x[2] = bf16_low(piece.y);
    x[3] = bf16_high(piece.y);
    x[4] = bf16_low(piece.z);
    x[5] = bf16_high(piece.z);
    x[6] = bf16_low(piece.w);
    x[7] = bf16_high(piece.w);
}

// Adds to `sums` what this lane has of rows `a`, `here` of them, times two columns of W, whose pieces hold E elements.
template <typename Piece, u32 E>
__device__ __forceinline__ void add(
    const Piece* const (&w)[COLUMNS], const float4* __restrict__ a, size_t a_row, u32 k, u32 here,
    float (&sums)[FEW][COLUMNS]) {
    const u32 pieces = k / E;
    for (u32 start = threadIdx.x % LANES; start < pieces; start += LANES * DEPTH) {
        Piece loaded[DEPTH][COLUMNS];
#pragma unroll
        for (u32 d = 0u; d < DEPTH; d++) {
            const u32 s = start + d * LANES;
#pragma unroll
            for (u32 c = 0u; c < COLUMNS; c++) {
                loaded[d][c] = s < pieces ? __ldcs(w[c] + s) : Piece{};
            }
        }
#pragma unroll
        for (u32 d = 0u; d < DEPTH; d++) {
            const u32 s = start + d * LANES;
            if (s >= pieces) {
                break;
            }
            float x[COLUMNS][E];
#pragma unroll
            for (u32 c = 0u; c < COLUMNS; c++) {
                widen(loaded[d][c], x[c]);
            }
#pragma unroll
            for (u32 i = 0u; i < FEW; i++) {
                if (i < here) {
#pragma unroll
                    for (u32 q = 0u; q < E / 4u; q++) {
                        const float4 y = a[i * a_row + s * (E / 4u) + q];
#pragma unroll
                        for (u32 c = 0u; c < COLUMNS; c++) {
                            const float* part = x[c] + 4u * q;
                            sums[i][c] = fmaf(part[3], y.w,
                                fmaf(part[2], y.z, fmaf(part[1], y.y, fmaf(part[0], y.x, sums[i][c]))));
                        }
                    }
                }
            }
        }
    }
}

// The same from the first pieces of two rows of W, which begin at elements `from`.
template <typename Piece, u32 E>
__device__ __forceinline__ void add(
    const uint2* __restrict__ w, const size_t (&from)[COLUMNS], const float4* __restrict__ a, size_t a_row, u32 k, u32 here,
    float (&sums)[FEW][COLUMNS]) {
    const Piece* const rows[COLUMNS] = {
        reinterpret_cast<const Piece*>(w) + from[0] / E, reinterpret_cast<const Piece*>(w) + from[1] / E};
    add<Piece, E>(rows, a, a_row, k, here, sums);
}

extern "C" __global__ void __launch_bounds__(64) gemm_few(
    Params p, const u32* __restrict__ tables, const float4* __restrict__ a, const uint2* __restrict__ w, float* c) {
    const u32 rows = p.count == 0xffffffffu ? p.m : min(p.m, tables[p.count]);
    const u32 first = blockIdx.y * FEW;
    if (first >= rows) {
        return;
    }
    const u32 here = min(rows - first, FEW);
    const size_t a_row = p.lda / 4u;
    const u32 warps = gridDim.x * 2u;
    for (u32 col = COLUMNS * (blockIdx.x * 2u + threadIdx.x / LANES); col < p.n; col += COLUMNS * warps) {
        // A column past the end reads the last one and is not written.
        const size_t from[COLUMNS] = {(size_t)p.k * col, (size_t)p.k * min(col + 1u, p.n - 1u)};
        float sums[FEW][COLUMNS];
#pragma unroll
        for (u32 i = 0u; i < FEW; i++) {
#pragma unroll
            for (u32 j = 0u; j < COLUMNS; j++) {
                sums[i][j] = 0.0f;
            }
        }
        const float4* at = a + first * a_row;
        if (BF16 == 0u) {
            add<float4, 4u>(w, from, at, a_row, p.k, here, sums);
        } else if (p.k % 8u == 0u) {
            add<uint4, 8u>(w, from, at, a_row, p.k, here, sums);
        } else {
            add<uint2, 4u>(w, from, at, a_row, p.k, here, sums);
        }
#pragma unroll
        for (u32 i = 0u; i < FEW; i++) {
            if (i < here) {
#pragma unroll
                for (u32 j = 0u; j < COLUMNS; j++) {
                    float sum = sums[i][j];
#pragma unroll
                    for (u32 offset = LANES / 2u; offset > 0u; offset /= 2u) {
                        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
                    }
                    // Each result is written by a lane of its own.
                    if (threadIdx.x % LANES == i * COLUMNS + j && col + j < p.n) {
                        float* to = c + (size_t)(first + i) * p.ldc + p.column + col + j;
                        *to = ACCUMULATE == 1u ? *to + sum : sum;
                    }
                }
            }
        }
    }
}
