// blend: y ← a·f(x) + b·y, f the identity or (SILU = 1) silu.
//
// Layout    x, y [rows, width] f32.
// Grid      x covers the width by 64, y = rows; one invocation per element.
// Workgroup memory: none.
// Numbers   a factor of 0 leaves its operand unread: memory that was never written may hold what is no number.
// Why       one pass for a scaled residual stream, a factor in place, or an activation on the way to another place.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    count: u32,
    a: f32,
    b: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[p.count] || c >= p.width) {
        return;
    }
    let at = r * p.width + c;
    var sum = 0.0;
    if (p.a != 0.0) {
        var f = x[at];
        if (SILU == 1u) {
            f = silu(f);
        }
        sum = p.a * f;
    }
    if (p.b != 0.0) {
        sum += p.b * y[at];
    }
    y[at] = sum;
}
