// What the products of experts share: parameters and tiles.
//
// A pair is a row with one of the `top` experts it goes to: pair row·top + j. GROUPED 1: `groups` holds the pairs in the order
// of their experts (`pairs` words), then tiles of three words: expert, first place in that order, pairs. GROUPED 0: `groups`
// holds the expert of each pair, and each pair is a tile.
#include "shared/tables.cuh"

struct Params {
    u32 n;
    u32 k;
    u32 lda;
    u32 ldc;
    u32 column;
    u32 top;
    u32 share;
    u32 experts;
    u32 first;
    u32 count;
    u32 tile;
    u32 pairs;
    u32 shift;
    u32 pad0;
    u32 pad1;
    u32 pad2;
};

struct Tile {
    // Among those of the shard.
    u32 expert;
    // Place of its first pair in the order.
    u32 first;
    // 0: nothing to do, or by another shard.
    u32 count;
};

// Tile t, if it has pairs whose expert lies in this shard.
__device__ __forceinline__ Tile tile_of(const Params& p, const u32* __restrict__ tables, const u32* __restrict__ groups, u32 t) {
    const u32 pairs = tables[ROWS] * p.top;
    Tile tile = {0u, 0u, 0u};
    if (GROUPED == 0u) {
        if (t < pairs) {
            tile = {groups[t], t, 1u};
        }
    } else if (t < pairs / p.tile + p.experts) {
        const u32* at = groups + p.pairs + 3u * t;
        tile = {at[0], at[1], at[2]};
    }
    // An expert below the first wraps around to a number above any count.
    tile.expert -= p.first;
    tile.count = tile.expert < p.count ? tile.count : 0u;
    return tile;
}

// The pair at a place in the order.
__device__ __forceinline__ u32 pair_at(const u32* __restrict__ groups, u32 place) {
    return GROUPED == 0u ? place : groups[place];
}

// The scale of the first block of a row of an expert's weights.
__device__ __forceinline__ size_t scale_row(const Params& p, u32 expert, u32 row) {
    const u32 rows = (p.n + (1u << p.shift) - 1u) >> p.shift;
    return ((size_t)expert * rows + (row >> p.shift)) * ((p.k + 127u) / 128u);
}
