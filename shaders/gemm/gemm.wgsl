// gemm: C (+)= A·Wᵀ for many rows.
//
// Layout    A [m, k] f32 with rows `lda` apart; W [n, k] f32, bf16 or FP8 (WEIGHT 0, 1, 2), the last with scales
//           [⌈n / 2^shift⌉, ⌈k / 128⌉] f32; C rows `ldc` apart, written from column `column` on. k and lda are multiples
//           of 4.
// Grid      x covers n by 32, y covers m by 32; one invocation computes 4×4 results, a workgroup of 8×8 invocations 32×32.
// Workgroup memory: none, no barrier.
// Numbers   a result is one f32 sum over k in order, whatever m, n and the grid are: a row's bits do not depend on the
//           other rows. Weights are widened exactly, FP8 ones multiplied by their scale.
// Why       16 results take 8 loads of four elements a step, which the caches serve to the neighbours that read the same
//           rows; without barriers software drivers run it at twice the speed of a tile in workgroup memory. W is bound as
//           pairs of words, because a row of bf16 starts at a multiple of 8 bytes only. Rows and columns past the end are
//           read as the last one and not written, so the loop has no branch.
#include "shared/tables.wgsl"

struct Params {
    m: u32,
    n: u32,
    k: u32,
    lda: u32,
    ldc: u32,
    column: u32,
    count: u32,
    shift: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> scales: array<f32>;
@group(0) @binding(5) var<storage, read_write> c: array<f32>;
#include "shared/weights.wgsl"

fn put(row: u32, col: u32, rows: u32, sums: vec4<f32>) {
    if (row >= rows) {
        return;
    }
    let at = row * p.ldc + p.column + col;
    for (var j = 0u; j < 4u; j++) {
        if (col + j < p.n) {
            if (ACCUMULATE == 1u) {
                c[at + j] += sums[j];
            } else {
                c[at + j] = sums[j];
            }
        }
    }
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // Selected, not branched on: see not_unrolled.
    let counted = p.count != 0xffffffffu;
    let rows = min(p.m, select(p.m, tables[select(0u, p.count, counted)], counted));
    let row = 4u * id.y;
    let col = 4u * id.x;
    if (row >= rows || col >= p.n) {
        return;
    }
    let steps = p.k / 4u;
    let last = rows - 1u;
    let a_rows = p.lda / 4u * min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(last));
    let columns = min(vec4(col) + vec4(0u, 1u, 2u, 3u), vec4(p.n - 1u));
    let w_rows = steps * columns;
    let blocks = (columns >> vec4(p.shift)) * ((p.k + 127u) / 128u);
    var scale = vec4(1.0);
    var sum0 = vec4(0.0);
    var sum1 = vec4(0.0);
    var sum2 = vec4(0.0);
    var sum3 = vec4(0.0);
    // From id.z, which is 0 but no constant, for the same reason.
    for (var s = id.z; s < steps; s++) {
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
    put(row, col, rows, sum0);
    put(row + 1u, col, rows, sum1);
    put(row + 2u, col, rows, sum2);
    put(row + 3u, col, rows, sum3);
}
