// expert_few: C[pair] = A[pair / share]·W[expert]ᵀ for up to 8 pairs of an expert.
//
// Layout    A f32 with rows `lda` apart; W [count, n, k] f32, bf16 or FP8 (WEIGHT 0, 1, 2), the last with scales
//           [count, ⌈n / 2^shift⌉, ⌈k / 128⌉] f32; C rows `ldc` apart, written from column `column` on. k and lda are
//           multiples of 4.
// Grid      x covers n by 8, y = tiles, or pairs where they are not sorted (GROUPED 0); a workgroup of 64 computes 8 columns,
//           8 lanes to a column.
// Workgroup memory: 2 KiB of partial sums. One barrier.
// Numbers   a lane sums every eighth step of four in order, the eight sums are added in order, whatever pairs are in the tile.
//           FP8 weights are widened and multiplied by their scale, which is exact for scales of bf16.
// Why       as gemm_few: reading an expert's weights once is all that counts. Pairs are gathered by their order, so nothing
//           is copied before or after.
#include "experts/params.wgsl"

const COLUMNS: u32 = 8u;
const LANES: u32 = 8u;
const FEW: u32 = 8u;

// Partial sums, [pair, column, lane].
var<workgroup> partial: array<f32, FEW * COLUMNS * LANES>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) id: u32) {
    let tile = tile_of(group.y);
    if (tile.count == 0u) {
        return;
    }
    let column = id / LANES;
    let lane = id % LANES;
    let steps = p.k / 4u;
    // A column past the end reads the last one and is not written.
    let w_column = min(group.x * COLUMNS + column, p.n - 1u);
    let w_row = (tile.expert * p.n + w_column) * steps;
    let scale = scale_row(tile.expert, w_column);
    var rows: array<u32, FEW>;
    for (var i = 0u; i < FEW; i++) {
        if (i < tile.count) {
            rows[i] = pair_at(tile.first + i) / p.share * (p.lda / 4u);
        }
    }
    var sums: array<f32, FEW>;
    for (var s = lane; s < steps; s += LANES) {
        var x = weights(w_row + s);
        if (WEIGHT == 2u) {
            x *= scales[scale + s / 32u];
        }
        for (var i = 0u; i < FEW; i++) {
            if (i < tile.count) {
                let y = a[rows[i] + s];
                sums[i] = fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sums[i]))));
            }
        }
    }
    for (var i = 0u; i < FEW; i++) {
        partial[i * COLUMNS * LANES + id] = sums[i];
    }
    workgroupBarrier();
    let here = id / COLUMNS;
    let col = group.x * COLUMNS + id % COLUMNS;
    if (here >= tile.count || col >= p.n) {
        return;
    }
    let start = id * LANES;
    var sum = 0.0;
    for (var i = 0u; i < LANES; i++) {
        sum += partial[start + i];
    }
    c[pair_at(tile.first + here) * p.ldc + p.column + col] = sum;
}
