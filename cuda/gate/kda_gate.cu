// kda_gate: the gates of Kimi delta attention. g = −exp(A_log)·softplus(f + dt_bias), with BOUNDED 1
// g = bound·sigmoid(exp(A_log)·(f + dt_bias)); with BETA 1 beta = sigmoid(b) behind them.
//
// Layout    f [rows, width], width = H·K; b [rows, H]; a_log [H]; dt_bias [width]; out [rows, row]: g, then beta. f32.
// Grid      x covers width (BETA 1: width + H) by 64, y = rows; one thread per (row, result).
// Shared memory: none.
// Numbers   g stays in log space; softplus keeps its relative accuracy where it is small, see math.cuh.
// Why       g and beta of a row lie together, so that the chain kernel finds both behind one row offset.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 head;
    u32 row;
    float bound;
};

extern "C" __global__ void __launch_bounds__(64) kda_gate(
    Params p, const u32* __restrict__ tables, const float* __restrict__ f, const float* __restrict__ b,
    const float* __restrict__ a_log, const float* __restrict__ dt_bias, float* out) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS]) {
        return;
    }
    const u32 to = r * p.row + c;
    if (c < p.width) {
        const float a = expf(a_log[c / p.head]);
        const float x = f[r * p.width + c] + dt_bias[c];
        if (BOUNDED == 1u) {
            out[to] = p.bound * sigmoid(a * x);
        } else {
            out[to] = -a * softplus(x);
        }
    } else if (BETA == 1u) {
        const u32 heads = p.width / p.head;
        const u32 h = c - p.width;
        if (h < heads) {
            out[to] = sigmoid(b[r * heads + h]);
        }
    }
}
