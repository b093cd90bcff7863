// conv_silu: out[t, c] = silu(Σ_i w[c, i]·x[t−(k−1)+i, c] (+ bias[c])): the short causal convolution, depthwise.
//
// Layout    x, out [rows, C]; w [C, KERNEL + BIAS], oldest tap first, then the bias (BIAS 1); conv tails in the slabs are [k−1, C]. f32.
// Grid      x covers C by 64, y = rows of the launch; one thread per (row, channel).
// Shared memory: none.
// Numbers   taps are added oldest first, then the bias, as in the twin.
// Why       the first k−1 rows of a run take their history from where it lies (rows of this pass, an older chunk's
//           tail, a cached entry's tail): the history table names a source per missing input, so nothing is gathered
//           beforehand. Neighbouring threads read neighbouring channels of the same source.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/history.cuh"

struct Params {
    u32 channels;
    u32 launch;
    u32 pad0;
    u32 pad1;
};

extern "C" __global__ void __launch_bounds__(64) conv_silu(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, const float* __restrict__ w, float* out,
    const float* __restrict__ private_slab, const float* __restrict__ shared0, const float* __restrict__ shared1,
    const float* __restrict__ shared2) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 launch = record(tables, CONV_LAUNCHES, p.launch, CONV_LAUNCH_WORDS);
    if (blockIdx.y >= tables[launch + 3u] || c >= p.channels) {
        return;
    }
    const Sources from = {tables, x, p.channels, private_slab, shared0, shared1, shared2};
    const u32 row = tables[launch + 2u] + blockIdx.y;
    const u32 run = record(tables, RUN_TABLE, tables[record(tables, ROW_TABLE, row, ROW_WORDS)], RUN_WORDS);
    const u32 at = row - tables[run];
    const u32 sources = tables[HISTORY_TABLE] + (tables[run + 4u] + KERNEL - 1u + at) * SOURCE_WORDS;
    float sum = 0.0f;
#pragma unroll
    for (u32 tap = 0u; tap < KERNEL; tap++) {
        const u32 back = KERNEL - 1u - tap;
        float value;
        if (back <= at) {
            value = x[(row - back) * p.channels + c];
        } else {
            value = history(from, sources - back * SOURCE_WORDS, c);
        }
        sum = fmaf(w[c * (KERNEL + BIAS) + tap], value, sum);
    }
    if (BIAS == 1u) {
        sum += w[c * (KERNEL + BIAS) + KERNEL];
    }
    out[row * p.channels + c] = silu(sum);
}
