// weights: pieces of matrices of f32 (WEIGHT 0), bf16 (1) or FP8 (2), widened exactly. FP8 comes without the scale of its block.
#include "shared/tables.cuh"
#include "shared/math.cuh"

// An e4m3 number: one sign bit, four of exponent with bias 7, three of mantissa. No number is expected.
__device__ __forceinline__ float e4m3(u32 byte) {
    // Exponent and mantissa in their places of an f32, whose bias is larger by 120.
    const float wide = __uint_as_float(((byte & 0x7fu) << 20) + 0x3c000000u);
    // Exponent 0: what was made is 2^-7·(1 + m/8), what is meant is 2^-6·m/8.
    const float magnitude = (byte & 0x78u) == 0u ? fmaf(2.0f, wide, -0.015625f) : wide;
    return __uint_as_float(__float_as_uint(magnitude) | (byte & 0x80u) << 24);
}

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
    const u32 words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        x[2u * i] = bf16_low(words[i]);
        x[2u * i + 1u] = bf16_high(words[i]);
    }
}

__device__ __forceinline__ void widen(u32 piece, float (&x)[4]) {
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        x[i] = e4m3(piece >> (8u * i) & 0xffu);
    }
}

__device__ __forceinline__ void widen(uint4 piece, float (&x)[16]) {
    const u32 words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        x[i] = e4m3(words[i / 4u] >> (8u * (i % 4u)) & 0xffu);
    }
}

// Elements 4·i .. 4·i + 3 of the weights.
__device__ __forceinline__ float4 weights(const void* __restrict__ w, size_t i) {
    float x[4];
    if (WEIGHT == 1u) {
        widen(static_cast<const uint2*>(w)[i], x);
    } else if (WEIGHT == 2u) {
        widen(static_cast<const u32*>(w)[i], x);
    } else {
        return static_cast<const float4*>(w)[i];
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}
