// scan: lowers flag `tag` to the index row·cols + column of the first value that is not finite (TEST 0) or above 0 (TEST 1).
//
// Layout    x [rows, row] as bits, columns offset .. offset + cols are looked at; flags [tags], 0xffffffff = clean.
// Grid      x covers cols by 64, y = rows; one thread per value.
// Shared memory: none.
// Numbers   values are judged by their bits: compilers may assume that floats are numbers, of words they know nothing.
// Why       an atomic minimum gives the same answer in any order, and costs nothing where nothing is wrong.
#include "shared/tables.cuh"

struct Params {
    u32 offset;
    u32 cols;
    u32 row;
    u32 count;
    u32 tag;
    u32 pad0;
    u32 pad1;
    u32 pad2;
};

constexpr u32 INFINITE = 0x7f800000u;

extern "C" __global__ void __launch_bounds__(64) scan(
    Params p, const u32* __restrict__ tables, const u32* __restrict__ x, u32* flags) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[p.count] || c >= p.cols) {
        return;
    }
    const u32 bits = x[r * p.row + p.offset + c];
    bool bad;
    if (TEST == 1u) {
        // Neither a sign nor zero, and no further than infinity.
        bad = bits != 0u && bits <= INFINITE;
    } else {
        bad = (bits & INFINITE) == INFINITE;
    }
    if (bad) {
        atomicMin(&flags[p.tag], r * p.cols + c);
    }
}
