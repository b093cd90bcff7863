// rms_norm: y = x·rsqrt(mean(x²)+eps)·w per group of a row; with centred = 1 the weight is 1 + w.
//
// Layout    group g of row r of x starts at r·x_row + g·x_group; w [width], or [groups·width] with w_group = width; out [rows, groups·width]. f32.
// Grid      x = groups, y = rows; one block per (row, group), its 128 threads stride over the width.
// Shared memory: 512 bytes of partial sums.
// Numbers   f32 sums: one per thread, then a tree, so the error grows with width/128 + 7 additions.
// Why       128 covers a head (128) in one step and a hidden row in a few dozen, without subgroup operations.
#include "shared/tables.cuh"
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

extern "C" __global__ void __launch_bounds__(128) rms_norm(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, const float* __restrict__ w, float* out) {
    const u32 g = blockIdx.x;
    const u32 r = blockIdx.y;
    const u32 lane = threadIdx.x;
    if (r >= tables[p.count] || g >= p.groups) {
        return;
    }
    const u32 start = r * p.x_row + g * p.x_group;
    float sum = 0.0f;
    for (u32 d = lane; d < p.width; d += LANES) {
        sum = fmaf(x[start + d], x[start + d], sum);
    }
    const float scale = 1.0f / sqrtf(lane_sum<LANES>(lane, sum) / (float)p.width + p.eps);
    const float one = p.centred == 1u ? 1.0f : 0.0f;
    const u32 to = (r * p.groups + g) * p.width;
    for (u32 d = lane; d < p.width; d += LANES) {
        out[to + d] = x[start + d] * scale * (one + w[g * p.w_group + d]);
    }
}
