// sample: the next token of each row that wanted logits, and its log-probability under the unmodified logits.
//
// Temperature, top-k, top-p, min-p and the draw, in this order; temperature 0 takes the highest logit, the first of equal
// ones. A row with a logit that is not finite gives 0xffffffff and the first such token.
//
// Layout    logits [rows, vocab]; choices [rows, 8]: temperature, top_k, top_p·2^32, min_p, draw (low, high), 0, 0;
//           out [rows, 2]: token, log-probability.
// Grid      x = rows; one block of 256 per row, its threads stride over the logits.
// Shared memory: 5.1 KiB: 256 bins and 256 partial sums of 64 bits, partial sums of f32, a few scalars.
// Numbers   a weight exp((logit − highest)/temperature) is counted in units of 2^-44, exact but for what is below; sums are
//           integers of 64 bits, the same in any order. So the choice depends on a device by its exp alone.
// Why       top-k and top-p are thresholds on words that sort as the logits do: four digits of 8 bits, from a histogram of
//           counts or weights each. A lane collects neighbours of one bin before it adds them: few atomics where many values
//           share a digit. The draw walks blocks of tokens, one a thread, in the order of their ids.
#include "shared/tables.cuh"
#include "shared/lane_sum.cuh"

struct Params {
    u32 vocab;
    u32 pad0;
    u32 pad1;
    u32 pad2;
};

typedef unsigned long long u64;

constexpr u32 LANES = 256u;
constexpr u32 NONE = 0xffffffffu;
constexpr u32 INFINITE = 0x7f800000u;
// Loads of a lane that are under way at once: one block must hide the latency of a whole row by itself.
constexpr u32 AHEAD = 8u;

// Calls f(i, logit i) for every token of a lane, in order.
template <class F>
__device__ __forceinline__ void every(u32 lane, const float* __restrict__ logits, u32 vocab, F f) {
    for (u32 base = lane; base < vocab; base += AHEAD * LANES) {
        float x[AHEAD];
#pragma unroll
        for (u32 j = 0u; j < AHEAD; j++) {
            const u32 i = base + j * LANES;
            x[j] = i < vocab ? logits[i] : 0.0f;
        }
#pragma unroll
        for (u32 j = 0u; j < AHEAD; j++) {
            const u32 i = base + j * LANES;
            if (i < vocab) {
                f(i, x[j]);
            }
        }
    }
}

struct Shared {
    // Bins: the two words of sums.
    u32 low[LANES];
    u32 high[LANES];
    // Of each lane: a sum, or its best key and where that stands.
    u64 lanes[LANES];
    u64 above;
    u64 want;
    u32 bad;
    u32 digit;
    u32 ties;
    u32 owner;
};

// A word that orders as the number does; 0 and −0 are equal.
__device__ __forceinline__ u32 order(float x) {
    const u32 word = __float_as_uint(x);
    const u32 bits = word == 0x80000000u ? 0u : word;
    return bits >= 0x80000000u ? ~bits : bits | 0x80000000u;
}

// And back.
__device__ __forceinline__ float value(u32 key) {
    return __uint_as_float(key >= 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ float weight(float x, float highest, float temperature) {
    return fminf(expf(fmaxf((x - highest) / temperature, -120.0f)), 1.0f);
}

// A weight in units of 2^-44.
__device__ __forceinline__ u64 fixed_point(float w) {
    const float scaled = w * 4096.0f;
    const float whole = floorf(scaled);
    return (u64)(u32)whole << 32 | (u32)((scaled - whole) * 4294967296.0f);
}

__device__ __forceinline__ u64 bin_of(const Shared& s, u32 bin) {
    return (u64)s.high[bin] << 32 | s.low[bin];
}

__device__ __forceinline__ void flush(Shared& s, u32 bin, u64 sum) {
    if (sum == 0u) {
        return;
    }
    const u32 first = (u32)sum;
    const u32 before = atomicAdd(&s.low[bin], first);
    atomicAdd(&s.high[bin], (u32)(sum >> 32) + (before + first < first ? 1u : 0u));
}

// The key of the last token that is kept, from the highest down, when their counts or weights first reach `want`. Tokens
// below `least` do not count. `part` of their weight is wanted, where it is not 0; then `above` is that of higher keys.
__device__ u32 descend(
    Shared& s, u32 lane, const float* __restrict__ logits, u32 vocab, u32 part, u32 least, float highest,
    float temperature) {
    u32 key_prefix = 0u;
    u32 mask = 0u;
    for (u32 level = 0u; level < 4u; level++) {
        const u32 shift = 24u - 8u * level;
        s.low[lane] = 0u;
        s.high[lane] = 0u;
        __syncthreads();
        u32 bin = 0u;
        u64 sum = 0u;
        every(lane, logits, vocab, [&](u32, float x) {
            const u32 key = order(x);
            if (key >= least && ((key ^ key_prefix) & mask) == 0u) {
                const u32 own = (key >> shift) & 255u;
                if (own != bin) {
                    flush(s, bin, sum);
                    sum = 0u;
                    bin = own;
                }
                sum += part == 0u ? 1u : fixed_point(weight(x, highest, temperature));
            }
        });
        flush(s, bin, sum);
        __syncthreads();
        if (lane == 0u) {
            if (level == 0u) {
                s.above = 0u;
                if (part != 0u) {
                    u64 total = 0u;
                    for (u32 b = 0u; b < LANES; b++) {
                        total += bin_of(s, b);
                    }
                    // total·part / 2^32, which is below 2^64.
                    const u64 scaled = (total >> 32) * part + ((total & 0xffffffffu) * part >> 32);
                    s.want = scaled == 0u ? 1u : scaled;
                }
            }
            u32 b = 255u;
            u64 sum_above = s.above;
            while (b > 0u && sum_above + bin_of(s, b) < s.want) {
                sum_above += bin_of(s, b);
                b -= 1u;
            }
            s.above = sum_above;
            s.digit = b;
        }
        __syncthreads();
        key_prefix |= s.digit << shift;
        mask |= 255u << shift;
    }
    return key_prefix;
}

extern "C" __global__ void __launch_bounds__(256) sample(
    Params p, const u32* __restrict__ tables, const float* __restrict__ all_logits, const u32* __restrict__ choices,
    u32* out) {
    __shared__ Shared s;
    const u32 r = blockIdx.x;
    const u32 lane = threadIdx.x;
    if (r >= tables[LOGITS]) {
        return;
    }
    const float* __restrict__ logits = all_logits + (u64)r * p.vocab;
    if (lane == 0u) {
        s.bad = NONE;
        s.ties = NONE;
    }
    __syncthreads();
    u32 best_key = 0u;
    u32 best_at = NONE;
    every(lane, logits, p.vocab, [&](u32 i, float x) {
        if ((__float_as_uint(x) & INFINITE) == INFINITE) {
            atomicMin(&s.bad, i);
        }
        const u32 key = order(x);
        if (key > best_key) {
            best_key = key;
            best_at = i;
        }
    });
    // The largest of such words has the highest key and, among equal ones, the lowest place.
    s.lanes[lane] = (u64)best_key << 32 | ~best_at;
    for (u32 half = LANES / 2u; half > 0u; half /= 2u) {
        __syncthreads();
        if (lane < half && s.lanes[lane + half] > s.lanes[lane]) {
            s.lanes[lane] = s.lanes[lane + half];
        }
    }
    __syncthreads();
    const u32 first = ~(u32)s.lanes[0];
    const float highest = value((u32)(s.lanes[0] >> 32));
    float sum = 0.0f;
    every(lane, logits, p.vocab, [&](u32, float x) { sum += expf(x - highest); });
    const float log_sum = logf(lane_sum<LANES>(lane, sum));
    u32 token = first;
    bool mine = lane == 0u;

    const u32* choice = choices + 8u * r;
    const float temperature = __uint_as_float(choice[0]);
    const u32 top_k = choice[1];
    const u32 top_p = choice[2];
    const float min_p = __uint_as_float(choice[3]);
    const u64 draw = (u64)choice[5] << 32 | choice[4];
    if (choice[0] != 0u) {
        u32 cut = 0u;
        if (top_k > 0u && top_k < p.vocab) {
            if (lane == 0u) {
                s.want = top_k;
            }
            cut = descend(s, lane, logits, p.vocab, 0u, 0u, highest, temperature);
        }
        if (top_p > 0u) {
            cut = descend(s, lane, logits, p.vocab, top_p, cut, highest, temperature);
            if (lane == 0u) {
                // The least number of tokens with the last key that reach what is wanted.
                const u64 each = fixed_point(weight(value(cut), highest, temperature));
                const u64 rest = s.want - s.above;
                const u64 count = each == 0u ? p.vocab : (rest + each - 1u) / each;
                s.ties = count < p.vocab ? (u32)count : p.vocab;
            }
        }
        const u32 size = (p.vocab + LANES - 1u) / LANES;
        const u32 begin = min(lane * size, p.vocab);
        const u32 end = min(begin + size, p.vocab);
        // Tokens with the last key before the block of this lane.
        u32 equal = 0u;
        for (u32 i = begin; i < end; i++) {
            equal += order(logits[i]) == cut ? 1u : 0u;
        }
        s.lanes[lane] = equal;
        __syncthreads();
        u32 rank = 0u;
        for (u32 other = 0u; other < lane; other++) {
            rank += (u32)s.lanes[other];
        }
        __syncthreads();
        const u32 rank_before = rank;
        u64 kept = 0u;
        for (u32 i = begin; i < end; i++) {
            const float x = logits[i];
            const u32 key = order(x);
            const float w = weight(x, highest, temperature);
            if ((key > cut || (key == cut && rank < s.ties)) && w >= min_p) {
                kept += fixed_point(w);
            }
            rank += key == cut ? 1u : 0u;
        }
        s.lanes[lane] = kept;
        __syncthreads();
        if (lane == 0u) {
            u64 total = 0u;
            for (u32 other = 0u; other < LANES; other++) {
                total += s.lanes[other];
            }
            s.want = __umul64hi(draw, total);
            u64 before = 0u;
            u32 at = 0u;
            while (at + 1u < LANES && before + s.lanes[at] <= s.want) {
                before += s.lanes[at];
                at += 1u;
            }
            s.above = before;
            s.owner = at;
        }
        __syncthreads();
        mine = lane == s.owner;
        if (mine) {
            u64 before = s.above;
            rank = rank_before;
            for (u32 i = begin; i < end; i++) {
                const float x = logits[i];
                const u32 key = order(x);
                const float w = weight(x, highest, temperature);
                if ((key > cut || (key == cut && rank < s.ties)) && w >= min_p) {
                    before += fixed_point(w);
                    if (before > s.want) {
                        token = i;
                        break;
                    }
                }
                rank += key == cut ? 1u : 0u;
            }
        }
    }
    if (mine) {
        const bool broken = s.bad != NONE;
        out[2u * r] = broken ? NONE : token;
        out[2u * r + 1u] = broken ? s.bad : __float_as_uint(logits[min(token, p.vocab - 1u)] - highest - log_sum);
    }
}
