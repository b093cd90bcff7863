// gemm_few: C (+)= A·Wᵀ for up to 8 rows (decode), where reading W once is all that counts.
//
// Layout    as gemm: A [m, k] f32 with rows `lda` apart; W [n, k] f32, bf16 or FP8 (WEIGHT 0, 1, 2), the last with
//           scales [⌈n / 2^shift⌉, ⌈k / 128⌉] f32; C rows `ldc` apart, written from column `column` on. k and lda are
//           multiples of 4.
// Grid      x covers n by 8, y covers m by 8; a workgroup of 64 computes 8 columns, 8 lanes to a column.
// Workgroup memory: 2 KiB of partial sums. One barrier.
// Numbers   a lane sums every eighth step of four in order, the eight sums are added in order. gemm sums in another
//           order, so a row's bits may differ between the two kernels.
// Why       lanes of a column read neighbouring pieces of its row of W, 64 bytes together for bf16; each piece is used
//           for all rows at once. Rows that do not exist are skipped by a uniform branch, which makes one row cheap.
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

const COLUMNS: u32 = 8u;
const LANES: u32 = 8u;
const FEW: u32 = 8u;

// Partial sums, [row, column, lane].
var<workgroup> partial: array<f32, FEW * COLUMNS * LANES>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) id: u32) {
    // Selected, not branched on: see not_unrolled.
    let counted = p.count != 0xffffffffu;
    let rows = min(p.m, select(p.m, tables[select(0u, p.count, counted)], counted));
    let first = group.y * FEW;
    if (first >= rows) {
        return;
    }
    let here = min(rows - first, FEW);
    let column = id / LANES;
    let lane = id % LANES;
    let steps = p.k / 4u;
    let a_row = p.lda / 4u;
    // A column past the end reads the last one and is not written.
    let w_column = min(group.x * COLUMNS + column, p.n - 1u);
    let w_row = steps * w_column;
    let scale = (w_column >> p.shift) * ((p.k + 127u) / 128u);
    var sums: array<f32, FEW>;
    for (var s = lane; s < steps; s += LANES) {
        var x = weights(w_row + s);
        if (WEIGHT == 2u) {
            x *= scales[scale + s / 32u];
        }
        let at = first * a_row + s;
        for (var i = 0u; i < FEW; i++) {
            if (i < here) {
                let y = a[at + i * a_row];
                sums[i] = fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sums[i]))));
            }
        }
    }
    for (var i = 0u; i < FEW; i++) {
        partial[i * COLUMNS * LANES + id] = sums[i];
    }
    workgroupBarrier();
    let row = id / COLUMNS;
    let col = group.x * COLUMNS + id % COLUMNS;
    if (row >= here || col >= p.n) {
        return;
    }
    let start = id * LANES;
    var sum = 0.0;
    for (var i = 0u; i < LANES; i++) {
        sum += partial[start + i];
    }
    let to = (first + row) * p.ldc + p.column + col;
    if (ACCUMULATE == 1u) {
        c[to] += sum;
    } else {
        c[to] = sum;
    }
}
