// attention_join: outputs and statistics of a launch from those of its parts.
//
// Layout    part_out [parts, rows, heads·HEAD], part_stats [parts, rows, heads, 2] (maximum of q·k, sum of weights): what
//           each part of the keys saw; out [rows, heads·HEAD], stats [rows, heads, 2]. f32.
// Grid      x = heads, y = rows; one block of 128 per (row, head), a thread for each part.
// Shared memory: 2.6 KiB.
// Numbers   weights are 2^((m_part − m)·scale·log2 e), m the largest maximum. Sums have one order, that of the parts, so a
//           row's bits depend on how many parts there are and on nothing else.
// Why       a part without a key for this query has the sum 0: its values are neither written nor read. Four elements a
//           thread; the rest of the block takes other parts, so that loads of many parts are under way at once.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "attention/exp2.cuh"
#include "attention/params.cuh"
#include "attention/spans.cuh"

constexpr u32 THREADS = 128u;
constexpr u32 QUADS = HEAD / 4u;
// Parts that are read side by side.
constexpr u32 LANES = THREADS / QUADS;

extern "C" __global__ void __launch_bounds__(128) attention_join(
    Params p, const u32* __restrict__ tables, const float* __restrict__ part_stats,
    const float4* __restrict__ part_out, float* stats, float4* out) {
    __shared__ float weights[THREADS];
    __shared__ float tops[4];
    __shared__ float totals[4];
    __shared__ float4 values[THREADS];
    const u32 r = blockIdx.y;
    const u32 thread = threadIdx.x;
    if (r >= tables[ROWS] || blockIdx.x >= p.heads) {
        return;
    }
    const u32 place = r * p.heads + blockIdx.x;
    const u32 stride = p.rows * p.heads;
    float top = NO_KEY;
    float sum = 0.0f;
    if (thread < p.parts) {
        const u32 at = 2u * (thread * stride + place);
        sum = part_stats[at + 1u];
        top = sum > 0.0f ? part_stats[at] : NO_KEY;
    }
    // What earlier launches saw.
    const float old_top = p.first == 1u ? NO_KEY : stats[2u * place];
    const float old_sum = p.first == 1u ? 0.0f : stats[2u * place + 1u];
    float most = top;
    for (u32 lane = 16u; lane > 0u; lane /= 2u) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
    }
    if (thread % 32u == 0u) {
        tops[thread / 32u] = most;
    }
    __syncthreads();
    most = fmaxf(fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3])), old_top);
    const float factor = p.scale * LOG2_E;
    const float weight = sum > 0.0f ? exp2_flushed((top - most) * factor) : 0.0f;
    weights[thread] = weight;
    float total = weight * sum;
    for (u32 lane = 16u; lane > 0u; lane /= 2u) {
        total += __shfl_xor_sync(0xffffffffu, total, lane);
    }
    if (thread % 32u == 0u) {
        totals[thread / 32u] = total;
    }
    __syncthreads();
    const float old_weight = old_sum > 0.0f ? exp2_flushed((old_top - most) * factor) : 0.0f;
    total = (totals[0] + totals[1]) + (totals[2] + totals[3]) + old_weight * old_sum;

    const u32 quad = thread % QUADS;
    float4 acc = all(0.0f);
#pragma unroll 4
    for (u32 part = thread / QUADS; part < p.parts; part += LANES) {
        if (weights[part] > 0.0f) {
            acc = fused(weights[part], part_out[(size_t)(part * stride + place) * QUADS + quad], acc);
        }
    }
    values[thread] = acc;
    __syncthreads();
    if (thread < QUADS) {
        for (u32 i = 1u; i < LANES; i++) {
            acc = plus(acc, values[i * QUADS + quad]);
        }
        const size_t to = (size_t)place * QUADS + quad;
        if (old_weight > 0.0f) {
            acc = fused(old_weight, out[to], acc);
        }
        if (p.last == 1u && total > 0.0f) {
            acc = times(all(1.0f / total), acc);
        }
        out[to] = acc;
    }
    if (thread == 0u) {
        stats[2u * place] = most;
        stats[2u * place + 1u] = total;
    }
}
