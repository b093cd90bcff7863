// kv_write: K ← rope(rmsnorm(k)·(1+w), offset inside the segment), V ← v, into a private KV slab of f32; see row.cuh.
#include "kv_write/row.cuh"

extern "C" __global__ void __launch_bounds__(64) kv_write(
    Params p, const u32* __restrict__ tables, const float* __restrict__ k, const float* __restrict__ v,
    const float* __restrict__ w, float* slab) {
    write_row(p, tables, k, v, w, slab);
}
