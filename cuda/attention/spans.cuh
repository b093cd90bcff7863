// spans: what the attention kernels read of the tables.
#include "shared/tables.cuh"

// The running maximum before any key: finite, so that differences with it are numbers.
constexpr float NO_KEY = -3.0e38f;

// log2(e): softmax by powers of two.
constexpr float LOG2_E = 1.44269504f;

// Which binding holds KV slab `slab` in the launch at word `launch`; KV_SLABS if none.
__device__ __forceinline__ u32 binding_of(const u32* __restrict__ tables, u32 launch, u32 slab) {
    const u32 count = min(tables[launch], KV_SLABS);
    for (u32 i = 0u; i < count; i++) {
        if (tables[launch + 4u + i] == slab) {
            return i;
        }
    }
    return KV_SLABS;
}

// Keys of the span at word `span` that a row at `position` sees: key j is at the span's first position + j.
__device__ __forceinline__ u32 visible_keys(const u32* __restrict__ tables, u32 span, u32 position) {
    const u32 before = position + 1u - min(tables[span + 3u], position + 1u);
    return min(before, tables[span + 2u]);
}
