// l2_norm: x ← x·rsqrt(Σx²+eps) per head in place, then ·scale for the first `scaled` heads (the queries).
//
// Layout    head g of row r starts at r·row + g·width; heads 0..groups are normalised, the rest of a row is kept. f32.
// Grid      x = groups, y = rows; one block of 64 per (row, head).
// Shared memory: 256 bytes of partial sums.
// Numbers   a zero head stays zero for eps > 0.
// Why       in place on the convolution's output: q and k lie at the start of a row, v behind them is not touched.
//           A thread writes only elements that it alone read, so no copy is needed.
#include "shared/tables.cuh"
#include "shared/lane_sum.cuh"

struct Params {
    u32 row;
    u32 groups;
    u32 width;
    u32 scaled;
    float eps;
    float scale;
    u32 pad0;
    u32 pad1;
};

constexpr u32 LANES = 64u;

extern "C" __global__ void __launch_bounds__(64) l2_norm(Params p, const u32* __restrict__ tables, float* x) {
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
    const float norm = 1.0f / sqrtf(lane_sum<LANES>(lane, sum) + p.eps);
    const float scale = g < p.scaled ? p.scale : 1.0f;
    for (u32 d = lane; d < p.width; d += LANES) {
        x[at + d] = x[at + d] * norm * scale;
    }
}
