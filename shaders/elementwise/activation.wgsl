// activation: out = silu(gate)·up, or max(x, 0)².
//
// Layout    KIND 0: x [rows·top, 2·width] holds all of the gate, then all of up; KIND 1: x [rows·top, width]. out
//           [rows·top, width]. f32.
// Grid      x covers the width by 64, y = rows, z = top; one invocation per element.
// Workgroup memory: none.
// Numbers   silu does not overflow, see math.wgsl.
// Why       gate and up come from one product, so they lie in one row.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    top: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    if (id.y >= tables[ROWS] || c >= p.width) {
        return;
    }
    let row = id.y * p.top + id.z;
    if (KIND == 0u) {
        let at = 2u * row * p.width + c;
        out[row * p.width + c] = silu(x[at]) * x[at + p.width];
    } else {
        let positive = max(x[row * p.width + c], 0.0);
        out[row * p.width + c] = positive * positive;
    }
}
