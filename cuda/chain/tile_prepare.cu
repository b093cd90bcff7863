// tile_prepare: everything of a tile of at most 64 tokens that needs no state, for tile_chain.
//
// With q, k rounded to bf16, g the log-gates, b_i their sum over the tile's tokens up to i, e(j, i) = e^(Σ g_m, j < m <= i):
//   A_ij = e(j, i) q_i·k_j for j <= i; for a delta update G_ij = β_i e(j, i) k_i·k_j for j < i and the inverse of I + G.
//
// Layout    qkv: row r starts at r·row, q [H, K] normalised and scaled, then k [H, K]; gates: row r starts at r·gate_row, g [HV]
//           (or nothing) and β [HV] at `strength`, f32; work: see tile.cuh. The inverse is the sum of two bf16, A is one.
// Grid      x = chunks of the tables, of which the first of a tile works for all of it; y = value heads, two a block where they
//           share a key head.
// Shared memory: k and q of the tile, later G of both heads, 34 KiB at K = 128; exponentials 11 KiB.
// Numbers   products of bf16 are exact, sums f32. All exponents are sums of gates, never differences of sums: within 16 tokens
//           one by one, across them in parts. Blocks of 16 of the inverse are solved in f32, column by column, and joined by
//           products of 16-bit parts. What lies beyond the run is zero.
// Why       16 tokens fill the rows of a product of the tensor cores, so a warp takes 16 rows of both matrices, for two heads at
//           once: q·k does not depend on them. Solving all 64 columns in threads would be thousands of instructions that run once.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/mma.cuh"
#include "shared/split.cuh"
#include "chain/params.cuh"
#include "chain/tile.cuh"

constexpr u32 THREADS = 128u;
// Elements from row to row of G and the inverse.
constexpr u32 SOLVE_PITCH = TILE + 4u;
constexpr u32 REGION = (TILE * K / 2u > TILE * SOLVE_PITCH ? TILE * K / 2u : TILE * SOLVE_PITCH) / 4u;

// What one value head has.
struct Gates {
    float log[TILE];
    float beta[TILE];
    // e^(gates of its 16 tokens up to it), and after it.
    float before[TILE];
    float after[TILE];
    // Sums of 16 tokens, and e^(their sums) strictly between two 16s.
    float total[CHUNKS_OF_TILE];
    float between[CHUNKS_OF_TILE][CHUNKS_OF_TILE];
    // [j][i % 16]: e(j, i) within 16 tokens.
    float within[TILE][CHUNK_TOKENS];
};

// e(j, i) and e(j + 1, i) for an even j, 0 where the first is later.
__device__ __forceinline__ float2 decays_between(const Gates& s, u32 j, u32 i) {
    const u32 a = j / CHUNK_TOKENS;
    const u32 b = i / CHUNK_TOKENS;
    if (a == b) {
        return make_float2(s.within[j][i % CHUNK_TOKENS], s.within[j + 1u][i % CHUNK_TOKENS]);
    }
    const float rest = s.between[a][b] * s.before[i];
    return make_float2(s.after[j] * rest, s.after[j + 1u] * rest);
}

// The inverse of a block of 16 on the diagonal of I + G, in its place: column `c` by each of 16 threads of a warp.
__device__ __forceinline__ void solve_block(float* block, u32 c) {
    float x[CHUNK_TOKENS];
#pragma unroll
    for (u32 i = 0u; i < CHUNK_TOKENS; i++) {
        float4 sum = make_float4(i == c ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (u32 m = 0u; m < i; m += 4u) {
            const float4 row = aligned(block, i * SOLVE_PITCH + m);
            sum.x = fmaf(-row.x, x[m], sum.x);
            if (m + 1u < i) {
                sum.y = fmaf(-row.y, x[m + 1u], sum.y);
            }
            if (m + 2u < i) {
                sum.z = fmaf(-row.z, x[m + 2u], sum.z);
            }
            if (m + 3u < i) {
                sum.w = fmaf(-row.w, x[m + 3u], sum.w);
            }
        }
        x[i] = total(sum);
    }
    __syncwarp();
#pragma unroll
    for (u32 i = 0u; i < CHUNK_TOKENS; i++) {
        block[i * SOLVE_PITCH + c] = x[i];
    }
}

// A left operand of 16 by 16 in two parts.
struct Left {
    u32 high[4];
    u32 low[4];
};

__device__ __forceinline__ Left left_of(const Sums& a, const Sums& b) {
    const Split parts[4] = {split(a[0], a[1]), split(a[2], a[3]), split(b[0], b[1]), split(b[2], b[3])};
    Left left;
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        left.high[i] = parts[i].high;
        left.low[i] = parts[i].low;
    }
    return left;
}

// d += a·bᵀ for the 16 by 16 block `b`.
__device__ __forceinline__ void times_block(Sums (&d)[2], const Left& a, const float* b) {
    const u32 lane = threadIdx.x % 32u;
#pragma unroll
    for (u32 n = 0u; n < 2u; n++) {
        const float* row = b + (8u * n + lane / 4u) * SOLVE_PITCH + lane % 4u * 2u;
        const float2 first = *reinterpret_cast<const float2*>(row);
        const float2 second = *reinterpret_cast<const float2*>(row + 8u);
        const Split b0 = split(first.x, first.y);
        const Split b1 = split(second.x, second.y);
        mma_bf16(d[n], a.high, b0.high, b1.high);
        mma_bf16(d[n], a.low, b0.high, b1.high);
        mma_bf16(d[n], a.high, b0.low, b1.low);
    }
}

// Columns J·16 and on of the inverse below the diagonal, by a warp: T_iJ = −D_i Σ_m G_im T_mJ with the blocks D of the
// diagonal, all transposed, so that sums are the next left operand.
template <u32 J>
struct Below {
    static constexpr u32 BLOCKS = CHUNKS_OF_TILE - 1u - J;
    Sums found[BLOCKS][2];

    __device__ __forceinline__ void solve(const float* g) {
        const u32 lane = threadIdx.x % 32u;
        Left known[BLOCKS];
        const float* block = g + J * CHUNK_TOKENS * (SOLVE_PITCH + 1u);
        Sums own[2];
#pragma unroll
        for (u32 n = 0u; n < 2u; n++) {
#pragma unroll
            for (u32 c = 0u; c < 4u; c++) {
                own[n][c] = block[(8u * n + lane % 4u * 2u + c % 2u) * SOLVE_PITCH + lane / 4u + c / 2u * 8u];
            }
        }
        known[0] = left_of(own[0], own[1]);
#pragma unroll
        for (u32 i = 0u; i < BLOCKS; i++) {
            const float* row = g + (J + 1u + i) * CHUNK_TOKENS * SOLVE_PITCH;
            Sums sum[2] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
            for (u32 m = 0u; m <= i; m++) {
                times_block(sum, known[m], row + (J + m) * CHUNK_TOKENS);
            }
#pragma unroll
            for (u32 n = 0u; n < 2u; n++) {
#pragma unroll
                for (u32 c = 0u; c < 4u; c++) {
                    sum[n][c] = -sum[n][c];
                    found[i][n][c] = 0.0f;
                }
            }
            times_block(found[i], left_of(sum[0], sum[1]), row + (J + 1u + i) * CHUNK_TOKENS);
            if (i + 1u < BLOCKS) {
                known[i + 1u] = left_of(found[i][0], found[i][1]);
            }
        }
    }

    __device__ __forceinline__ void put(float* g) const {
        const u32 lane = threadIdx.x % 32u;
#pragma unroll
        for (u32 i = 0u; i < BLOCKS; i++) {
#pragma unroll
            for (u32 n = 0u; n < 2u; n++) {
#pragma unroll
                for (u32 c = 0u; c < 4u; c++) {
                    const u32 row = (J + 1u + i) * CHUNK_TOKENS + 8u * n + lane % 4u * 2u + c % 2u;
                    g[row * SOLVE_PITCH + J * CHUNK_TOKENS + lane / 4u + c / 2u * 8u] = found[i][n][c];
                }
            }
        }
    }
};

struct Tile {
    const Params& p;
    const float* qkv;
    const float* gates;
    u32* work;
    u32 chunks;
    u32 chunk;
    u32 first;
    u32 live;

    // Rounds q and k to shared memory, and to `work` for the value heads that share them. A warp takes 8 rows by 16 columns at a
    // time, so that core matrices are written whole, and 8 loads are under way.
    __device__ __forceinline__ void load(u32* keys, u32* queries, u32 key_head, bool writes) const {
        constexpr u32 BATCH = 8u;
        constexpr u32 WARPS = THREADS / 32u;
        constexpr u32 PATCHES = TILE / 8u * (K / 16u);
        const u32 lane = threadIdx.x % 32u;
#pragma unroll 1
        for (u32 begin = threadIdx.x / 32u; begin < 2u * PATCHES; begin += BATCH * WARPS) {
            const bool key = begin >= PATCHES;
            const u32 own = begin - (key ? PATCHES : 0u);
            const float* from = qkv + (key ? p.heads * K : 0u) + key_head * K + lane % 4u * 4u;
            float4 x[BATCH];
#pragma unroll
            for (u32 n = 0u; n < BATCH; n++) {
                const u32 patch = own + n * WARPS;
                const u32 r = min(patch / (K / 16u) * 8u + lane / 4u, live - 1u);
                x[n] = aligned(from, (first + r) * p.row + patch % (K / 16u) * 16u);
            }
            u32* shared = key ? keys : queries;
            u32* to = work + key_words(p, chunks, key_head, key ? 0u : 1u, chunk);
#pragma unroll
            for (u32 n = 0u; n < BATCH; n++) {
                const u32 patch = own + n * WARPS;
                const u32 r = patch / (K / 16u) * 8u + lane / 4u;
                const bool lives = r < live;
                const uint2 words = make_uint2(
                    lives ? pack_bf16(x[n].x, x[n].y) : 0u, lives ? pack_bf16(x[n].z, x[n].w) : 0u);
                const u32 place = core_word(r, patch % (K / 16u) * 16u + lane % 4u * 4u, K);
                *reinterpret_cast<uint2*>(shared + place) = words;
                if (writes && r / CHUNK_TOKENS * CHUNK_TOKENS < live) {
                    *reinterpret_cast<uint2*>(to + place) = words;
                }
            }
        }
    }

    // The gates of a head and their exponentials, by 64 threads of which this is the t-th. All threads come here together.
    __device__ __forceinline__ void load_gates(Gates& s, u32 head, u32 t, bool works) const {
        if (works) {
            const bool lives = t < live;
            const u32 row = (first + t) * p.gate_row;
            s.log[t] = DECAY == DECAY_SCALAR && lives ? gates[row + head] : 0.0f;
            s.beta[t] = !lives ? 0.0f : UPDATE == UPDATE_ADD ? 1.0f : gates[row + p.strength + head];
        }
        __syncthreads();
        const u32 begin = t / CHUNK_TOKENS * CHUNK_TOKENS;
        float before = 0.0f;
        float after = 0.0f;
        if (works) {
            float own[CHUNK_TOKENS];
#pragma unroll
            for (u32 m = 0u; m < CHUNK_TOKENS; m++) {
                own[m] = s.log[begin + m];
            }
#pragma unroll
            for (u32 m = 0u; m < CHUNK_TOKENS; m++) {
                const bool later = begin + m > t;
                before += later ? 0.0f : own[m];
                after += later ? own[m] : 0.0f;
                s.within[t][m] = begin + m < t ? 0.0f : expf(after);
            }
            s.before[t] = expf(before);
            s.after[t] = expf(after);
            if (t % CHUNK_TOKENS == CHUNK_TOKENS - 1u) {
                s.total[t / CHUNK_TOKENS] = before;
            }
        }
        __syncthreads();
        if (works && t < CHUNKS_OF_TILE * CHUNKS_OF_TILE) {
            float sum = 0.0f;
            for (u32 b = t / CHUNKS_OF_TILE + 1u; b < t % CHUNKS_OF_TILE; b++) {
                sum += s.total[b];
            }
            s.between[t / CHUNKS_OF_TILE][t % CHUNKS_OF_TILE] = expf(sum);
        }
        if (works && t / CHUNK_TOKENS * CHUNK_TOKENS < live) {
            float start = 0.0f;
            float rest = 0.0f;
            for (u32 b = 0u; b < CHUNKS_OF_TILE; b++) {
                start += b < t / CHUNK_TOKENS ? s.total[b] : 0.0f;
                rest += b > t / CHUNK_TOKENS ? s.total[b] : 0.0f;
            }
            const float4 scales = make_float4(s.beta[t], expf(start + before), expf(rest + after), start + before);
            *reinterpret_cast<float4*>(work + scale_words(p, chunks, head, chunk) + 4u * t) = t < live ? scales : all(0.0f);
        }
        __syncthreads();
    }

    // A of a head to `work` and G of it to `g`, from this warp's rows of q·k and k·k.
    __device__ __forceinline__ void decayed(
        const Gates& s, u32 head, const float (&near)[8][4], const float (&keys)[8][4], float* g) const {
        const u32 warp = threadIdx.x / 32u;
        const u32 lane = threadIdx.x % 32u;
#pragma unroll
        for (u32 n = 0u; n < 8u; n++) {
#pragma unroll
            for (u32 half = 0u; half < 2u; half++) {
                const u32 i = 16u * warp + lane / 4u + 8u * half;
                const u32 j = 8u * n + lane % 4u * 2u;
                // Later tokens are not seen.
                const float2 decay = n / 2u <= warp ? decays_between(s, j, i) : make_float2(0.0f, 0.0f);
                if (16u * warp < live) {
                    work[matrix_words(chunks, head, NEAR, chunk) + core_word(i, j, TILE)] =
                        pack_bf16(decay.x * near[n][2u * half], decay.y * near[n][2u * half + 1u]);
                }
                if (INVERSE && n / 2u <= warp) {
                    const float beta = s.beta[i];
                    *reinterpret_cast<float2*>(g + i * SOLVE_PITCH + j) = make_float2(
                        j < i ? beta * (decay.x * keys[n][2u * half]) : 0.0f,
                        j + 1u < i ? beta * (decay.y * keys[n][2u * half + 1u]) : 0.0f);
                }
            }
        }
    }

    // Eight columns of a row of the inverse of a head at a time, as two parts, by 64 threads.
    __device__ __forceinline__ void put_inverse(const float* inverse, u32 head, u32 t) const {
#pragma unroll 2
        for (u32 i = t; i < TILE * TILE / 8u; i += TILE) {
            const u32 r = i / 8u;
            const u32 j = i % 8u * 8u;
            if (r / CHUNK_TOKENS * CHUNK_TOKENS >= live) {
                continue;
            }
            // Above the diagonal the memory has something else.
            const bool zero = j / CHUNK_TOKENS > r / CHUNK_TOKENS;
            u32 high[4];
            u32 low[4];
#pragma unroll
            for (u32 n = 0u; n < 2u; n++) {
                const float4 x = zero ? all(0.0f) : aligned(inverse, r * SOLVE_PITCH + j + 4u * n);
                high[2u * n] = pack_bf16(x.x, x.y);
                high[2u * n + 1u] = pack_bf16(x.z, x.w);
                low[2u * n] = pack_bf16(x.x - bf16_low(high[2u * n]), x.y - bf16_high(high[2u * n]));
                low[2u * n + 1u] = pack_bf16(x.z - bf16_low(high[2u * n + 1u]), x.w - bf16_high(high[2u * n + 1u]));
            }
            *reinterpret_cast<uint4*>(work + matrix_words(chunks, head, 0u, chunk) + core_word(r, j, TILE)) =
                make_uint4(high[0], high[1], high[2], high[3]);
            *reinterpret_cast<uint4*>(work + matrix_words(chunks, head, 1u, chunk) + core_word(r, j, TILE)) =
                make_uint4(low[0], low[1], low[2], low[3]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(128, 4) tile_prepare(
    Params p, const u32* __restrict__ tables, const float* __restrict__ qkv, const float* __restrict__ gates, u32* work) {
    __shared__ uint4 key_region[REGION];
    __shared__ uint4 query_region[REGION];
    __shared__ Gates gates_of[2];
    const u32 chunk = blockIdx.x;
    const u32 group = p.value_heads / p.heads;
    const u32 heads = group % 2u == 0u ? 2u : 1u;
    const u32 first_head = blockIdx.y * heads;
    if (chunk >= tables[CHUNKS] || first_head >= p.value_heads) {
        return;
    }
    const u32 at = record(tables, CHUNK_TABLE, chunk, CHUNK_WORDS);
    if (tables[at + 3u] % CHUNKS_OF_TILE != 0u) {
        return;
    }
    const Tile tile = {p, qkv, gates, work, tables[CHUNKS], chunk, tables[at], min(tables[at + 2u], TILE)};
    u32* keys = reinterpret_cast<u32*>(key_region);
    u32* queries = reinterpret_cast<u32*>(query_region);
    tile.load(keys, queries, first_head / group, first_head % group == 0u);
    // The first 64 threads have one head, the others the next.
    const u32 half = threadIdx.x / TILE;
    const u32 t = threadIdx.x % TILE;
    const u32 head = first_head + half;
    const bool works = half < heads;
    tile.load_gates(gates_of[half], head, t, works);

    const u32 warp = threadIdx.x / 32u;
    const u32 lane = threadIdx.x % 32u;
    float near[8][4];
    float solved[8][4];
#pragma unroll
    for (u32 n = 0u; n < 8u; n++) {
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            near[n][c] = 0.0f;
            solved[n][c] = 0.0f;
        }
    }
    const u32 own = core_word(16u * warp + lane % 16u, lane / 16u * 8u, K);
    const u32 other = core_word(lane / 16u * 8u + lane % 8u, lane / 8u % 2u * 8u, K);
    constexpr u32 STEP = 2u * CORE / 4u;
#pragma unroll
    for (u32 step = 0u; step < K / 16u; step++) {
        u32 q[4];
        u32 k[4];
        ldmatrix_x4(q, queries + own + STEP * step);
        if (INVERSE) {
            ldmatrix_x4(k, keys + own + STEP * step);
        }
#pragma unroll
        for (u32 pair = 0u; pair < 4u; pair++) {
            if (pair <= warp) {
                u32 b[4];
                ldmatrix_x4(b, keys + other + pair * 2u * (KEY_ROWS / 4u) + STEP * step);
                mma_bf16(near[2u * pair], q, b[0], b[1]);
                mma_bf16(near[2u * pair + 1u], q, b[2], b[3]);
                if (INVERSE) {
                    mma_bf16(solved[2u * pair], k, b[0], b[1]);
                    mma_bf16(solved[2u * pair + 1u], k, b[2], b[3]);
                }
            }
        }
    }
    // All have read q and k: their places are free.
    __syncthreads();
    float* const g[2] = {reinterpret_cast<float*>(key_region), reinterpret_cast<float*>(query_region)};
    tile.decayed(gates_of[0], first_head, near, solved, g[0]);
    if (heads == 2u) {
        tile.decayed(gates_of[1], first_head + 1u, near, solved, g[1]);
    }
    if (!INVERSE) {
        return;
    }
    __syncthreads();
    float* mine = half == 0u ? g[0] : g[1];
    if (works) {
        solve_block(mine + t / CHUNK_TOKENS * CHUNK_TOKENS * (SOLVE_PITCH + 1u), t % CHUNK_TOKENS);
    }
    __syncthreads();
    // Of the two warps of a head one has the first 16 columns, the other the next two 16s; the last has nothing below.
    Below<0u> first;
    Below<1u> second;
    Below<2u> third;
    if (works && warp % 2u == 0u) {
        first.solve(mine);
    } else if (works) {
        second.solve(mine);
        third.solve(mine);
    }
    // G is read until here.
    __syncthreads();
    if (works && warp % 2u == 0u) {
        first.put(mine);
    } else if (works) {
        second.put(mine);
        third.put(mine);
    }
    __syncthreads();
    if (works) {
        tile.put_inverse(mine, head, t);
    }
}
