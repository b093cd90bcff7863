// skip: out[r, h, :] += D[h]·v[r, h, :]: the direct path past a recurrence (Mamba-2).
//
// Layout    v at r·row + offset, HV heads of `head`; d [HV]; out [rows, width], width = HV·head. f32.
// Grid      x covers the width by 64, y = rows; one invocation per (row, element).
// Workgroup memory: none.
// Numbers   one product and one sum, which a driver may fuse.
// Why       v is read from the rows of the chain, behind q and k, so that it needs no copy of its own.
#include "shared/tables.wgsl"

struct Params {
    width: u32,
    head: u32,
    row: u32,
    offset: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> d: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    out[r * p.width + c] += d[c / p.head] * v[r * p.row + p.offset + c];
}
