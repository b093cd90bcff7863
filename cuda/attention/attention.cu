// attention: out = softmax(scale·q·Kᵀ)·V over the spans of each row whose KV slabs are bound, online over launches.
//
// Layout    q, out [rows, heads·HEAD]; stats [rows, heads, 2]: running maximum and sum of weights; KV slabs
//           [KV rows, 2, kv_heads·HEAD]: a token's key, then its value. f32. Query head h reads KV head h/(heads/kv_heads).
// Grid      x = heads, y = rows; one block of 64 per (row, head).
// Shared memory: 4·HEAD bytes + 1.8 KiB, at most 2.8 KiB.
// Numbers   scores, maximum, sum and values in f32. The sum of weights and the weighted values are kept per part of the
//           keys and joined once at the end. "No key yet" is the finite maximum −3e38, since WGSL has no infinity. The
//           angle of a span is composed from two host-made ones: cos(p−a) = cos p·cos a + sin p·sin a.
// Why       a span's keys are stored rotated by their offset inside the segment, so the query is rotated anew for each
//           span and nothing shared is copied. Per tile of 64 keys a thread scores one key; then it owns four
//           output elements and every (256/HEAD)-th key, so that all 64 stay busy for any head size and value rows are
//           read in whole. Three barriers a tile. A continued launch (first = 0) takes up out and stats, which is how
//           more slabs than four are read.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "attention/spans.cuh"

struct Params {
    u32 heads;
    u32 kv_heads;
    u32 rot;
    u32 launch;
    u32 first;
    u32 last;
    float scale;
    u32 pad;
};

constexpr u32 TILE = 64u;
constexpr u32 QUADS = HEAD / 4u;
// Parts of the keys whose weighted values are summed side by side.
constexpr u32 PARTS = TILE / QUADS;

// Element d of the query that starts at word `at`, rotated from position angle `pos` back by origin angle `origin` (words
// of the tables).
__device__ __forceinline__ float rotated(
    const u32* __restrict__ tables, const float* __restrict__ q, u32 rot, u32 at, u32 d, u32 pos, u32 origin) {
    const float x = q[at + d];
    if (d >= rot) {
        return x;
    }
    const u32 half = rot / 2u;
    const u32 i = d % half;
    const float cos_p = __uint_as_float(tables[pos + i]);
    const float sin_p = __uint_as_float(tables[pos + half + i]);
    const float cos_a = __uint_as_float(tables[origin + i]);
    const float sin_a = __uint_as_float(tables[origin + half + i]);
    const float c = cos_p * cos_a + sin_p * sin_a;
    const float s = sin_p * cos_a - cos_p * sin_a;
    if (d < half) {
        return x * c - q[at + d + half] * s;
    }
    return x * c + q[at + d - half] * s;
}

extern "C" __global__ void __launch_bounds__(64) attention(
    Params p, const u32* __restrict__ tables, const float* __restrict__ q, float* stats, float4* out,
    const float4* __restrict__ kv0, const float4* __restrict__ kv1, const float4* __restrict__ kv2,
    const float4* __restrict__ kv3) {
    __shared__ float4 turned[QUADS];
    __shared__ float scores[TILE];
    __shared__ float best[8];
    __shared__ float weights[TILE];
    __shared__ float sums[TILE];
    __shared__ float4 values[TILE];
    const u32 h = blockIdx.x;
    const u32 r = blockIdx.y;
    const u32 lane = threadIdx.x;
    if (r >= tables[ROWS] || h >= p.heads) {
        return;
    }
    const u32 row = record(tables, ROW_TABLE, r, ROW_WORDS);
    const u32 run = record(tables, RUN_TABLE, tables[row], RUN_WORDS);
    const u32 launch = record(tables, ATTENTION_LAUNCHES, p.launch, ATTENTION_LAUNCH_WORDS);
    const u32 position = tables[row + 1u];
    const u32 pos_angle = record(tables, ANGLE_TABLE, tables[row + 2u], p.rot);
    const u32 q_at = (r * p.heads + h) * QUADS;
    // A token takes 2·width floats of a slab.
    const u32 stride = 2u * p.kv_heads * QUADS;
    const u32 kv_head = h / (p.heads / p.kv_heads) * QUADS;
    const u32 part = lane / QUADS;
    const u32 own = lane % QUADS;

    const u32 at_stats = 2u * (r * p.heads + h);
    float top = NO_KEY;
    float sum = 0.0f;
    float4 acc = all(0.0f);
    if (p.first == 0u) {
        top = stats[at_stats];
        if (part == 0u) {
            sum = stats[at_stats + 1u];
            acc = out[q_at + own];
        }
    }

    const u32 first_span = tables[run + 2u];
    const u32 spans = tables[run + 3u];
    for (u32 n = 0u; n < spans; n++) {
        const u32 span = record(tables, SPAN_TABLE, first_span + n, SPAN_WORDS);
        const u32 slab = binding_of(tables, launch, tables[span]);
        const u32 visible = visible_keys(tables, span, position);
        if (slab == KV_SLABS || visible == 0u) {
            continue;
        }
        const float4* kv = slab == 0u ? kv0 : slab == 1u ? kv1 : slab == 2u ? kv2 : kv3;
        const u32 origin = record(tables, ANGLE_TABLE, tables[span + 4u], p.rot);
        if (lane < QUADS) {
            const u32 d = 4u * lane;
            turned[lane] = make_float4(
                rotated(tables, q, p.rot, 4u * q_at, d, pos_angle, origin),
                rotated(tables, q, p.rot, 4u * q_at, d + 1u, pos_angle, origin),
                rotated(tables, q, p.rot, 4u * q_at, d + 2u, pos_angle, origin),
                rotated(tables, q, p.rot, 4u * q_at, d + 3u, pos_angle, origin));
        }
        __syncthreads();
        for (u32 tile = 0u; tile < visible; tile += TILE) {
            const u32 len = min(TILE, visible - tile);
            const float4* key = kv + (size_t)(tables[span + 1u] + tile) * stride + kv_head;
            float mine = NO_KEY;
            if (lane < len) {
                const float4* own_key = key + (size_t)lane * stride;
                float4 products = all(0.0f);
#pragma unroll
                for (u32 k = 0u; k < QUADS; k++) {
                    products = fused(turned[k], own_key[k], products);
                }
                mine = p.scale * total(products);
            }
            scores[lane] = mine;
            __syncthreads();
            if (lane < 8u) {
                float m = scores[lane];
#pragma unroll
                for (u32 i = 8u; i < TILE; i += 8u) {
                    m = fmaxf(m, scores[lane + i]);
                }
                best[lane] = m;
            }
            __syncthreads();
            float m = top;
#pragma unroll
            for (u32 i = 0u; i < 8u; i++) {
                m = fmaxf(m, best[i]);
            }
            weights[lane] = lane < len ? expf(mine - m) : 0.0f;
            __syncthreads();
            const float keep = expf(top - m);
            top = m;
            sum *= keep;
            acc = times(all(keep), acc);
            float4 weighted = all(0.0f);
            const float4* value = key + stride / 2u + own;
#pragma unroll 8
            for (u32 j = part; j < len; j += PARTS) {
                sum += weights[j];
                weighted = fused(weights[j], value[(size_t)j * stride], weighted);
            }
            acc = plus(acc, weighted);
        }
    }

    sums[lane] = sum;
    values[lane] = acc;
    __syncthreads();
    if (part == 0u) {
        for (u32 i = 1u; i < PARTS; i++) {
            sum += sums[lane + i * QUADS];
            acc = plus(acc, values[lane + i * QUADS]);
        }
        if (p.last == 1u && sum > 0.0f) {
            acc = make_float4(acc.x / sum, acc.y / sum, acc.z / sum, acc.w / sum);
        }
        out[q_at + own] = acc;
    }
    if (lane == 0u) {
        stats[at_stats] = top;
        stats[at_stats + 1u] = sum;
    }
}
