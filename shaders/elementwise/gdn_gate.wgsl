// gdn_gate: g = −exp(A_log)·softplus(a + dt_bias), beta = sigmoid(b): the gates of the gated delta rule.
//
// Layout    a, b [rows, HV]; a_log, dt_bias [HV]; out [rows, 2·HV]: all g of a row, then all beta. f32, width = HV.
// Grid      x covers HV by 64, y = rows; one invocation per (row, head).
// Workgroup memory: none.
// Numbers   g stays in log space; softplus keeps its relative accuracy where it is small (slow heads), see math.wgsl.
// Why       g and beta of a row lie together, so that the chain kernel finds both behind one row offset.
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
@group(0) @binding(2) var<storage, read> a: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<f32>;
@group(0) @binding(4) var<storage, read> a_log: array<f32>;
@group(0) @binding(5) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let h = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || h >= p.width) {
        return;
    }
    let at = r * p.width + h;
    let to = 2u * r * p.width + h;
    out[to] = -exp(a_log[h]) * softplus(a[at] + dt_bias[h]);
    out[to + p.width] = sigmoid(b[at]);
}
