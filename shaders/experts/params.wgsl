// What the products of experts share: parameters, bindings, tiles.
//
// A pair is a row with one of the `top` experts it goes to: pair row·top + j. GROUPED 1: `groups` holds the pairs in the order
// of their experts (`pairs` words), then tiles of three words: expert, first place in that order, pairs. GROUPED 0: `groups`
// holds the expert of each pair, and each pair is a tile.
#include "shared/tables.wgsl"

struct Params {
    n: u32,
    k: u32,
    lda: u32,
    ldc: u32,
    column: u32,
    top: u32,
    share: u32,
    experts: u32,
    first: u32,
    count: u32,
    tile: u32,
    pairs: u32,
    shift: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> groups: array<u32>;
@group(0) @binding(3) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> w: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> scales: array<f32>;
@group(0) @binding(6) var<storage, read_write> c: array<f32>;
#include "shared/weights.wgsl"

struct Tile {
    // Among those of the shard.
    expert: u32,
    // Place of its first pair in the order.
    first: u32,
    // 0: nothing to do, or by another shard.
    count: u32,
}

// Tile t, if it has pairs whose expert lies in this shard.
fn tile_of(t: u32) -> Tile {
    let pairs = tables[ROWS] * p.top;
    var tile = Tile(0u, 0u, 0u);
    if (GROUPED == 0u) {
        if (t < pairs) {
            tile = Tile(groups[t], t, 1u);
        }
    } else if (t < pairs / p.tile + p.experts) {
        let at = p.pairs + 3u * t;
        tile = Tile(groups[at], groups[at + 1u], groups[at + 2u]);
    }
    // An expert below the first wraps around to a number above any count.
    tile.expert -= p.first;
    tile.count = select(0u, tile.count, tile.expert < p.count);
    return tile;
}

// The pair at a place in the order.
fn pair_at(place: u32) -> u32 {
    if (GROUPED == 0u) {
        return place;
    }
    return groups[place];
}

// The scale of the first block of a row of an expert's weights.
fn scale_row(expert: u32, row: u32) -> u32 {
    let rows = (p.n + (1u << p.shift) - 1u) >> p.shift;
    return (expert * rows + (row >> p.shift)) * ((p.k + 127u) / 128u);
}
