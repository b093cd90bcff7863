// gather_rows: out[i] = x[row of logit i].
//
// Layout    x [rows, width], out [logits, width], f32.
// Grid      x covers the width by 64, y = rows that want logits; one thread per element.
// Shared memory: none.
// Numbers   exact.
// Why       the vocabulary product is the largest of a pass: it runs only over the rows that are sampled.
#include "shared/tables.cuh"

struct Params {
    u32 width;
    u32 pad0;
    u32 pad1;
    u32 pad2;
};

extern "C" __global__ void __launch_bounds__(64) gather_rows(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, float* out) {
    const u32 d = blockIdx.x * 64u + threadIdx.x;
    const u32 i = blockIdx.y;
    if (i >= tables[LOGITS] || d >= p.width) {
        return;
    }
    const u32 row = tables[record(tables, LOGIT_TABLE, i, 1u)];
    out[i * p.width + d] = x[row * p.width + d];
}
