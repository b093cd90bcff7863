// blend: y ← a·f(x) + b·y, f the identity or (SILU = 1) silu.
//
// Layout    x, y [rows, width] f32.
// Grid      x covers the width by 64, y = rows; one thread per element.
// Shared memory: none.
// Numbers   a factor of 0 leaves its operand unread: memory that was never written may hold what is no number.
// Why       one pass for a scaled residual stream, a factor in place, or an activation on the way to another place.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 count;
    float a;
    float b;
};

extern "C" __global__ void __launch_bounds__(64) blend(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, float* y) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[p.count] || c >= p.width) {
        return;
    }
    const size_t at = (size_t)r * p.width + c;
    float sum = 0.0f;
    if (p.a != 0.0f) {
        float f = x[at];
        if (SILU == 1u) {
            f = silu(f);
        }
        sum = p.a * f;
    }
    if (p.b != 0.0f) {
        sum = fmaf(p.b, y[at], sum);
    }
    y[at] = sum;
}
