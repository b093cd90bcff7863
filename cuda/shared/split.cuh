// split: f32 as the sum of two bf16.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/mma.cuh"

// Two floats as the sum of two pairs of bf16, which keep 16 bits of each.
struct Split {
    u32 high;
    u32 low;
};

__device__ __forceinline__ Split split(float x, float y) {
    const u32 high = pack_bf16(x, y);
    return {high, pack_bf16(x - bf16_low(high), y - bf16_high(high))};
}
