// rope: rotates the first `rot` dimensions of the first `heads` heads of a row in place, by the row's position.
//
// Layout    x [rows, row], heads of `head` at the start of a row (q, then k); the rest of a row is kept. f32.
//           Pairs are (i, i + rot/2), with INTERLEAVED 1 (2i, 2i + 1), left where they are.
// Grid      x covers heads·rot/2 by 64, y = rows; one thread per pair.
// Shared memory: none.
// Numbers   cosines and sines come from the host (f64 products), so a long position costs no accuracy.
// Why       in place on rows that a chain reads next; a thread owns both members of its pair, so no copy is needed.
#include "shared/tables.cuh"

struct Params {
    u32 row;
    u32 heads;
    u32 head;
    u32 rot;
};

extern "C" __global__ void __launch_bounds__(64) rope(Params p, const u32* __restrict__ tables, float* x) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    const u32 pairs = p.rot / 2u;
    if (r >= tables[ROWS] || c >= p.heads * pairs) {
        return;
    }
    const u32 i = c % pairs;
    const u32 row = record(tables, ROW_TABLE, r, ROW_WORDS);
    const u32 angle = record(tables, ANGLE_TABLE, tables[row + 2u], p.rot);
    const float cosine = __uint_as_float(tables[angle + i]);
    const float sine = __uint_as_float(tables[angle + pairs + i]);
    const u32 start = r * p.row + c / pairs * p.head;
    const u32 first = start + (INTERLEAVED == 1u ? 2u * i : i);
    const u32 second = INTERLEAVED == 1u ? first + 1u : first + pairs;
    const float a = x[first];
    const float b = x[second];
    x[first] = a * cosine - b * sine;
    x[second] = b * cosine + a * sine;
}
