// attention_mma: out = softmax(scale·q·Kᵀ)·V over the spans of each query whose KV slabs are bound, keys and values in
// bf16, on tensor cores.
//
// Layout    q, out [rows, heads·HEAD] f32; stats [rows, heads, 2]: running maximum of q·k and sum of weights; KV slabs
//           [KV rows, 2, kv_heads·HEAD] bf16: a token's key, then its value. With several parts, out and stats have one
//           more dimension in front and hold what a part saw, not divided.
// Grid      x = tiles (the longest first), y = KV heads, z = parts of the keys; blocks of 128. A tile is up to TILE
//           queries of one run, a query a row with one of the heads that read this KV head.
// Shared memory: (TILE + 128)·(2·HEAD + 16) bytes, 99 KiB for wide tiles of heads of 256, so that two blocks share a
//           multiprocessor. Rows are 16 bytes longer than their values: eight rows of one ldmatrix lie in different banks.
// Numbers   the rotated query and the weights are rounded to bf16, scores, maximum, sums and values are f32. A query with
//           no key keeps the maximum −3e38. The angle of a span is composed from two host-made ones:
//           cos(p−a) = cos p·cos a + sin p·sin a.
// Why       a step takes 64 keys: while q·Kᵀ is made, V arrives; while the weighted values are summed, the next K does.
//           In a wide tile (64 queries) each of four warps owns 16 queries and all keys; in a narrow one (16 queries,
//           decoding) each owns 16 keys of a step and all queries, and the four are joined at the end. A query is rotated
//           again only where the origin of a span is another than that of the span before.
//           Predicted for 512 rows over 32768 keys, 16 heads over 2 of 256: 64 wide tiles · 2 heads · 2 parts = 256
//           blocks of 256 steps. A step of a warp is 256 mma (8 clocks each on its quarter of the multiprocessor) and
//           144 ldmatrix of 512 bytes. With 8 warps, 256·8·2 = 4096 clocks of tensor core, 8·144·512/128 = 4608 of shared
//           memory, and 64 queries · 64 keys · 2 blocks of exponentials (512 clocks) and of multiplications beside them:
//           256 · 4608 clocks at 1.75 GHz = 0.67 ms where all of it overlaps, about 1.1 ms where half does not (measured: 1.13 ms).
//           L2 gives 4.3 GB: 0.8 ms beside that. Warps of 32 queries would read less, but a thread would need 256 sums.
#include "shared/tables.cuh"
#include "shared/mma.cuh"
#include "attention/exp2.cuh"
#include "attention/params.cuh"
#include "attention/spans.cuh"

typedef unsigned short bf16;

constexpr u32 THREADS = 128u;
constexpr u32 KEYS = 64u;
// Warps side by side over the queries, and over the keys of a step.
constexpr u32 QUERY_WARPS = TILE / 16u;
constexpr u32 KEY_WARPS = 4u / QUERY_WARPS;
// Groups of 16 keys of a warp.
constexpr u32 GROUPS = 4u / KEY_WARPS;
// Elements from row to row in shared memory.
constexpr u32 STRIDE = HEAD + 8u;
// Products along a head, 16 elements each.
constexpr u32 DEPTH = HEAD / 16u;
// Pieces of 16 bytes of a row, and rows that the block copies at a time.
constexpr u32 PIECES = HEAD / 8u;
constexpr u32 COPIED = THREADS / PIECES;
// Threads that rotate one query.
constexpr u32 TURNERS = 16u;

// A step: 64 keys of a span from `at` on.
struct Step {
    // Number of the span within the run, and its word in the tables.
    u32 number;
    u32 span;
    u32 at;
    // Keys of the span that the last row of the tile sees.
    u32 visible;
    // The key of this KV head in the span's first row.
    const bf16* first;
};

// What does not change while a block runs.
struct Block {
    const u32* __restrict__ tables;
    u32 launch;
    u32 first_span;
    u32 spans;
    // Position of the tile's last row.
    u32 end;
    // Elements of a KV row, and of its key.
    u32 stride;
    u32 width;
    const bf16* kv0;
    const bf16* kv1;
    const bf16* kv2;
    const bf16* kv3;
};

// Makes `step` the beginning of the first span from `step.number` on with a visible key; false if there is none.
__device__ __forceinline__ bool enter(const Block& b, Step& step) {
    for (; step.number < b.spans; step.number++) {
        step.span = record(b.tables, SPAN_TABLE, b.first_span + step.number, SPAN_WORDS);
        step.visible = visible_keys(b.tables, step.span, b.end);
        const u32 slab = binding_of(b.tables, b.launch, b.tables[step.span]);
        if (slab != KV_SLABS && step.visible > 0u) {
            step.at = 0u;
            const bf16* kv = slab == 0u ? b.kv0 : slab == 1u ? b.kv1 : slab == 2u ? b.kv2 : b.kv3;
            step.first = kv + (size_t)b.tables[step.span + 1u] * b.stride + blockIdx.y * HEAD;
            return true;
        }
    }
    return false;
}

__device__ __forceinline__ void next(const Block& b, Step& step) {
    step.at += KEYS;
    if (step.at >= step.visible) {
        step.number++;
        enter(b, step);
    }
}

// Steps of all spans.
__device__ __forceinline__ u32 count_steps(const Block& b, u32 thread) {
    __shared__ u32 counts[4];
    u32 count = 0u;
    for (u32 n = thread; n < b.spans; n += THREADS) {
        const u32 span = record(b.tables, SPAN_TABLE, b.first_span + n, SPAN_WORDS);
        if (binding_of(b.tables, b.launch, b.tables[span]) != KV_SLABS) {
            count += (visible_keys(b.tables, span, b.end) + KEYS - 1u) / KEYS;
        }
    }
    for (u32 lane = 16u; lane > 0u; lane /= 2u) {
        count += __shfl_xor_sync(0xffffffffu, count, lane);
    }
    if (thread % 32u == 0u) {
        counts[thread / 32u] = count;
    }
    __syncthreads();
    return counts[0] + counts[1] + counts[2] + counts[3];
}

// Starts to copy the keys (side 0) or the values (side 1) of a step, zeros behind its last key.
__device__ __forceinline__ void copy(const Block& b, const Step& step, u32 side, bf16* to, u32 thread) {
    const u32 piece = thread % PIECES;
    const u32 len = min(KEYS, step.visible - step.at);
    const u32 first = thread / PIECES;
    const bf16* from = step.first + (size_t)(step.at + first) * b.stride + side * b.width + piece * 8u;
    to += first * STRIDE + piece * 8u;
#pragma unroll
    for (u32 i = 0u; i < KEYS; i += COPIED) {
        const bool take = first + i < len;
        cp_async16_or_zero(to + i * STRIDE, take ? from + (size_t)i * b.stride : step.first, take);
    }
}

extern "C" __global__ void __launch_bounds__(128, 2) attention_mma(
    Params p, const u32* __restrict__ tables, const float* __restrict__ q, float* stats, float* out,
    const bf16* __restrict__ kv0, const bf16* __restrict__ kv1, const bf16* __restrict__ kv2,
    const bf16* __restrict__ kv3) {
    extern __shared__ uint4 memory[];
    bf16* const queries = reinterpret_cast<bf16*>(memory);
    bf16* const keys = queries + TILE * STRIDE;
    bf16* const values = keys + KEYS * STRIDE;

    const u32 tiles = tables[TILE == WIDE_TILE ? WIDE_TILES : NARROW_TILES];
    if (blockIdx.x >= tiles) {
        return;
    }
    const u32 number = (TILE == WIDE_TILE ? 0u : tables[WIDE_TILES]) + tiles - 1u - blockIdx.x;
    const u32 tile = record(tables, TILE_TABLE, number, TILE_WORDS);
    const u32 run = record(tables, RUN_TABLE, tables[tile], RUN_WORDS);
    const u32 first_query = tables[tile + 1u];
    const u32 count = tables[tile + 2u];
    const u32 group = p.heads / p.kv_heads;
    const u32 first_row = tables[run];
    const u32 position = tables[record(tables, ROW_TABLE, first_row, ROW_WORDS) + 1u];

    const u32 thread = threadIdx.x;
    const u32 lane = thread % 32u;
    const u32 warp = thread / 32u;
    const u32 query_warp = warp % QUERY_WARPS;
    const u32 key_warp = warp / QUERY_WARPS;

    Block b;
    b.tables = tables;
    b.launch = record(tables, ATTENTION_LAUNCHES, p.launch, ATTENTION_LAUNCH_WORDS);
    b.first_span = tables[run + 2u];
    b.spans = tables[run + 3u];
    b.end = position + (first_query + count - 1u) / group;
    b.width = p.kv_heads * HEAD;
    b.stride = 2u * b.width;
    b.kv0 = kv0;
    b.kv1 = kv1;
    b.kv2 = kv2;
    b.kv3 = kv3;

    // This thread's two queries: their place among rows·heads, and the position of their rows.
    u32 place[2];
    u32 at[2];
    bool own[2];
#pragma unroll
    for (u32 i = 0u; i < 2u; i++) {
        const u32 query = 16u * query_warp + lane / 4u + 8u * i;
        own[i] = query < count;
        const u32 row = (first_query + min(query, count - 1u)) / group;
        const u32 head = (first_query + min(query, count - 1u)) % group;
        at[i] = position + row;
        place[i] = (blockIdx.z * p.rows + first_row + row) * p.heads + blockIdx.y * group + head;
    }

    float top[2] = {NO_KEY, NO_KEY};
    float sum[2] = {0.0f, 0.0f};
    float acc[2u * DEPTH][4];
#pragma unroll
    for (u32 d = 0u; d < 2u * DEPTH; d++) {
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            acc[d][i] = 0.0f;
        }
    }
    const bool whole = p.parts == 1u;
    if (whole && p.first == 0u && key_warp == 0u) {
#pragma unroll
        for (u32 i = 0u; i < 2u; i++) {
            if (own[i]) {
                top[i] = stats[2u * place[i]];
                // The four lanes of a query are summed at the end.
                sum[i] = lane % 4u == 0u ? stats[2u * place[i] + 1u] : 0.0f;
#pragma unroll
                for (u32 d = 0u; d < 2u * DEPTH; d++) {
                    const float2 pair = *reinterpret_cast<const float2*>(
                        out + (size_t)place[i] * HEAD + 8u * d + 2u * (lane % 4u));
                    acc[d][2u * i] = pair.x;
                    acc[d][2u * i + 1u] = pair.y;
                }
            }
        }
    }

    // What is not rotated of the queries, and zeros for those that do not exist.
    for (u32 m = thread / TURNERS; m < TILE; m += THREADS / TURNERS) {
        const u32 row = (first_query + m) / group;
        const u32 head = (first_query + m) % group;
        const float* from = q + ((size_t)(first_row + row) * p.heads + blockIdx.y * group + head) * HEAD;
        for (u32 d = (m < count ? p.rot : 0u) + 2u * (thread % TURNERS); d < HEAD; d += 2u * TURNERS) {
            const float2 pair = m < count ? *reinterpret_cast<const float2*>(from + d) : make_float2(0.0f, 0.0f);
            *reinterpret_cast<u32*>(queries + m * STRIDE + d) = pack_bf16(pair.x, pair.y);
        }
    }

    u32 begin = 0u;
    u32 left = 0xffffffffu;
    if (!whole) {
        const u32 steps = count_steps(b, thread);
        begin = steps * blockIdx.z / p.parts;
        left = steps * (blockIdx.z + 1u) / p.parts - begin;
    }
    Step step;
    step.number = 0u;
    bool more = left > 0u && enter(b, step);
    while (more && begin > 0u) {
        const u32 steps = (step.visible + KEYS - 1u) / KEYS;
        if (begin < steps) {
            step.at = begin * KEYS;
            break;
        }
        begin -= steps;
        step.number++;
        more = enter(b, step);
    }
    if (more) {
        copy(b, step, 0u, keys, thread);
    }
    cp_async_commit();

    // Where this lane's rows of the matrices that ldmatrix reads begin.
    const bf16* const query_rows = queries + (16u * query_warp + lane % 16u) * STRIDE + lane / 16u * 8u;
    const u32 key_row = 16u * GROUPS * key_warp;
    const bf16* const key_rows = keys + (key_row + lane / 16u * 8u + lane % 8u) * STRIDE + lane / 8u % 2u * 8u;
    const bf16* const value_rows = values + (key_row + lane % 16u) * STRIDE + lane / 16u * 8u;
    const bool idle = 16u * query_warp >= count;
    const float factor = p.scale * LOG2_E;
    u32 turned = 0xffffffffu;

    while (more) {
        const u32 origin = tables[step.span + 4u];
        if (origin != turned) {
            turned = origin;
            const u32 half = p.rot / 2u;
            const u32 back = record(tables, ANGLE_TABLE, origin, p.rot);
            for (u32 m = thread / TURNERS; m < count; m += THREADS / TURNERS) {
                const u32 row = first_row + (first_query + m) / group;
                const u32 head = (first_query + m) % group;
                const float* from = q + ((size_t)row * p.heads + blockIdx.y * group + head) * HEAD;
                const u32 query_angle = tables[record(tables, ROW_TABLE, row, ROW_WORDS) + 2u];
                const u32 angle = record(tables, ANGLE_TABLE, query_angle, p.rot);
                for (u32 d = thread % TURNERS; d < half; d += TURNERS) {
                    const float cos_p = __uint_as_float(tables[angle + d]);
                    const float sin_p = __uint_as_float(tables[angle + half + d]);
                    const float cos_a = __uint_as_float(tables[back + d]);
                    const float sin_a = __uint_as_float(tables[back + half + d]);
                    const float c = cos_p * cos_a + sin_p * sin_a;
                    const float s = sin_p * cos_a - cos_p * sin_a;
                    const float x = from[d];
                    const float y = from[half + d];
                    queries[m * STRIDE + d] = (bf16)pack_bf16(x * c - y * s, 0.0f);
                    queries[m * STRIDE + half + d] = (bf16)pack_bf16(y * c + x * s, 0.0f);
                }
            }
        }
        cp_async_wait<0>();
        // The keys and the queries are there, and nobody reads the values of the step before any more.
        __syncthreads();
        copy(b, step, 1u, values, thread);
        cp_async_commit();

        float scores[2u * GROUPS][4];
#pragma unroll
        for (u32 j = 0u; j < 2u * GROUPS; j++) {
#pragma unroll
            for (u32 i = 0u; i < 4u; i++) {
                scores[j][i] = 0.0f;
            }
        }
        const bool works = !idle && step.at + key_row < step.visible;
        if (works) {
#pragma unroll
            for (u32 k = 0u; k < DEPTH; k++) {
                u32 a[4];
                ldmatrix_x4(a, query_rows + 16u * k);
#pragma unroll
                for (u32 j = 0u; j < GROUPS; j++) {
                    u32 pair[4];
                    ldmatrix_x4(pair, key_rows + 16u * j * STRIDE + 16u * k);
                    mma_bf16(scores[2u * j], a, pair[0], pair[1]);
                    mma_bf16(scores[2u * j + 1u], a, pair[2], pair[3]);
                }
            }
        }
        cp_async_wait<0>();
        // The values are there, and nobody reads the keys and the queries any more.
        __syncthreads();
        const Step now = step;
        left--;
        next(b, step);
        more = left > 0u && step.number < b.spans;
        if (more) {
            copy(b, step, 0u, keys, thread);
        }
        cp_async_commit();
        if (!works) {
            continue;
        }

        // Some query of the tile may not see some key of the step.
        if (now.at + KEYS > visible_keys(tables, now.span, position + first_query / group)) {
#pragma unroll
            for (u32 i = 0u; i < 2u; i++) {
                const u32 seen = visible_keys(tables, now.span, at[i]);
#pragma unroll
                for (u32 j = 0u; j < 2u * GROUPS; j++) {
                    const u32 key = now.at + key_row + 8u * j + 2u * (lane % 4u);
                    scores[j][2u * i] = key < seen ? scores[j][2u * i] : __uint_as_float(0xff800000u);
                    scores[j][2u * i + 1u] = key + 1u < seen ? scores[j][2u * i + 1u] : __uint_as_float(0xff800000u);
                }
            }
        }
#pragma unroll
        for (u32 i = 0u; i < 2u; i++) {
            float most = top[i];
#pragma unroll
            for (u32 j = 0u; j < 2u * GROUPS; j++) {
                most = fmaxf(most, fmaxf(scores[j][2u * i], scores[j][2u * i + 1u]));
            }
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1u));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2u));
            if (most > top[i]) {
                const float keep = exp2_flushed((top[i] - most) * factor);
                top[i] = most;
                sum[i] *= keep;
#pragma unroll
                for (u32 d = 0u; d < 2u * DEPTH; d++) {
                    acc[d][2u * i] *= keep;
                    acc[d][2u * i + 1u] *= keep;
                }
            }
            const float shift = -most * factor;
#pragma unroll
            for (u32 j = 0u; j < 2u * GROUPS; j++) {
                scores[j][2u * i] = exp2_flushed(fmaf(scores[j][2u * i], factor, shift));
                scores[j][2u * i + 1u] = exp2_flushed(fmaf(scores[j][2u * i + 1u], factor, shift));
                sum[i] += scores[j][2u * i] + scores[j][2u * i + 1u];
            }
        }
#pragma unroll
        for (u32 j = 0u; j < GROUPS; j++) {
            const u32 weights[4] = {
                pack_bf16(scores[2u * j][0], scores[2u * j][1]),
                pack_bf16(scores[2u * j][2], scores[2u * j][3]),
                pack_bf16(scores[2u * j + 1u][0], scores[2u * j + 1u][1]),
                pack_bf16(scores[2u * j + 1u][2], scores[2u * j + 1u][3])};
#pragma unroll
            for (u32 d = 0u; d < DEPTH; d++) {
                u32 pair[4];
                ldmatrix_x4_trans(pair, value_rows + 16u * j * STRIDE + 16u * d);
                mma_bf16(acc[2u * d], weights, pair[0], pair[1]);
                mma_bf16(acc[2u * d + 1u], weights, pair[2], pair[3]);
            }
        }
    }

#pragma unroll
    for (u32 i = 0u; i < 2u; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1u);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2u);
    }
    if (KEY_WARPS > 1u) {
        // Each warp has seen other keys: their sums lie where keys and values were.
        float* const sums = reinterpret_cast<float*>(keys);
        __shared__ float tops[4][16];
        __shared__ float totals[4][16];
        __syncthreads();
#pragma unroll
        for (u32 i = 0u; i < 2u; i++) {
            const u32 query = lane / 4u + 8u * i;
            if (lane % 4u == 0u) {
                tops[key_warp][query] = top[i];
                totals[key_warp][query] = sum[i];
            }
#pragma unroll
            for (u32 d = 0u; d < 2u * DEPTH; d++) {
                *reinterpret_cast<float2*>(sums + (16u * key_warp + query) * HEAD + 8u * d + 2u * (lane % 4u)) =
                    make_float2(acc[d][2u * i], acc[d][2u * i + 1u]);
            }
        }
        __syncthreads();
        // Eight threads for a query.
        const u32 query = thread / 8u;
        if (query >= count) {
            return;
        }
        float most = NO_KEY;
#pragma unroll
        for (u32 w = 0u; w < 4u; w++) {
            most = fmaxf(most, tops[w][query]);
        }
        float share[4];
        float total = 0.0f;
#pragma unroll
        for (u32 w = 0u; w < 4u; w++) {
            share[w] = exp2_flushed((tops[w][query] - most) * factor);
            total += share[w] * totals[w][query];
        }
        const float divided = whole && p.last == 1u && total > 0.0f ? 1.0f / total : 1.0f;
        const u32 row = (first_query + query) / group;
        const u32 head = (first_query + query) % group;
        const u32 to = (blockIdx.z * p.rows + first_row + row) * p.heads + blockIdx.y * group + head;
        for (u32 d = thread % 8u; d < HEAD; d += 8u) {
            float x = 0.0f;
#pragma unroll
            for (u32 w = 0u; w < 4u; w++) {
                x += share[w] * sums[(16u * w + query) * HEAD + d];
            }
            out[(size_t)to * HEAD + d] = x * divided;
        }
        if (thread % 8u == 0u) {
            stats[2u * to] = most;
            stats[2u * to + 1u] = total;
        }
        return;
    }
#pragma unroll
    for (u32 i = 0u; i < 2u; i++) {
        if (!own[i]) {
            continue;
        }
        const float divided = whole && p.last == 1u && sum[i] > 0.0f ? 1.0f / sum[i] : 1.0f;
#pragma unroll
        for (u32 d = 0u; d < 2u * DEPTH; d++) {
            *reinterpret_cast<float2*>(out + (size_t)place[i] * HEAD + 8u * d + 2u * (lane % 4u)) =
                make_float2(acc[d][2u * i] * divided, acc[d][2u * i + 1u] * divided);
        }
        if (lane % 4u == 0u) {
            stats[2u * place[i]] = top[i];
            stats[2u * place[i] + 1u] = sum[i];
        }
    }
}
