// embed: out[r, d] = table[token of r − first, d] for rows whose token lies in this shard; other rows are left alone.
//
// Layout    table [count, width] bf16 (two to a word, low half first; BF16 = 1) or f32; out [rows, width] f32.
// Grid      x covers the width by 64, y = rows; one thread per element.
// Shared memory: none.
// Numbers   exact: a bf16 is the upper half of an f32.
// Why       the shard range is tested here, not on the host, so that one recorded list serves every token: each shard
//           of a table above the binding limit is one launch, and exactly one of them writes a row.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 first;
    u32 count;
    u32 pad;
};

extern "C" __global__ void __launch_bounds__(64) embed(
    Params p, const u32* __restrict__ tables, const u32* __restrict__ table, float* out) {
    const u32 d = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || d >= p.width) {
        return;
    }
    // A token below `first` wraps around to a number above any count.
    const u32 token = tables[record(tables, ROW_TABLE, r, ROW_WORDS) + 6u] - p.first;
    if (token >= p.count) {
        return;
    }
    // A table may have more elements than a word can count.
    const size_t at = (size_t)token * p.width + d;
    if (BF16 == 1u) {
        const u32 word = table[at / 2u];
        out[r * p.width + d] = at % 2u == 1u ? bf16_high(word) : bf16_low(word);
    } else {
        out[r * p.width + d] = __uint_as_float(table[at]);
    }
}
