// expert_sort: the pairs of a pass in the order of their experts, and each expert's pairs in tiles.
//
// Layout    index [rows, top] u32: the expert of each pair. groups: `pairs` words of order, then tiles of three words: expert,
//           first place in the order, pairs (0: nothing). Expert e has the tiles from before / tile + e on, where `before`
//           counts the pairs of the experts before it.
// Grid      x = experts; a block of 256 walks all pairs twice, a thread a piece of neighbours.
// Shared memory: 2 KiB of counts.
// Numbers   integers. Pairs of one expert keep their order, so what is written depends on nothing but the index.
// Why       experts are sorted side by side without atomics: E times the pairs are a few million comparisons of words that
//           the caches hold. Tiles numbered so need no sum over the experts before, at the cost of empty ones.
#include "shared/tables.cuh"

struct Params {
    u32 experts;
    u32 top;
    u32 tile;
    u32 pairs;
};

constexpr u32 LANES = 256u;

extern "C" __global__ void __launch_bounds__(256) expert_sort(
    Params p, const u32* __restrict__ tables, const u32* __restrict__ index, u32* groups) {
    // Pairs of earlier experts, and of this one, up to and including each lane's.
    __shared__ u32 before[LANES];
    __shared__ u32 own[LANES];
    const u32 expert = blockIdx.x;
    const u32 lane = threadIdx.x;
    const u32 pairs = tables[ROWS] * p.top;
    const u32 piece = (pairs + LANES - 1u) / LANES;
    const u32 start = min(lane * piece, pairs);
    const u32 end = min(start + piece, pairs);
    u32 earlier = 0u;
    u32 mine = 0u;
    for (u32 i = start; i < end; i++) {
        const u32 e = index[i];
        earlier += e < expert ? 1u : 0u;
        mine += e == expert ? 1u : 0u;
    }
    before[lane] = earlier;
    own[lane] = mine;
    for (u32 step = 1u; step < LANES; step *= 2u) {
        __syncthreads();
        const u32 more_before = lane >= step ? before[lane - step] : 0u;
        const u32 more_own = lane >= step ? own[lane - step] : 0u;
        __syncthreads();
        before[lane] += more_before;
        own[lane] += more_own;
    }
    __syncthreads();
    const u32 first = before[LANES - 1u];
    const u32 count = own[LANES - 1u];
    u32 place = first + own[lane] - mine;
    for (u32 i = start; i < end; i++) {
        if (index[i] == expert) {
            groups[place] = i;
            place += 1u;
        }
    }
    const u32 last = (first + count) / p.tile + expert;
    for (u32 t = first / p.tile + expert + lane; t <= last; t += LANES) {
        const u32 done = (t - first / p.tile - expert) * p.tile;
        u32* at = groups + p.pairs + 3u * t;
        at[0] = expert;
        at[1] = first + done;
        at[2] = done < count ? min(count - done, p.tile) : 0u;
    }
}
