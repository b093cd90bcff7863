// gla_gate: g = ln sigmoid(x) / normaliser: the log-decays of gated linear attention, one a key dimension.
//
// Layout    x [rows, width], width = HV·K; out [rows, row], the first width of a row are written. f32.
// Grid      x covers the width by 64, y = rows; one invocation per (row, gate).
// Workgroup memory: none.
// Numbers   ln sigmoid(x) = −softplus(−x), which keeps its relative accuracy where it is small, see math.wgsl.
// Why       a row of gates is what the chain kernel reads; its length is the caller's.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    row: u32,
    normaliser: f32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    out[r * p.row + c] = -softplus(-x[r * p.width + c]) / p.normaliser;
}
