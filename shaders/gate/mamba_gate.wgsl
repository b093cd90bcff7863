// mamba_gate: dt = clamp(softplus(x + dt_bias), low, high), g = −exp(A_log)·dt, beta = dt: the gates of Mamba-2.
//
// Layout    x [rows, H]; a_log, dt_bias [H]; out [rows, row]: all g of a row, then all beta. f32.
// Grid      x covers H by 64, y = rows; one invocation per (row, head).
// Workgroup memory: none.
// Numbers   softplus keeps its relative accuracy where it is small, see math.wgsl. `high` is finite: drivers may assume
//           that there is no infinity.
// Why       in the names of linear attention dt is the strength of a write, and dt·A the log-decay of the state.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    heads: u32,
    row: u32,
    low: f32,
    high: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> a_log: array<f32>;
@group(0) @binding(4) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let h = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || h >= p.heads) {
        return;
    }
    let dt = min(max(softplus(x[r * p.heads + h] + dt_bias[h]), p.low), p.high);
    let to = r * p.row + h;
    out[to] = -exp(a_log[h]) * dt;
    out[to + p.heads] = dt;
}
