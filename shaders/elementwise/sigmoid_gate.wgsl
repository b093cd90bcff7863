// sigmoid_gate: x ← x·sigmoid(gate) in place: the output gate of gated attention.
//
// Layout    qg [rows, heads, 2·head]: each head's query, then its gate; x [rows, heads·head]; f32, width = heads·head.
// Grid      x covers the width by 64, y = rows; one invocation per element.
// Workgroup memory: none.
// Numbers   sigmoid does not overflow, see math.wgsl.
// Why       the gate is read where the projection left it, interleaved with the query: no copy to split the two.
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
@group(0) @binding(2) var<storage, read> qg: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    let head = c / p.head;
    // (2·head + 1)·size is where the head's gate starts; c − head·size is the element in it.
    let gate = 2u * r * p.width + (head + 1u) * p.head + c;
    let at = r * p.width + c;
    x[at] = x[at] * sigmoid(qg[gate]);
}
