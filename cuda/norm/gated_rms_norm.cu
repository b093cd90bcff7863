// gated_rms_norm: y = x·rsqrt(mean(x²)+eps)·w·gate(z) per group of a row; with centred = 1 the weight is 1 + w.
// GATE 0: gate is silu, 1: sigmoid. GATED_FIRST 1: u = x·gate(z) is what is normalised, y = u·rsqrt(mean(u²)+eps)·w.
//
// Layout    group g of row r of x starts at r·x_row + g·x_group; w [width], or [groups·width] with w_group = width; z, out [rows, groups·width]. f32.
// Grid      x = groups, y = rows; one block per (row, group), its 128 threads stride over the width.
// Shared memory: 512 bytes of partial sums.
// Numbers   as rms_norm; the gates do not overflow.
// Why       the norm and the gate of a linear layer's output in one pass over it.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/lane_sum.cuh"

struct Params {
    u32 groups;
    u32 width;
    u32 x_row;
    u32 x_group;
    u32 count;
    u32 centred;
    float eps;
    u32 w_group;
};

constexpr u32 LANES = 128u;

__device__ __forceinline__ float gate(float x) {
    return GATE == 1u ? sigmoid(x) : silu(x);
}

extern "C" __global__ void __launch_bounds__(128) gated_rms_norm(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, const float* __restrict__ w,
    const float* __restrict__ z, float* out) {
    const u32 g = blockIdx.x;
    const u32 r = blockIdx.y;
    const u32 lane = threadIdx.x;
    if (r >= tables[p.count] || g >= p.groups) {
        return;
    }
    const u32 start = r * p.x_row + g * p.x_group;
    const u32 to = (r * p.groups + g) * p.width;
    float sum = 0.0f;
    for (u32 d = lane; d < p.width; d += LANES) {
        float u = x[start + d];
        if (GATED_FIRST == 1u) {
            u *= gate(z[to + d]);
        }
        sum = fmaf(u, u, sum);
    }
    const float scale = 1.0f / sqrtf(lane_sum<LANES>(lane, sum) / (float)p.width + p.eps);
    const float one = p.centred == 1u ? 1.0f : 0.0f;
    for (u32 d = lane; d < p.width; d += LANES) {
        const float weight = one + w[g * p.w_group + d];
        if (GATED_FIRST == 1u) {
            out[to + d] = x[start + d] * gate(z[to + d]) * scale * weight;
        } else {
            out[to + d] = x[start + d] * scale * weight * gate(z[to + d]);
        }
    }
}
