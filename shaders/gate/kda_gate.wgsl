// kda_gate: the gates of Kimi delta attention. g = −exp(A_log)·softplus(f + dt_bias), with BOUNDED 1
// g = bound·sigmoid(exp(A_log)·(f + dt_bias)); with BETA 1 beta = sigmoid(b) behind them.
//
// Layout    f [rows, width], width = H·K; b [rows, H]; a_log [H]; dt_bias [width]; out [rows, row]: g, then beta. f32.
// Grid      x covers width (BETA 1: width + H) by 64, y = rows; one invocation per (row, result).
// Workgroup memory: none.
// Numbers   g stays in log space; softplus keeps its relative accuracy where it is small, see math.wgsl.
// Why       g and beta of a row lie together, so that the chain kernel finds both behind one row offset.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    head: u32,
    row: u32,
    bound: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> f: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<f32>;
@group(0) @binding(4) var<storage, read> a_log: array<f32>;
@group(0) @binding(5) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[ROWS]) {
        return;
    }
    let to = r * p.row + c;
    if (c < p.width) {
        let a = exp(a_log[c / p.head]);
        let x = f[r * p.width + c] + dt_bias[c];
        if (BOUNDED == 1u) {
            out[to] = p.bound * sigmoid(a * x);
        } else {
            out[to] = -a * softplus(x);
        }
    } else if (BETA == 1u) {
        let heads = p.width / p.head;
        let h = c - p.width;
        if (h < heads) {
            out[to] = sigmoid(b[r * heads + h]);
        }
    }
}
