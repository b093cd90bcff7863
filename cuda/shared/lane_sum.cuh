// lane_sum: the sum of one value from each thread of a block of LANES threads (a power of two), as a tree.
//
// Called at most once in a kernel, by every thread of a block. Shared memory: 4·LANES bytes.
#include "shared/tables.cuh"

template <u32 LANES>
__device__ __forceinline__ float lane_sum(u32 lane, float value) {
    __shared__ float partial[LANES];
    partial[lane] = value;
    for (u32 half = LANES / 2u; half > 0u; half /= 2u) {
        __syncthreads();
        if (lane < half) {
            partial[lane] += partial[lane + half];
        }
    }
    __syncthreads();
    return partial[0];
}
