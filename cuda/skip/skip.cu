// skip: out[r, h, :] += D[h]·v[r, h, :]: the direct path past a recurrence (Mamba-2).
//
// Layout    v at r·row + offset, HV heads of `head`; d [HV]; out [rows, width], width = HV·head. f32.
// Grid      x covers the width by 64, y = rows; one thread per (row, element).
// Shared memory: none.
// Numbers   one product and one sum, which the compiler may fuse.
// Why       v is read from the rows of the chain, behind q and k, so that it needs no copy of its own.
#include "shared/tables.cuh"

struct Params {
    u32 width;
    u32 head;
    u32 row;
    u32 offset;
};

extern "C" __global__ void __launch_bounds__(64) skip(
    Params p, const u32* __restrict__ tables, const float* __restrict__ v, const float* __restrict__ d, float* out) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    out[r * p.width + c] += d[c / p.head] * v[r * p.row + p.offset + c];
}
