// head_norm: x ← x·rsqrt(mean(x²)+eps)·w per head in place, a weight a channel.
//
// Layout    head g of row r starts at r·row + g·width; heads 0..groups are normalised, the rest of a row is kept. w
//           [groups·width]. f32.
// Grid      x = groups, y = rows; one workgroup of 64 per (row, head).
// Workgroup memory: 256 bytes of partial sums.
// Numbers   the mean in f32; the weight is the last factor.
// Why       in place: q and k lie at the start of the rows that a chain reads, v behind them is not touched. An invocation
//           writes only elements that it alone read, so no copy is needed.
#include "shared/tables.wgsl"

struct Params {
    row: u32,
    groups: u32,
    width: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

const LANES: u32 = 64u;
#include "shared/lane_sum.wgsl"

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group.x;
    let r = group.y;
    if (r >= tables[ROWS] || g >= p.groups) {
        return;
    }
    let at = r * p.row + g * p.width;
    var sum = 0.0;
    for (var d = lane; d < p.width; d += LANES) {
        sum += x[at + d] * x[at + d];
    }
    let scale = inverseSqrt(lane_sum(lane, sum) / f32(p.width) + p.eps);
    for (var d = lane; d < p.width; d += LANES) {
        x[at + d] = x[at + d] * scale * w[g * p.width + d];
    }
}
