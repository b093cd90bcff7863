// gated_rms_norm: y = x·rsqrt(mean(x²)+eps)·w·gate(z) per group of a row; with centred = 1 the weight is 1 + w.
// GATE 0: gate is silu, 1: sigmoid. GATED_FIRST 1: u = x·gate(z) is what is normalised, y = u·rsqrt(mean(u²)+eps)·w.
//
// Layout    group g of row r of x starts at r·x_row + g·x_group; w [width], or [groups·width] with w_group = width; z, out [rows, groups·width]. f32.
// Grid      x = groups, y = rows; one workgroup per (row, group), its 128 invocations stride over the width.
// Workgroup memory: 512 bytes of partial sums.
// Numbers   as rms_norm; the gates do not overflow.
// Why       the norm and the gate of a linear layer's output in one pass over it.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

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
@group(0) @binding(4) var<storage, read> z: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

const LANES: u32 = 128u;
#include "shared/lane_sum.wgsl"

fn gate(x: f32) -> f32 {
    if (GATE == 1u) {
        return sigmoid(x);
    } else {
        return silu(x);
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group.x;
    let r = group.y;
    if (r >= tables[p.count] || g >= p.groups) {
        return;
    }
    let start = r * p.x_row + g * p.x_group;
    let to = (r * p.groups + g) * p.width;
    var sum = 0.0;
    for (var d = lane; d < p.width; d += LANES) {
        var u = x[start + d];
        if (GATED_FIRST == 1u) {
            u *= gate(z[to + d]);
        }
        sum += u * u;
    }
    let scale = inverseSqrt(lane_sum(lane, sum) / f32(p.width) + p.eps);
    let one = select(0.0, 1.0, p.centred == 1u);
    for (var d = lane; d < p.width; d += LANES) {
        let weight = one + w[g * p.w_group + d];
        if (GATED_FIRST == 1u) {
            out[to + d] = x[start + d] * gate(z[to + d]) * scale * weight;
        } else {
            out[to + d] = x[start + d] * scale * weight * gate(z[to + d]);
        }
    }
}
