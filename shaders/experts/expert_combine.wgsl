// expert_combine: out[r] (+)= scale·(Σ_j weight[r, j]·y[r·top + j] + g·shared[r]).
//
// Layout    weight [rows, top], y [rows·top, width], shared_out and out [rows, width], gate [rows], all f32. SHARED 0: no shared
//           expert; 1: g = 1; 2: g = sigmoid(gate[r]).
// Grid      x covers the width by 64, y = rows; one invocation per element.
// Workgroup memory: none.
// Numbers   the sum runs over j in order, the shared expert comes last.
// Why       an invocation gathers what belongs to its element instead of experts adding to it: no atomics, and bits that
//           depend on nothing else.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    top: u32,
    accumulate: u32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> y: array<f32>;
@group(0) @binding(4) var<storage, read> shared_out: array<f32>;
@group(0) @binding(5) var<storage, read> gate: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    let at = r * p.width + c;
    var sum = 0.0;
    for (var j = 0u; j < p.top; j++) {
        let pair = r * p.top + j;
        sum = fma(weight[pair], y[pair * p.width + c], sum);
    }
    if (SHARED == 1u) {
        sum += shared_out[at];
    } else if (SHARED == 2u) {
        sum = fma(sigmoid(gate[r]), shared_out[at], sum);
    }
    out[at] = fma(p.scale, sum, select(0.0, out[at], p.accumulate == 1u));
}
