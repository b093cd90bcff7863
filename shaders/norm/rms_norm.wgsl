// rms_norm: y = x·rsqrt(mean(x²)+eps)·w per group of a row; with centred = 1 the weight is 1 + w.
//
// Layout    group g of row r of x starts at r·x_row + g·x_group; w [width], or [groups·width] with w_group = width; out [rows, groups·width]. f32.
// Grid      x = groups, y = rows; one workgroup per (row, group), its 128 invocations stride over the width.
// Workgroup memory: 512 bytes of partial sums.
// Numbers   f32 sums: one per invocation, then a tree, so the error grows with width/128 + 7 additions.
// Why       128 covers a head (128) in one step and a hidden row in a few dozen, without subgroup operations.
#include "shared/tables.wgsl"

struct Params {
    groups: u32,
    width: u32,
    x_row: u32,
    x_group: u32,
    count: u32,
    centred: u32,
    eps: f32,
    w_group: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const LANES: u32 = 128u;
#include "shared/lane_sum.wgsl"

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group.x;
    let r = group.y;
    if (r >= tables[p.count] || g >= p.groups) {
        return;
    }
    let start = r * p.x_row + g * p.x_group;
    var sum = 0.0;
    for (var d = lane; d < p.width; d += LANES) {
        sum += x[start + d] * x[start + d];
    }
    let scale = inverseSqrt(lane_sum(lane, sum) / f32(p.width) + p.eps);
    let one = select(0.0, 1.0, p.centred == 1u);
    let to = (r * p.groups + g) * p.width;
    for (var d = lane; d < p.width; d += LANES) {
        out[to + d] = x[start + d] * scale * (one + w[g * p.w_group + d]);
    }
}
