// exp2: 2^x as the special function unit makes it, off by 2 ulp; results below 2^-126 are 0.
//
// exp2f keeps what is smaller than that and takes four instructions; a weight of a softmax that small is nothing.
#include "shared/tables.cuh"

__device__ __forceinline__ float exp2_flushed(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
