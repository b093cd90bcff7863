// gla_gate: g = ln sigmoid(x) / normaliser: the log-decays of gated linear attention, one a key dimension.
//
// Layout    x [rows, width], width = HV·K; out [rows, row], the first width of a row are written. f32.
// Grid      x covers the width by 64, y = rows; one thread per (row, gate).
// Shared memory: none.
// Numbers   ln sigmoid(x) = −softplus(−x), which keeps its relative accuracy where it is small, see math.cuh.
// Why       a row of gates is what the chain kernel reads; its length is the caller's.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 row;
    float normaliser;
    u32 pad;
};

extern "C" __global__ void __launch_bounds__(64) gla_gate(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, float* out) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    out[r * p.row + c] = -softplus(-x[r * p.width + c]) / p.normaliser;
}
