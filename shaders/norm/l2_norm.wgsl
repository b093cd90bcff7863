// l2_norm: x ← x·rsqrt(Σx²+eps) per head in place, then ·scale for the first `scaled` heads (the queries).
//
// Layout    head g of row r starts at r·row + g·width; heads 0..groups are normalised, the rest of a row is kept. f32.
// Grid      x = groups, y = rows; one workgroup of 64 per (row, head).
// Workgroup memory: 256 bytes of partial sums.
// Numbers   a zero head stays zero for eps > 0.
// Why       in place on the convolution's output: q and k lie at the start of a row, v behind them is not touched.
//           An invocation writes only elements that it alone read, so no copy is needed.
#include "shared/tables.wgsl"

struct Params {
    row: u32,
    groups: u32,
    width: u32,
    scaled: u32,
    eps: f32,
    scale: f32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

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
    let norm = inverseSqrt(lane_sum(lane, sum) + p.eps);
    let scale = select(1.0, p.scale, g < p.scaled);
    for (var d = lane; d < p.width; d += LANES) {
        x[at + d] = x[at + d] * norm * scale;
    }
}
