// conv_silu: out[t, c] = silu(Σ_i w[c, i]·x[t−(k−1)+i, c] (+ bias[c])): the short causal convolution, depthwise.
//
// Layout    x, out [rows, C]; w [C, KERNEL + BIAS], oldest tap first, then the bias (BIAS 1); conv tails in the slabs are [k−1, C]. f32.
// Grid      x covers C by 64, y = rows of the launch; one invocation per (row, channel).
// Workgroup memory: none.
// Numbers   taps are added oldest first, then the bias, as in the twin.
// Why       the first k−1 rows of a run take their history from where it lies (rows of this pass, an older chunk's
//           tail, a cached entry's tail): the history table names a source per missing input, so nothing is gathered
//           beforehand. Neighbouring invocations read neighbouring channels of the same source.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    channels: u32,
    launch: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read> private_slab: array<f32>;
@group(0) @binding(6) var<storage, read> shared0: array<f32>;
@group(0) @binding(7) var<storage, read> shared1: array<f32>;
@group(0) @binding(8) var<storage, read> shared2: array<f32>;

#include "shared/history.wgsl"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let launch = record(CONV_LAUNCHES, p.launch, CONV_LAUNCH_WORDS);
    if (id.y >= tables[launch + 3u] || c >= p.channels) {
        return;
    }
    let row = tables[launch + 2u] + id.y;
    let run = record(RUN_TABLE, tables[record(ROW_TABLE, row, ROW_WORDS)], RUN_WORDS);
    let at = row - tables[run];
    let sources = tables[HISTORY_TABLE] + (tables[run + 4u] + KERNEL - 1u + at) * SOURCE_WORDS;
    var sum = 0.0;
    for (var tap = 0u; tap < KERNEL; tap++) {
        let back = KERNEL - 1u - tap;
        var value: f32;
        if (back <= at) {
            value = x[(row - back) * p.channels + c];
        } else {
            value = history(sources - back * SOURCE_WORDS, c);
        }
        sum += w[c * (KERNEL + BIAS) + tap] * value;
    }
    if (BIAS == 1u) {
        sum += w[c * (KERNEL + BIAS) + KERNEL];
    }
    out[row * p.channels + c] = silu(sum);
}
