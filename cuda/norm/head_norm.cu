// head_norm: x ← x·rsqrt(mean(x²)+eps)·w per head in place, a weight a channel.
//
// Layout    head g of row r starts at r·row + g·width; heads 0..groups are normalised, the rest of a row is kept. w
//           [groups·width]. f32.
// Grid      x = groups, y = rows; one block of 64 per (row, head).
// Shared memory: 256 bytes of partial sums.
// Numbers   the mean in f32; the weight is the last factor.
// Why       in place: q and k lie at the start of the rows that a chain reads, v behind them is not touched. A thread
//           writes only elements that it alone read, so no copy is needed.
#include "shared/tables.cuh"
#include "shared/lane_sum.cuh"

struct Params {
    u32 row;
    u32 groups;
    u32 width;
    float eps;
};

constexpr u32 LANES = 64u;

extern "C" __global__ void __launch_bounds__(64) head_norm(
    Params p, const u32* __restrict__ tables, const float* __restrict__ w, float* x) {
    const u32 g = blockIdx.x;
    const u32 r = blockIdx.y;
    const u32 lane = threadIdx.x;
    if (r >= tables[ROWS] || g >= p.groups) {
        return;
    }
    const u32 at = r * p.row + g * p.width;
    float sum = 0.0f;
    for (u32 d = lane; d < p.width; d += LANES) {
        sum = fmaf(x[at + d], x[at + d], sum);
    }
    const float scale = 1.0f / sqrtf(lane_sum<LANES>(lane, sum) / (float)p.width + p.eps);
    for (u32 d = lane; d < p.width; d += LANES) {
        x[at + d] = x[at + d] * scale * w[g * p.width + d];
    }
}
