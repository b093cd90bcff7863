// kv_write: K ← rope(rmsnorm(k)·(1+w), offset inside the segment), V ← v, into a private KV slab; norm 1: ·w, 0: no norm.
//
// Layout    k, v [rows, heads·head]; w [head]; slab [KV rows, 2, heads·head]: a token's key, then its value. f32.
// Grid      x = heads, y = rows; one workgroup of 64 per (row, head). Rows of other slabs are left to other launches.
// Workgroup memory: 256 bytes of partial sums.
// Numbers   cosines and sines come from the host (f64 products), so a long position costs no accuracy.
// Why       norm, rotation and the scatter into the slab in one pass; an invocation owns both halves of a rotated pair.
#include "shared/tables.wgsl"

struct Params {
    heads: u32,
    head: u32,
    rot: u32,
    slab: u32,
    eps: f32,
    norm: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> w: array<f32>;
@group(0) @binding(5) var<storage, read_write> slab: array<f32>;

const LANES: u32 = 64u;
#include "shared/lane_sum.wgsl"

// The weight of element d of a head; without a norm none is bound, so none is read.
fn factor(weight: f32, d: u32) -> f32 {
    if (weight == 0.0) {
        return 0.0;
    }
    return w[d];
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let h = group.x;
    let r = group.y;
    if (r >= tables[ROWS] || h >= p.heads) {
        return;
    }
    let row = record(ROW_TABLE, r, ROW_WORDS);
    if (tables[row + 4u] != p.slab) {
        return;
    }
    let width = p.heads * p.head;
    let start = r * width + h * p.head;
    var sum = 0.0;
    for (var d = lane; d < p.head; d += LANES) {
        sum += k[start + d] * k[start + d];
    }
    let mean = lane_sum(lane, sum) / f32(p.head);
    // The factor of element d is scale·(one + weight·w[d]).
    let weight = select(1.0, 0.0, p.norm == 0u);
    let one = select(1.0, 0.0, p.norm == 1u);
    let scale = select(inverseSqrt(mean + p.eps), 1.0, p.norm == 0u);

    let key = tables[row + 5u] * 2u * width + h * p.head;
    let value = key + width;
    let pairs = p.rot / 2u;
    let angle = record(ANGLE_TABLE, tables[row + 3u], p.rot);
    for (var d = lane; d < pairs; d += LANES) {
        let c = bitcast<f32>(tables[angle + d]);
        let s = bitcast<f32>(tables[angle + pairs + d]);
        let a = k[start + d] * scale * (one + factor(weight, d));
        let b = k[start + pairs + d] * scale * (one + factor(weight, pairs + d));
        slab[key + d] = a * c - b * s;
        slab[key + pairs + d] = b * c + a * s;
    }
    for (var d = p.rot + lane; d < p.head; d += LANES) {
        slab[key + d] = k[start + d] * scale * (one + factor(weight, d));
    }
    for (var d = lane; d < p.head; d += LANES) {
        slab[value + d] = v[start + d];
    }
}
