// activation: out = silu(gate)·up, or max(x, 0)².
//
// Layout    KIND 0: x [rows·top, 2·width] holds all of the gate, then all of up; KIND 1: x [rows·top, width]. out
//           [rows·top, width]. f32.
// Grid      x covers the width by 64, y = rows, z = top; one thread per element.
// Shared memory: none.
// Numbers   silu does not overflow, see math.cuh.
// Why       gate and up come from one product, so they lie in one row.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 top;
    u32 pad0;
    u32 pad1;
};

extern "C" __global__ void __launch_bounds__(64) activation(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, float* out) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    if (blockIdx.y >= tables[ROWS] || c >= p.width) {
        return;
    }
    const size_t row = (size_t)blockIdx.y * p.top + blockIdx.z;
    if (KIND == 0u) {
        const float* from = x + 2u * row * p.width + c;
        out[row * p.width + c] = silu(from[0]) * from[p.width];
    } else {
        const float positive = fmaxf(x[row * p.width + c], 0.0f);
        out[row * p.width + c] = positive * positive;
    }
}
