// The parameters of the attention kernels that cut keys into parts: `PartParams` of the kernels crate.
#include "shared/tables.cuh"

struct Params {
    u32 heads;
    u32 kv_heads;
    u32 rot;
    u32 launch;
    u32 first;
    u32 last;
    float scale;
    u32 parts;
    u32 rows;
    u32 pad0;
    u32 pad1;
    u32 pad2;
};
