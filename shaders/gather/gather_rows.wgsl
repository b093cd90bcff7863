// gather_rows: out[i] = x[row of logit i].
//
// Layout    x [rows, width], out [logits, width], f32.
// Grid      x covers the width by 64, y = rows that want logits; one invocation per element.
// Workgroup memory: none.
// Numbers   exact.
// Why       the vocabulary product is the largest of a pass: it runs only over the rows that are sampled.
#include "shared/tables.wgsl"

struct Params {
    width: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let d = id.x;
    let i = id.y;
    if (i >= tables[LOGITS] || d >= p.width) {
        return;
    }
    let row = tables[record(LOGIT_TABLE, i, 1u)];
    out[i * p.width + d] = x[row * p.width + d];
}
