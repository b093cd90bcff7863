// gdn_gate: g = −exp(A_log)·softplus(a + dt_bias), beta = sigmoid(b): the gates of the gated delta rule.
//
// Layout    a, b [rows, HV]; a_log, dt_bias [HV]; out [rows, 2·HV]: all g of a row, then all beta. f32, width = HV.
// Grid      x covers HV by 64, y = rows; one thread per (row, head).
// Shared memory: none.
// Numbers   g stays in log space; softplus keeps its relative accuracy where it is small (slow heads), see math.cuh.
// Why       g and beta of a row lie together, so that the chain kernel finds both behind one row offset.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 head;
    u32 pad0;
    u32 pad1;
};

extern "C" __global__ void __launch_bounds__(64) gdn_gate(
    Params p, const u32* __restrict__ tables, const float* __restrict__ a, const float* __restrict__ b,
    const float* __restrict__ a_log, const float* __restrict__ dt_bias, float* out) {
    const u32 h = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || h >= p.width) {
        return;
    }
    const u32 at = r * p.width + h;
    const u32 to = 2u * r * p.width + h;
    out[to] = -expf(a_log[h]) * softplus(a[at] + dt_bias[h]);
    out[to + p.width] = sigmoid(b[at]);
}
