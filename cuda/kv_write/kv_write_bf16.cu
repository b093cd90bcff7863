// kv_write_bf16: K ← rope(rmsnorm(k)·(1+w), offset inside the segment), V ← v, into a private KV slab of bf16; see row.cuh.
#include "kv_write/row.cuh"

extern "C" __global__ void __launch_bounds__(64) kv_write_bf16(
    Params p, const u32* __restrict__ tables, const float* __restrict__ k, const float* __restrict__ v,
    const float* __restrict__ w, unsigned short* slab) {
    write_row(p, tables, k, v, w, slab);
}
