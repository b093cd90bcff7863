// conv_tail: writes conv tails, the last k−1 raw inputs of a run, into the private slab.
//
// Layout    x [rows, C]; a tail is [k−1, C] f32 at its destination word; its k−1 sources are named oldest first.
// Grid      x covers C by 64, y = tails of the launch; one invocation per (tail, channel).
// Workgroup memory: none.
// Numbers   exact.
// Why       a short run's tail keeps part of the tail that it overwrites, shifted. An invocation owns a channel of the
//           whole tail and reads all of it before it writes, so that needs no second buffer and no barrier. Two tails
//           of one launch must not share words.
#include "shared/tables.wgsl"

struct Params {
    channels: u32,
    launch: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> private_slab: array<f32>;
@group(0) @binding(4) var<storage, read> shared0: array<f32>;
@group(0) @binding(5) var<storage, read> shared1: array<f32>;
@group(0) @binding(6) var<storage, read> shared2: array<f32>;

const TAIL: u32 = KERNEL - 1u;

#include "shared/history.wgsl"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let launch = record(TAIL_LAUNCHES, p.launch, LAUNCH_WORDS);
    if (id.y >= tables[launch + 1u] || c >= p.channels) {
        return;
    }
    let tail = record(TAIL_TABLE, tables[launch] + id.y, 2u + TAIL * SOURCE_WORDS);
    var values: array<f32, TAIL>;
    for (var i = 0u; i < TAIL; i++) {
        values[i] = history(tail + 2u + i * SOURCE_WORDS, c);
    }
    let to = tables[tail] + c;
    for (var i = 0u; i < TAIL; i++) {
        private_slab[to + i * p.channels] = values[i];
    }
}
