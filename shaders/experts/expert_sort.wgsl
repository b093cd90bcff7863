// expert_sort: the pairs of a pass in the order of their experts, and each expert's pairs in tiles.
//
// Layout    index [rows, top] u32: the expert of each pair. groups: `pairs` words of order, then tiles of three words: expert,
//           first place in the order, pairs (0: nothing). Expert e has the tiles from before / tile + e on, where `before`
//           counts the pairs of the experts before it.
// Grid      x = experts; a workgroup of 256 walks all pairs twice, an invocation a piece of neighbours.
// Workgroup memory: 2 KiB of counts.
// Numbers   integers. Pairs of one expert keep their order, so what is written depends on nothing but the index.
// Why       experts are sorted side by side without atomics: E times the pairs are a few million comparisons of words that
//           the caches hold. Tiles numbered so need no sum over the experts before, at the cost of empty ones.
#include "shared/tables.wgsl"

struct Params {
    experts: u32,
    top: u32,
    tile: u32,
    pairs: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> index: array<u32>;
@group(0) @binding(3) var<storage, read_write> groups: array<u32>;

const LANES: u32 = 256u;

// Pairs of earlier experts, and of this one, up to and including each lane's.
var<workgroup> before: array<u32, LANES>;
var<workgroup> own: array<u32, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let expert = group.x;
    let pairs = tables[ROWS] * p.top;
    let piece = (pairs + LANES - 1u) / LANES;
    let start = min(lane * piece, pairs);
    let end = min(start + piece, pairs);
    var earlier = 0u;
    var mine = 0u;
    for (var i = start; i < end; i++) {
        let e = index[i];
        earlier += select(0u, 1u, e < expert);
        mine += select(0u, 1u, e == expert);
    }
    before[lane] = earlier;
    own[lane] = mine;
    for (var step = 1u; step < LANES; step *= 2u) {
        workgroupBarrier();
        var add = vec2(0u);
        if (lane >= step) {
            add = vec2(before[lane - step], own[lane - step]);
        }
        workgroupBarrier();
        before[lane] += add.x;
        own[lane] += add.y;
    }
    workgroupBarrier();
    let first = before[LANES - 1u];
    let count = own[LANES - 1u];
    var place = first + own[lane] - mine;
    for (var i = start; i < end; i++) {
        if (index[i] == expert) {
            groups[place] = i;
            place += 1u;
        }
    }
    let last = (first + count) / p.tile + expert;
    for (var t = first / p.tile + expert + lane; t <= last; t += LANES) {
        let done = (t - first / p.tile - expert) * p.tile;
        let at = p.pairs + 3u * t;
        groups[at] = expert;
        groups[at + 1u] = first + done;
        groups[at + 2u] = select(0u, min(count - done, p.tile), done < count);
    }
}
