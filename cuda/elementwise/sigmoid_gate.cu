// sigmoid_gate: x ← x·sigmoid(gate) in place: the output gate of gated attention.
//
// Layout    qg [rows, heads, 2·head]: each head's query, then its gate; x [rows, heads·head]; f32, width = heads·head.
// Grid      x covers the width by 64, y = rows; one thread per element.
// Shared memory: none.
// Numbers   sigmoid does not overflow, see math.cuh.
// Why       the gate is read where the projection left it, interleaved with the query: no copy to split the two.
#include "shared/tables.cuh"
#include "shared/math.cuh"

struct Params {
    u32 width;
    u32 head;
    u32 pad0;
    u32 pad1;
};

extern "C" __global__ void __launch_bounds__(64) sigmoid_gate(
    Params p, const u32* __restrict__ tables, const float* __restrict__ qg, float* x) {
    const u32 c = blockIdx.x * 64u + threadIdx.x;
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS] || c >= p.width) {
        return;
    }
    const u32 head = c / p.head;
    // (2·head + 1)·size is where the head's gate starts; c − head·size is the element in it.
    const u32 gate = 2u * r * p.width + (head + 1u) * p.head + c;
    const u32 at = r * p.width + c;
    x[at] = x[at] * sigmoid(qg[gate]);
}
