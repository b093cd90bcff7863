// Functions that several kernels share. Each matches the function of the same name in the twins to a few ulp.
// expf, division and square root are the accurate ones: kernels are compiled without fast math.
#include "shared/tables.cuh"

// 1/(1+e^-x). The argument of exp is never positive, so nothing overflows.
__device__ __forceinline__ float sigmoid(float x) {
    const float e = expf(-fabsf(x));
    const float r = 1.0f / (1.0f + e);
    return x >= 0.0f ? r : e * r;
}

// x·sigmoid(x)
__device__ __forceinline__ float silu(float x) {
    return x * sigmoid(x);
}

// ln(1+e^x) = max(x, 0) + ln(1+e^-|x|): relative accuracy for every x, the identity for large ones.
__device__ __forceinline__ float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

// The two bf16 values of a word: exact, bf16 is the upper half of an f32.
__device__ __forceinline__ float bf16_low(u32 word) {
    return __uint_as_float(word << 16);
}

__device__ __forceinline__ float bf16_high(u32 word) {
    return __uint_as_float(word & 0xffff0000u);
}

// Four floats at a time. Products that are added are fused by name, so that the bits of a sum do not depend on what the
// compiler makes of the code around it.

__device__ __forceinline__ float4 all(float x) {
    return make_float4(x, x, x, x);
}

// a·b
__device__ __forceinline__ float4 times(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

// a + b
__device__ __forceinline__ float4 plus(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// a·b + c
__device__ __forceinline__ float4 fused(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

__device__ __forceinline__ float4 fused(float a, float4 b, float4 c) {
    return fused(all(a), b, c);
}

__device__ __forceinline__ float total(float4 x) {
    return (x.x + x.z) + (x.y + x.w);
}

// The four floats from word `at` on, which is a multiple of four.
__device__ __forceinline__ float4 aligned(const float* __restrict__ words, u32 at) {
    return reinterpret_cast<const float4*>(words)[at / 4u];
}

// The four floats from word `at` on, `stride` apart, at any place.
__device__ __forceinline__ float4 strided(const float* __restrict__ words, u32 at, u32 stride) {
    return make_float4(words[at], words[at + stride], words[at + 2u * stride], words[at + 3u * stride]);
}

// `x`, which the compiler may know nothing of: what depends on it is computed where it is used. Products of it that are
// computed ahead of a loop would take the registers of the state.
__device__ __forceinline__ u32 opaque(u32 x) {
    asm volatile("" : "+r"(x));
    return x;
}

// The four floats from word `at` on: in one load where the place allows it.
template <bool ALIGNED>
__device__ __forceinline__ float4 quad(const float* __restrict__ words, u32 at) {
    if (ALIGNED) {
        return aligned(words, at);
    }
    return strided(words, at, 1u);
}
