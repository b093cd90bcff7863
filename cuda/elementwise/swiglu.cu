// swiglu: x ← silu(x)·up in place.
//
// Layout    x, up [rows, width] f32.
// Grid      x covers the width by 64, y = rows; one thread per element.
// Shared memory: none.
// Numbers   silu does not overflow, see math.cuh.
// Why       in place: the widest activation of a layer is not written twice.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 head;
    u32 pad0;
    u32 pad1;
};

extern "C" __global__ void __launch_bounds__(64) swiglu(
    Params p, const u32* __restrict__ tables, const float* __restrict__ up, float* x) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    const u32 at = r * p.width + c;
    x[at] = silu(x[at]) * up[at];
}
