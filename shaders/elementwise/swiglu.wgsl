// swiglu: x ← silu(x)·up in place.
//
// Layout    x, up [rows, width] f32.
// Grid      x covers the width by 64, y = rows; one invocation per element.
// Workgroup memory: none.
// Numbers   silu does not overflow, see math.wgsl.
// Why       in place: the widest activation of a layer is not written twice.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    head: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    let at = r * p.width + c;
    x[at] = silu(x[at]) * up[at];
}
