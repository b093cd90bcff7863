// expert_combine: out[r] (+)= scale·(Σ_j weight[r, j]·y[r·top + j] + g·shared[r]).
//
// Layout    weight [rows, top], y [rows·top, width], shared_out and out [rows, width], gate [rows], all f32. SHARED 0: no shared
//           expert; 1: g = 1; 2: g = sigmoid(gate[r]).
// Grid      x covers the width by 64, y = rows; one thread per element.
// Shared memory: none.
// Numbers   the sum runs over j in order, the shared expert comes last.
// Why       a thread gathers what belongs to its element instead of experts adding to it: no atomics, and bits that depend
//           on nothing else.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 top;
    u32 accumulate;
    float scale;
};

extern "C" __global__ void __launch_bounds__(64) expert_combine(
    Params p, const u32* __restrict__ tables, const float* __restrict__ weight, const float* __restrict__ y,
    const float* __restrict__ shared_out, const float* __restrict__ gate, float* out) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    const size_t at = (size_t)r * p.width + c;
    float sum = 0.0f;
    for (u32 j = 0u; j < p.top; j++) {
        const size_t pair = (size_t)r * p.top + j;
        sum = fmaf(weight[pair], y[pair * p.width + c], sum);
    }
    if (SHARED == 1u) {
        sum += shared_out[at];
    } else if (SHARED == 2u) {
        sum = fmaf(sigmoid(gate[r]), shared_out[at], sum);
    }
    out[at] = fmaf(p.scale, sum, p.accumulate == 1u ? out[at] : 0.0f);
}
