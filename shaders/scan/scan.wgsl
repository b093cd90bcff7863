// scan: lowers flag `tag` to the index row·cols + column of the first value that is not finite (TEST 0) or above 0 (TEST 1).
//
// Layout    x [rows, row] as bits, columns offset .. offset + cols are looked at; flags [tags], 0xffffffff = clean.
// Grid      x covers cols by 64, y = rows; one invocation per value.
// Workgroup memory: none.
// Numbers   values are judged by their bits: compilers may assume that floats are numbers, of words they know nothing.
// Why       an atomic minimum gives the same answer in any order, and costs nothing where nothing is wrong.
#include "shared/tables.wgsl"

struct Params {
    offset: u32,
    cols: u32,
    row: u32,
    count: u32,
    tag: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read_write> flags: array<atomic<u32>>;

const INFINITY: u32 = 0x7f800000u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    let r = id.y;
    if (r >= tables[p.count] || c >= p.cols) {
        return;
    }
    let bits = x[r * p.row + p.offset + c];
    var bad: bool;
    if (TEST == 1u) {
        // Neither a sign nor zero, and no further than infinity.
        bad = bits != 0u && bits <= INFINITY;
    } else {
        bad = (bits & INFINITY) == INFINITY;
    }
    if (bad) {
        atomicMin(&flags[p.tag], r * p.cols + c);
    }
}
