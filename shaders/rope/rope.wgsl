// rope: rotates the first `rot` dimensions of the first `heads` heads of a row in place, by the row's position.
//
// Layout    x [rows, row], heads of `head` at the start of a row (q, then k); the rest of a row is kept. f32.
//           Pairs are (i, i + rot/2), with INTERLEAVED 1 (2i, 2i + 1), left where they are.
// Grid      x covers heads·rot/2 by 64, y = rows; one invocation per pair.
// Workgroup memory: none.
// Numbers   cosines and sines come from the host (f64 products), so a long position costs no accuracy.
// Why       in place on rows that a chain reads next; an invocation owns both members of its pair, so no copy is needed.
#include "shared/tables.wgsl"

struct Params {
    row: u32,
    heads: u32,
    head: u32,
    rot: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let r = id.y;
    let pairs = p.rot / 2u;
    if (r >= tables[ROWS] || id.x >= p.heads * pairs) {
        return;
    }
    let i = id.x % pairs;
    let row = record(ROW_TABLE, r, ROW_WORDS);
    let angle = record(ANGLE_TABLE, tables[row + 2u], p.rot);
    let c = bitcast<f32>(tables[angle + i]);
    let s = bitcast<f32>(tables[angle + pairs + i]);
    let start = r * p.row + id.x / pairs * p.head;
    let first = start + select(i, 2u * i, INTERLEAVED == 1u);
    let second = select(first + pairs, first + 1u, INTERLEAVED == 1u);
    let a = x[first];
    let b = x[second];
    x[first] = a * c - b * s;
    x[second] = b * c + a * s;
}
