// attention_part: what each part of the keys gives for few rows, keys and values in f32; attention_join joins the parts.
//
// Layout    q [rows, heads·HEAD]; part_out [parts, rows, heads·HEAD] and part_stats [parts, rows, heads, 2] (maximum of q·k,
//           sum of weights), not divided; KV slabs [KV rows, 2, kv_heads·HEAD]: a token's key, then its value. f32.
// Grid      x = KV heads, y = rows, z = parts of the keys; blocks of 128.
// Shared memory: 32 keys and 8 queries, each row 16 bytes longer than its values, and 1.2 KiB: 41 KiB for heads of 256.
// Numbers   all f32. Weights are 2^(q·k·scale·log2 e − m). The angle of a span is composed from two host-made ones:
//           cos(p−a) = cos p·cos a + sin p·sin a.
// Why       a row's keys are all of its work, so few rows fill a chip only if several blocks share them. A block takes every
//           query head that reads its KV head, eight at a time: a key is read once for all of them. A step takes 32 keys:
//           they come to shared memory in pieces of 16 bytes that lie side by side, then a thread scores two of the 256
//           pairs of a key and a query, then it owns four output elements of every query for a part of the keys. Bytes
//           bound it: 2 KiB a key and KV head are 99 clocks of a multiprocessor's share of memory, the products 32.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "attention/exp2.cuh"
#include "attention/params.cuh"
#include "attention/spans.cuh"

constexpr u32 THREADS = 128u;
constexpr u32 KEYS = 32u;
constexpr u32 QUERIES = 8u;
constexpr u32 QUADS = HEAD / 4u;
// From row to row in shared memory: threads that read one element of neighbouring keys hit different banks.
constexpr u32 STRIDE = QUADS + 1u;
// Parts of the keys of a step whose weighted values are summed side by side.
constexpr u32 LANES = THREADS / QUADS;

extern "C" __global__ void __launch_bounds__(128) attention_part(
    Params p, const u32* __restrict__ tables, const float* __restrict__ q, float* part_stats, float4* part_out,
    const float4* __restrict__ kv0, const float4* __restrict__ kv1, const float4* __restrict__ kv2,
    const float4* __restrict__ kv3) {
    __shared__ float4 keys[KEYS * STRIDE];
    __shared__ float4 queries[QUERIES * STRIDE];
    __shared__ float weights[QUERIES][KEYS];
    __shared__ u32 counts[4];
    const u32 r = blockIdx.y;
    if (r >= tables[ROWS]) {
        return;
    }
    const u32 thread = threadIdx.x;
    const u32 row = record(tables, ROW_TABLE, r, ROW_WORDS);
    const u32 run = record(tables, RUN_TABLE, tables[row], RUN_WORDS);
    const u32 launch = record(tables, ATTENTION_LAUNCHES, p.launch, ATTENTION_LAUNCH_WORDS);
    const u32 position = tables[row + 1u];
    const u32 pos_angle = record(tables, ANGLE_TABLE, tables[row + 2u], p.rot);
    const u32 first_span = tables[run + 2u];
    const u32 spans = tables[run + 3u];
    const u32 group = p.heads / p.kv_heads;
    const u32 stride = 2u * p.kv_heads * QUADS;
    const u32 half = p.rot / 2u;
    const float factor = p.scale * LOG2_E;

    u32 count = 0u;
    for (u32 n = thread; n < spans; n += THREADS) {
        const u32 span = record(tables, SPAN_TABLE, first_span + n, SPAN_WORDS);
        if (binding_of(tables, launch, tables[span]) != KV_SLABS) {
            count += (visible_keys(tables, span, position) + KEYS - 1u) / KEYS;
        }
    }
    for (u32 lane = 16u; lane > 0u; lane /= 2u) {
        count += __shfl_xor_sync(0xffffffffu, count, lane);
    }
    if (thread % 32u == 0u) {
        counts[thread / 32u] = count;
    }
    __syncthreads();
    count = counts[0] + counts[1] + counts[2] + counts[3];
    // Steps of this part, counted over all spans.
    const u32 begin = count * blockIdx.z / p.parts;
    const u32 end = count * (blockIdx.z + 1u) / p.parts;

    const u32 quad = thread % QUADS;
    const u32 part = thread / QUADS;
    for (u32 eight = 0u; eight < group; eight += QUERIES) {
        const u32 heads = min(QUERIES, group - eight);
        const u32 place = (blockIdx.z * p.rows + r) * p.heads + blockIdx.x * group + eight;
        const float* own = q + ((size_t)r * p.heads + blockIdx.x * group + eight) * HEAD;
        // The four threads of a key and query pair's row: a query's maximum and sum are known to the warp that scores it.
        float top[QUERIES];
        float sum[QUERIES];
        float4 acc[QUERIES];
#pragma unroll
        for (u32 i = 0u; i < QUERIES; i++) {
            top[i] = NO_KEY;
            sum[i] = 0.0f;
            acc[i] = all(0.0f);
        }
        u32 turned = 0xffffffffu;
        u32 number = 0u;
        for (u32 n = 0u; n < spans && number < end; n++) {
            const u32 span = record(tables, SPAN_TABLE, first_span + n, SPAN_WORDS);
            const u32 slab = binding_of(tables, launch, tables[span]);
            const u32 visible = visible_keys(tables, span, position);
            if (slab == KV_SLABS || visible == 0u) {
                continue;
            }
            const u32 steps = (visible + KEYS - 1u) / KEYS;
            const u32 from = max(begin, number) - number;
            const u32 to = min(end - number, steps);
            number += steps;
            if (from >= to) {
                continue;
            }
            if (tables[span + 4u] != turned) {
                turned = tables[span + 4u];
                const u32 origin = record(tables, ANGLE_TABLE, turned, p.rot);
                float* rows = reinterpret_cast<float*>(queries);
                __syncthreads();
                for (u32 i = thread; i < QUERIES * HEAD; i += THREADS) {
                    const u32 d = i % HEAD;
                    const u32 h = i / HEAD;
                    float x = 0.0f;
                    if (h < heads) {
                        x = own[h * HEAD + d];
                        if (d < p.rot) {
                            const u32 pair = d < half ? d : d - half;
                            const float cos_p = __uint_as_float(tables[pos_angle + pair]);
                            const float sin_p = __uint_as_float(tables[pos_angle + half + pair]);
                            const float cos_a = __uint_as_float(tables[origin + pair]);
                            const float sin_a = __uint_as_float(tables[origin + half + pair]);
                            const float c = cos_p * cos_a + sin_p * sin_a;
                            const float s = sin_p * cos_a - cos_p * sin_a;
                            x = d < half ? x * c - own[h * HEAD + d + half] * s : x * c + own[h * HEAD + d - half] * s;
                        }
                    }
                    rows[h * 4u * STRIDE + d] = x;
                }
            }
            const float4* kv = slab == 0u ? kv0 : slab == 1u ? kv1 : slab == 2u ? kv2 : kv3;
            for (u32 step = from; step < to; step++) {
                const u32 len = min(KEYS, visible - step * KEYS);
                const float4* key = kv + (size_t)(tables[span + 1u] + step * KEYS) * stride + blockIdx.x * QUADS;
                for (u32 j = part; j < KEYS; j += LANES) {
                    keys[j * STRIDE + quad] = j < len ? key[(size_t)j * stride + quad] : all(0.0f);
                }
                __syncthreads();
                // Key thread%32; queries thread/32 and four more.
                const u32 j = thread % KEYS;
#pragma unroll
                for (u32 i = 0u; i < QUERIES; i += 4u) {
                    const float4* query = queries + (i + thread / KEYS) * STRIDE;
                    float4 products = all(0.0f);
#pragma unroll 8
                    for (u32 k = 0u; k < QUADS; k++) {
                        products = fused(query[k], keys[j * STRIDE + k], products);
                    }
                    weights[i + thread / KEYS][j] = j < len ? total(products) : __uint_as_float(0xff800000u);
                }
                __syncthreads();
                // Every warp makes the weights of every query, so that all threads know maximum and sum.
                float mine[QUERIES];
#pragma unroll
                for (u32 i = 0u; i < QUERIES; i++) {
                    const float score = weights[i][j];
                    float most = score;
                    for (u32 lane = 16u; lane > 0u; lane /= 2u) {
                        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
                    }
                    most = fmaxf(most, top[i]);
                    const float keep = exp2_flushed((top[i] - most) * factor);
                    mine[i] = exp2_flushed((score - most) * factor);
                    float added = mine[i];
                    for (u32 lane = 16u; lane > 0u; lane /= 2u) {
                        added += __shfl_xor_sync(0xffffffffu, added, lane);
                    }
                    top[i] = most;
                    sum[i] = sum[i] * keep + added;
                    acc[i] = times(all(keep), acc[i]);
                }
                __syncthreads();
                if (thread < KEYS) {
#pragma unroll
                    for (u32 i = 0u; i < QUERIES; i++) {
                        weights[i][j] = mine[i];
                    }
                }
                __syncthreads();
                const float4* value = key + stride / 2u + quad;
#pragma unroll 4
                for (u32 at = part; at < len; at += LANES) {
                    const float4 v = value[(size_t)at * stride];
#pragma unroll
                    for (u32 i = 0u; i < QUERIES; i++) {
                        acc[i] = fused(weights[i][at], v, acc[i]);
                    }
                }
            }
        }
        // The lanes of a query's quad are joined where the keys were.
        __syncthreads();
#pragma unroll
        for (u32 i = 0u; i < QUERIES; i++) {
            keys[thread] = acc[i];
            __syncthreads();
            if (part == 0u && i < heads) {
                float4 whole = acc[i];
                for (u32 lane = 1u; lane < LANES; lane++) {
                    whole = plus(whole, keys[lane * QUADS + quad]);
                }
                part_out[(size_t)(place + i) * QUADS + quad] = whole;
            }
            if (thread == 0u && i < heads) {
                part_stats[2u * (place + i)] = top[i];
                part_stats[2u * (place + i) + 1u] = sum[i];
            }
            __syncthreads();
        }
    }
}
