// mamba_gate: dt = clamp(softplus(x + dt_bias), low, high), g = −exp(A_log)·dt, beta = dt: the gates of Mamba-2.
//
// Layout    x [rows, H]; a_log, dt_bias [H]; out [rows, row]: all g of a row, then all beta. f32.
// Grid      x covers H by 64, y = rows; one thread per (row, head).
// Shared memory: none.
// Numbers   softplus keeps its relative accuracy where it is small, see math.cuh. `high` is finite: drivers may assume
//           that there is no infinity.
// Why       in the names of linear attention dt is the strength of a write, and dt·A the log-decay of the state.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 heads;
    u32 row;
    float low;
    float high;
};

extern "C" __global__ void __launch_bounds__(64) mamba_gate(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, const float* __restrict__ a_log,
    const float* __restrict__ dt_bias, float* out) {
    const u32 h = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || h >= p.heads) {
        return;
    }
    const float dt = fminf(fmaxf(softplus(x[r * p.heads + h] + dt_bias[h]), p.low), p.high);
    const u32 to = r * p.row + h;
    out[to] = -expf(a_log[h]) * dt;
    out[to + p.heads] = dt;
}
