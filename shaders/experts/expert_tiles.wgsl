// expert_tiles: C[pair] = A[pair / share]·W[expert]ᵀ for up to 32 pairs of an expert.
//
// Layout    as expert_few, pairs sorted.
// Grid      x covers n by 32, y = tiles; one invocation computes 4×4 results, a workgroup of 8×8 invocations 32×32.
// Workgroup memory: none, no barrier.
// Numbers   a result is one f32 sum over k in order, whatever pairs are in the tile. FP8 weights are widened and multiplied by
//           their scale, which is exact for scales of bf16.
// Why       as gemm. Pairs and columns past the end are read as the last one and not written, so the loop has no branch.
const GROUPED: u32 = 1u;
#include "experts/params.wgsl"

fn put(here: u32, col: u32, tile: Tile, sums: vec4<f32>) {
    if (here >= tile.count) {
        return;
    }
    let at = pair_at(tile.first + here) * p.ldc + p.column + col;
    for (var j = 0u; j < 4u; j++) {
        if (col + j < p.n) {
            c[at + j] = sums[j];
        }
    }
}

// Where the row of A at a place of the tile begins, in steps of four.
fn a_row(tile: Tile, here: u32) -> u32 {
    return pair_at(tile.first + min(here, tile.count - 1u)) / p.share * (p.lda / 4u);
}

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let tile = tile_of(group.y);
    let row = 4u * lane.y;
    let col = 4u * (group.x * 8u + lane.x);
    if (row >= tile.count || col >= p.n) {
        return;
    }
    let steps = p.k / 4u;
    let columns = min(vec4(col) + vec4(0u, 1u, 2u, 3u), vec4(p.n - 1u));
    let w_rows = steps * (vec4(tile.expert * p.n) + columns);
    let a_rows = vec4(a_row(tile, row), a_row(tile, row + 1u), a_row(tile, row + 2u), a_row(tile, row + 3u));
    let blocks = vec4(
        scale_row(tile.expert, columns.x),
        scale_row(tile.expert, columns.y),
        scale_row(tile.expert, columns.z),
        scale_row(tile.expert, columns.w),
    );
    var scale = vec4(1.0);
    var sum0 = vec4(0.0);
    var sum1 = vec4(0.0);
    var sum2 = vec4(0.0);
    var sum3 = vec4(0.0);
    // From lane.z, which is 0 but no constant: see not_unrolled.
    for (var s = lane.z; s < steps; s++) {
        // Rows of t are the four columns of W at one k.
        var t = transpose(mat4x4(weights(w_rows.x + s), weights(w_rows.y + s), weights(w_rows.z + s), weights(w_rows.w + s)));
        if (WEIGHT == 2u) {
            if (s % 32u == 0u) {
                let b = s / 32u;
                scale = vec4(scales[blocks.x + b], scales[blocks.y + b], scales[blocks.z + b], scales[blocks.w + b]);
            }
            t = mat4x4(t[0] * scale, t[1] * scale, t[2] * scale, t[3] * scale);
        }
        let a0 = a[a_rows.x + s];
        let a1 = a[a_rows.y + s];
        let a2 = a[a_rows.z + s];
        let a3 = a[a_rows.w + s];
        sum0 = fma(vec4(a0.w), t[3], fma(vec4(a0.z), t[2], fma(vec4(a0.y), t[1], fma(vec4(a0.x), t[0], sum0))));
        sum1 = fma(vec4(a1.w), t[3], fma(vec4(a1.z), t[2], fma(vec4(a1.y), t[1], fma(vec4(a1.x), t[0], sum1))));
        sum2 = fma(vec4(a2.w), t[3], fma(vec4(a2.z), t[2], fma(vec4(a2.y), t[1], fma(vec4(a2.x), t[0], sum2))));
        sum3 = fma(vec4(a3.w), t[3], fma(vec4(a3.z), t[2], fma(vec4(a3.y), t[1], fma(vec4(a3.x), t[0], sum3))));
    }
    put(row, col, tile, sum0);
    put(row + 1u, col, tile, sum1);
    put(row + 2u, col, tile, sum2);
    put(row + 3u, col, tile, sum3);
}
