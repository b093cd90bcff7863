// gemm_parts: an f32 matrix as bf16 ones, for tensor cores.
//
// Layout    A [m, k] f32 with rows `lda` apart; PARTS matrices [m, leading] of bf16, `stride` pieces of 16 bytes apart, the
//           least significant first. k and lda are multiples of 4, leading of 8.
// Grid      x covers the columns by 1024, y the rows by any number; a thread converts 8 elements of a row.
// Shared memory: none.
// Numbers   PARTS = 1: rounded to nearest even. PARTS = 3: hi = bf16(a), mid = bf16(a - hi), lo = bf16(a - hi - mid), whose
//           sum is a exactly; where hi is not finite, mid and lo are zero. Rows at or past the count become zero, so that
//           what they hold cannot reach the products.
// Why       bound by memory: 32 bytes in and 16 bytes out a part and thread.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 m;
    u32 k;
    u32 lda;
    u32 leading;
    u32 count;
    u32 stride;
    u32 pad0;
    u32 pad1;
};

// Two floats rounded to the bf16 values of a word.
__device__ __forceinline__ u32 rounded(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// What is left of x once its bf16 value h is taken away.
__device__ __forceinline__ float rest(float x, float h) {
    return fabsf(h) <= 3.4e38f ? x - h : 0.0f;
}

extern "C" __global__ void __launch_bounds__(128) gemm_parts(
    Params p, const u32* __restrict__ tables, const float4* __restrict__ a, uint4* __restrict__ parts) {
    const u32 rows = p.count == 0xffffffffu ? p.m : min(p.m, tables[p.count]);
    const u32 piece = blockIdx.x * 128u + threadIdx.x;
    const u32 pieces = p.leading / 8u;
    if (piece >= pieces) {
        return;
    }
    for (u32 row = blockIdx.y; row < p.m; row += gridDim.y) {
        float4 x[2] = {all(0.0f), all(0.0f)};
        if (row < rows) {
            const float4* from = a + (size_t)row * (p.lda / 4u) + 2u * piece;
            x[0] = from[0];
            // The last piece may be half of one.
            if (8u * piece + 4u < p.k) {
                x[1] = from[1];
            }
        }
        float v[8] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
        uint4* to = parts + (size_t)row * pieces + piece;
#pragma unroll
        for (u32 part = PARTS; part-- > 0u;) {
            u32 words[4];
#pragma unroll
            for (u32 i = 0u; i < 4u; i++) {
                words[i] = rounded(v[2u * i], v[2u * i + 1u]);
                v[2u * i] = rest(v[2u * i], bf16_low(words[i]));
                v[2u * i + 1u] = rest(v[2u * i + 1u], bf16_high(words[i]));
            }
            to[(size_t)part * p.stride] = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}
