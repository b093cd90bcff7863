// conv_tail: writes conv tails, the last k−1 raw inputs of a run, into the private slab.
//
// Layout    x [rows, C]; a tail is [k−1, C] f32 at its destination word; its k−1 sources are named oldest first.
// Grid      x covers C by 64, y = tails of the launch; one thread per (tail, channel).
// Shared memory: none.
// Numbers   exact.
// Why       a short run's tail keeps part of the tail that it overwrites, shifted. A thread owns a channel of the
//           whole tail and reads all of it before it writes, so that needs no second buffer and no barrier. Two tails
//           of one launch must not share words.
#include "shared/tables.cuh"
#include "shared/history.cuh"

struct Params {
    u32 channels;
    u32 launch;
    u32 pad0;
    u32 pad1;
};

constexpr u32 TAIL = KERNEL - 1u;

extern "C" __global__ void __launch_bounds__(64) conv_tail(
    Params p, const u32* __restrict__ tables, const float* __restrict__ x, float* private_slab,
    const float* __restrict__ shared0, const float* __restrict__ shared1, const float* __restrict__ shared2) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 launch = record(tables, TAIL_LAUNCHES, p.launch, LAUNCH_WORDS);
    if (blockIdx.y >= tables[launch + 1u] || c >= p.channels) {
        return;
    }
    const Sources from = {tables, x, p.channels, private_slab, shared0, shared1, shared2};
    const u32 tail = record(tables, TAIL_TABLE, tables[launch] + blockIdx.y, 2u + TAIL * SOURCE_WORDS);
    float values[TAIL];
#pragma unroll
    for (u32 i = 0u; i < TAIL; i++) {
        values[i] = history(from, tail + 2u + i * SOURCE_WORDS, c);
    }
    const u32 to = tables[tail] + c;
#pragma unroll
    for (u32 i = 0u; i < TAIL; i++) {
        private_slab[to + i * p.channels] = values[i];
    }
}
