// router: the k experts of each row, best first, and their weights.
//
// MODE 0: softmax over all experts, the k most probable. 1: the k largest logits, softmax over them. 2: sigmoid scores s;
// choice = s + bias, the `keep` groups with the largest sum of their two best choices, the k best choices in them;
// weights from s. With renormalise = 1 weights are divided by their sum; `scale` comes last.
//
// Layout    logits [rows, experts]; bias [experts] (MODE 2); index [rows, top] u32; weight [rows, top] f32.
// Grid      x = rows; one block of 64 per row, its threads stride over the experts.
// Shared memory: 8.9 KiB: a choice and its order for up to 1024 experts, up to 64 chosen ones, partial sums.
// Numbers   order is decided on words that sort as the numbers do, equal ones by index, so that every expert has a rank of
//           its own, whatever it is. Weights of a row are added best first.
// Why       an expert's rank is the number of those before it: E/64·E comparisons a thread and two barriers, against
//           a tree of barriers for each of the k. E is a few hundred.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/lane_sum.cuh"

struct Params {
    u32 experts;
    u32 top;
    u32 groups;
    u32 keep;
    u32 renormalise;
    float scale;
    u32 pad0;
    u32 pad1;
};

constexpr u32 LANES = 64u;
constexpr u32 MOST_EXPERTS = 1024u;
constexpr u32 MOST_CHOSEN = 64u;
constexpr float LOWEST = -3.40282346e+38f;

// A word that orders as the number does, for every bit pattern; 0 and −0 are equal. The lowest word is left free.
__device__ __forceinline__ u32 order(float x) {
    const u32 word = __float_as_uint(x);
    const u32 bits = word == 0x80000000u ? 0u : word;
    return max(bits >= 0x80000000u ? ~bits : bits | 0x80000000u, 1u);
}

extern "C" __global__ void __launch_bounds__(64) router(
    Params p, const u32* __restrict__ tables, const float* __restrict__ logits, const float* __restrict__ bias,
    u32* index, float* weight) {
    __shared__ float choices[MOST_EXPERTS];
    __shared__ u32 keys[MOST_EXPERTS];
    __shared__ u32 groups[MOST_CHOSEN];
    __shared__ u32 chosen[MOST_CHOSEN];
    __shared__ float weights[MOST_CHOSEN];
    const u32 r = blockIdx.x;
    const u32 lane = threadIdx.x;
    if (r >= tables[ROWS]) {
        return;
    }
    const u32 row = r * p.experts;
    for (u32 e = lane; e < p.experts; e += LANES) {
        float choice = logits[row + e];
        if (MODE == 2u) {
            choice = sigmoid(choice) + bias[e];
        }
        choices[e] = choice;
        keys[e] = order(choice);
    }
    __syncthreads();
    if (MODE == 2u) {
        const u32 size = p.experts / p.groups;
        if (lane < p.groups) {
            float first = LOWEST;
            float second = LOWEST;
            for (u32 e = lane * size; e < lane * size + size; e++) {
                const float choice = choices[e];
                second = fmaxf(second, fminf(first, choice));
                first = fmaxf(first, choice);
            }
            groups[lane] = order(first + second);
        }
        __syncthreads();
        if (lane < p.groups) {
            u32 rank = 0u;
            for (u32 g = 0u; g < p.groups; g++) {
                const bool before = groups[g] > groups[lane] || (groups[g] == groups[lane] && g < lane);
                rank += before ? 1u : 0u;
            }
            if (rank >= p.keep) {
                for (u32 e = lane * size; e < lane * size + size; e++) {
                    keys[e] = 0u;
                }
            }
        }
        __syncthreads();
    }
    for (u32 e = lane; e < p.experts; e += LANES) {
        const u32 key = keys[e];
        u32 rank = 0u;
        for (u32 other = 0u; other < p.experts; other++) {
            const bool before = keys[other] > key || (keys[other] == key && other < e);
            rank += before ? 1u : 0u;
        }
        if (rank < p.top) {
            chosen[rank] = e;
        }
    }
    __syncthreads();
    const float largest = logits[row + chosen[0]];
    if (lane < p.top) {
        const float x = logits[row + chosen[lane]];
        if (MODE == 2u) {
            weights[lane] = sigmoid(x);
        } else {
            weights[lane] = expf(x - largest);
        }
    }
    // Of all experts, for a softmax whose chosen part is not renormalised.
    float all_experts = 0.0f;
    if (MODE == 0u) {
        for (u32 e = lane; e < p.experts; e += LANES) {
            all_experts += expf(choices[e] - largest);
        }
        all_experts = lane_sum<LANES>(lane, all_experts);
    } else {
        __syncthreads();
    }
    float sum = 0.0f;
    for (u32 i = 0u; i < p.top; i++) {
        sum += weights[i];
    }
    if (MODE == 0u) {
        sum = p.renormalise == 1u ? sum : all_experts;
    } else if (MODE == 2u) {
        sum = p.renormalise == 1u ? sum + 1e-20f : 1.0f;
    }
    if (lane < p.top) {
        index[r * p.top + lane] = chosen[lane];
        weight[r * p.top + lane] = weights[lane] / sum * p.scale;
    }
}
