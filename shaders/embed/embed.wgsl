// embed: out[r, d] = table[token of r − first, d] for rows whose token lies in this shard; other rows are left alone.
//
// Layout    table [count, width] bf16 (two to a word, low half first; BF16 = 1) or f32; out [rows, width] f32.
// Grid      x covers the width by 64, y = rows; one invocation per element.
// Workgroup memory: none.
// Numbers   exact: a bf16 is the upper half of an f32.
// Why       the shard range is tested here, not on the host, so that one recorded list serves every token: each shard
//           of a table above the binding limit is one launch, and exactly one of them writes a row.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    width: u32,
    first: u32,
    count: u32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let d = id.x;
    let r = id.y;
    if (r >= tables[ROWS] || d >= p.width) {
        return;
    }
    // A token below `first` wraps around to a number above any count.
    let token = tables[record(ROW_TABLE, r, ROW_WORDS) + 6u] - p.first;
    if (token >= p.count) {
        return;
    }
    let at = token * p.width + d;
    if (BF16 == 1u) {
        let word = table[at / 2u];
        out[r * p.width + d] = select(bf16_low(word), bf16_high(word), at % 2u == 1u);
    } else {
        out[r * p.width + d] = bitcast<f32>(table[at]);
    }
}
