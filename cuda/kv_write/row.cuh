// kv_write: the row of one KV head into a slab of floats or of bf16.
//
// Layout    k, v [rows, heads·head] f32; w [head] f32; slab [KV rows, 2, heads·head]: a token's key, then its value.
// Grid      x = heads, y = rows; one block of 64 per (row, head). Rows of other slabs are left to other launches.
// Shared memory: 256 bytes of partial sums.
// Numbers   cosines and sines come from the host (f64 products), so a long position costs no accuracy. Everything is f32
//           until it is stored; bf16 is rounded to nearest even.
// Why       norm, rotation and the scatter into the slab in one pass; a thread owns both halves of a rotated pair.
#include "shared/mma.cuh"
#include "shared/tables.cuh"
#include "shared/lane_sum.cuh"

struct Params {
    u32 heads;
    u32 head;
    u32 rot;
    u32 slab;
    float eps;
    u32 norm;
    u32 pad0;
    u32 pad1;
};

constexpr u32 LANES = 64u;

__device__ __forceinline__ void put(float* slab, u32 at, float x) {
    slab[at] = x;
}

__device__ __forceinline__ void put(unsigned short* slab, u32 at, float x) {
    slab[at] = (unsigned short)pack_bf16(x, 0.0f);
}

template <class Element>
__device__ __forceinline__ void write_row(
    const Params& p, const u32* __restrict__ tables, const float* __restrict__ k, const float* __restrict__ v,
    const float* __restrict__ w, Element* slab) {
    const u32 h = blockIdx.x;
    const u32 r = blockIdx.y;
    const u32 lane = threadIdx.x;
    if (r >= tables[ROWS] || h >= p.heads) {
        return;
    }
    const u32 row = record(tables, ROW_TABLE, r, ROW_WORDS);
    if (tables[row + 4u] != p.slab) {
        return;
    }
    const u32 width = p.heads * p.head;
    const u32 start = r * width + h * p.head;
    float sum = 0.0f;
    for (u32 d = lane; d < p.head; d += LANES) {
        sum = fmaf(k[start + d], k[start + d], sum);
    }
    const float mean = lane_sum<LANES>(lane, sum) / (float)p.head;
    // Norm 0: none, and no weights are bound; 1: the factor w; 2: 1 + w.
    const bool normed = p.norm != 0u;
    const float one = p.norm == 1u ? 0.0f : 1.0f;
    const float scale = normed ? 1.0f / sqrtf(mean + p.eps) : 1.0f;
    const auto factor = [&](u32 d) { return one + (normed ? w[d] : 0.0f); };

    const u32 key = tables[row + 5u] * 2u * width + h * p.head;
    const u32 value = key + width;
    const u32 pairs = p.rot / 2u;
    const u32 angle = record(tables, ANGLE_TABLE, tables[row + 3u], p.rot);
    for (u32 d = lane; d < pairs; d += LANES) {
        const float c = __uint_as_float(tables[angle + d]);
        const float s = __uint_as_float(tables[angle + pairs + d]);
        const float a = k[start + d] * scale * factor(d);
        const float b = k[start + pairs + d] * scale * factor(pairs + d);
        put(slab, key + d, a * c - b * s);
        put(slab, key + pairs + d, b * c + a * s);
    }
    for (u32 d = p.rot + lane; d < p.head; d += LANES) {
        put(slab, key + d, k[start + d] * scale * factor(d));
    }
    for (u32 d = lane; d < p.head; d += LANES) {
        put(slab, value + d, v[start + d]);
    }
}
