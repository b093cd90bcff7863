// tile_run: the rows of a run step, 64 at a time, from what tile_prepare left.
//
// Per tile, with the names of tile_prepare, for a warp's columns of S:
//   r_i = β_i (v_i − e^(b_i) k_i·S) (a delta update; T: without v), x = (I + G)⁻¹ r; otherwise x_i = β_i v_i;
//   o_i = e^(b_i) q_i·S + Σ_{j<=i} A_ij x_j;   S ← e^(b_last) S + Σ_j k_j (e^(gates after j) x_j).
// All of it transposed: S, x and o are left operands and sums of a warp, what the warps share are right operands in shared
// memory. The parts of a tile are loaded a tile ahead, each as soon as its place is free.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/mma.cuh"
#include "chain/params.cuh"
#include "chain/tile.cuh"
#include "chain/tile_state.cuh"

constexpr u32 TOKEN_TILES = TILE / 8u;
constexpr u32 TOKEN_STEPS = TILE / 16u;
// Floats from token to token of v.
constexpr u32 VALUE_PITCH = 20u;

// Words of shared memory: k twice, q, v a warp, the matrices, scales twice.
constexpr u32 KEY_ROOM = CHUNKS_OF_TILE * KEY_CHUNK;
constexpr u32 VALUE_ROOM = TILE * VALUE_PITCH;
constexpr u32 MATRIX_ROOM = CHUNKS_OF_TILE * MATRIX_CHUNK;
constexpr u32 SCALE_ROOM = CHUNKS_OF_TILE * SCALE_CHUNK;
constexpr u32 QUERIES_AT = 2u * KEY_ROOM;
constexpr u32 VALUES_AT = 3u * KEY_ROOM;
constexpr u32 MATRICES_AT = VALUES_AT + THREADS / 32u * VALUE_ROOM;
constexpr u32 SCALES_AT = MATRICES_AT + PARTS * MATRIX_ROOM;
constexpr u32 ROOM = SCALES_AT + 2u * SCALE_ROOM;

// Copies a range of `chunks` times CHUNK words, at most four, to shared memory: all threads of a block.
template <u32 CHUNK>
__device__ __forceinline__ void copy_chunks(u32* to, const u32* __restrict__ from, u32 chunks) {
    constexpr u32 MOST = CHUNKS_OF_TILE * CHUNK / 4u;
    static_assert(MOST % THREADS == 0u);
    to += 4u * threadIdx.x;
    from += 4u * threadIdx.x;
    if (chunks == CHUNKS_OF_TILE) {
#pragma unroll
        for (u32 i = 0u; i < MOST / THREADS; i++) {
            cp_async16(to + 4u * i * THREADS, from + 4u * i * THREADS);
        }
        return;
    }
    const u32 pieces = chunks * (CHUNK / 4u);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < pieces; i += THREADS) {
        cp_async16(to, from);
        to += 4u * THREADS;
        from += 4u * THREADS;
    }
}

typedef Sums Tokens64[TOKEN_TILES];

struct Run {
    const Params& p;
    const float* qkv;
    const u32* work;
    float* out;
    u32* room;
    const Place& at;
    // Chunks of the pass.
    u32 chunks;
    // Whether the columns are S_run, and whether they are not those of T.
    bool running;
    bool written;

    __device__ __forceinline__ const u32* keys(u32 tile) const {
        return room + tile % 2u * KEY_ROOM;
    }

    __device__ __forceinline__ const float4* scales(u32 tile) const {
        return reinterpret_cast<const float4*>(room + SCALES_AT) + tile % 2u * TILE;
    }

    // k and scales of a tile of `live` rows; what is past its chunks has scales of zero.
    __device__ __forceinline__ void load_keys(u32 tile, u32 chunk, u32 live) const {
        const u32 key_head = at.head / (p.value_heads / p.heads);
        const u32 own = (live + CHUNK_TOKENS - 1u) / CHUNK_TOKENS;
        copy_chunks<KEY_CHUNK>(room + tile % 2u * KEY_ROOM, work + key_words(p, chunks, key_head, 0u, chunk), own);
        if (threadIdx.x < TILE) {
            const bool take = threadIdx.x < own * CHUNK_TOKENS;
            const u32* from = work + scale_words(p, chunks, at.head, chunk) + (take ? 4u * threadIdx.x : 0u);
            cp_async16_or_zero(room + SCALES_AT + tile % 2u * SCALE_ROOM + 4u * threadIdx.x, from, take);
        }
    }

    __device__ __forceinline__ void load_queries(u32 chunk, u32 live) const {
        const u32 key_head = at.head / (p.value_heads / p.heads);
        const u32 own = (live + CHUNK_TOKENS - 1u) / CHUNK_TOKENS;
        copy_chunks<KEY_CHUNK>(room + QUERIES_AT, work + key_words(p, chunks, key_head, 1u, chunk), own);
    }

    // This warp's 16 columns of v.
    __device__ __forceinline__ void load_values(u32 row, u32 live) const {
        if (!written) {
            return;
        }
        u32* to = room + VALUES_AT + threadIdx.x / 32u * VALUE_ROOM + at.lane / 4u * VALUE_PITCH + at.lane % 4u * 4u;
        const u32 values = 2u * p.heads * K + at.head * p.value + at.first + at.lane % 4u * 4u;
        const float* from = qkv + (size_t)(row + at.lane / 4u) * p.row + values;
        const size_t step = (size_t)8u * p.row;
#pragma unroll
        for (u32 i = 0u; i < TILE / 8u; i++) {
            if (8u * i + at.lane / 4u < live) {
                cp_async16(to + 8u * i * VALUE_PITCH, from);
            }
            from += step;
        }
    }

    // Parts `part` to `end` of the tile's matrices.
    __device__ __forceinline__ void load_matrices(u32 part, u32 end, u32 chunk, u32 live) const {
        const u32 own = (live + CHUNK_TOKENS - 1u) / CHUNK_TOKENS;
        for (; part < end; part++) {
            u32* to = room + MATRICES_AT + part * MATRIX_ROOM;
            copy_chunks<MATRIX_CHUNK>(to, work + matrix_words(chunks, at.head, part, chunk), own);
        }
    }

    // The key dims from 16·BEGIN on: AHEAD steps are made operands while the products of as many are under way.
    template <u32 BEGIN>
    __device__ __forceinline__ void read_state_from(const Columns& s, u32 tile, Tokens64& seen, Tokens64& o) const {
        if constexpr (BEGIN < KEY_STEPS) {
            u32 high[AHEAD][4];
            u32 low[AHEAD][4];
#pragma unroll
            for (u32 i = 0u; i < AHEAD; i++) {
                operand(s[2u * (BEGIN + i)], s[2u * (BEGIN + i) + 1u], high[i], low[i]);
            }
            products_begin();
#pragma unroll
            for (u32 i = 0u; i < AHEAD; i++) {
                const u32 words = (BEGIN + i) * (2u * CORE / 4u);
                if (INVERSE) {
                    const Right k = {keys(tile) + words, KEY_ROWS, CORE};
                    if (BEGIN + i == 0u) {
                        product<TOKEN_TILES, false, true>(seen, high[i], k);
                    } else {
                        product<TOKEN_TILES, false, false>(seen, high[i], k);
                    }
                    product<TOKEN_TILES, false, false>(seen, low[i], k);
                }
                if (running) {
                    const Right q = {room + QUERIES_AT + words, KEY_ROWS, CORE};
                    if (BEGIN + i == 0u) {
                        product<TOKEN_TILES, false, true>(o, high[i], q);
                    } else {
                        product<TOKEN_TILES, false, false>(o, high[i], q);
                    }
                }
            }
            products_commit();
            products_wait<1>();
            read_state_from<BEGIN + AHEAD>(s, tile, seen, o);
        }
    }

    // seen = k·S and, where `running`, o = q·S for each token.
    __device__ __forceinline__ void read_state(const Columns& s, u32 tile, Tokens64& seen, Tokens64& o) const {
        read_state_from<0u>(s, tile, seen, o);
        products_wait<0>();
    }

    // x: β v, or for a delta update r = β (v − e^b seen), with seen in x; o by its decay.
    __device__ __forceinline__ void write(u32 tile, Tokens64& x, Tokens64& o) const {
        const float* values = reinterpret_cast<const float*>(room + VALUES_AT) + threadIdx.x / 32u * VALUE_ROOM;
        const float4* scale = scales(tile);
#pragma unroll
        for (u32 n = 0u; n < TOKEN_TILES; n++) {
#pragma unroll
            for (u32 c = 0u; c < 4u; c++) {
                const u32 token = 8u * n + 2u * at.t + c % 2u;
                const float2 own = *reinterpret_cast<const float2*>(scale + token);
                const float v = written ? values[token * VALUE_PITCH + at.g + c / 2u * 8u] : 0.0f;
                x[n][c] = own.x * (INVERSE ? v - own.y * x[n][c] : v);
                o[n][c] *= own.y;
            }
        }
    }

    // x = (I + G)⁻¹ r
    __device__ __forceinline__ void solve(const Tokens64& r, Tokens64& x) const {
        u32 high[TOKEN_STEPS][4];
        u32 low[TOKEN_STEPS][4];
#pragma unroll
        for (u32 step = 0u; step < TOKEN_STEPS; step++) {
            operand(r[2u * step], r[2u * step + 1u], high[step], low[step]);
        }
        const u32* inverse = room + MATRICES_AT;
        products_begin();
        product<TOKEN_TILES, false, true>(x, high[0], {inverse, MATRIX_ROWS, CORE});
#pragma unroll
        for (u32 step = 0u; step < TOKEN_STEPS; step++) {
            const u32* own = inverse + step * (2u * CORE / 4u);
            if (step > 0u) {
                product<TOKEN_TILES, false, false>(x, high[step], {own, MATRIX_ROWS, CORE});
            }
            product<TOKEN_TILES, false, false>(x, low[step], {own, MATRIX_ROWS, CORE});
            product<TOKEN_TILES, false, false>(x, high[step], {own + MATRIX_ROOM, MATRIX_ROWS, CORE});
        }
        products_commit();
        products_wait<0>();
    }

    __device__ __forceinline__ void put(u32 row, u32 live, const Tokens64& o) const {
        const size_t step = (size_t)p.value_heads * p.value;
        float* even = out + (row + 2u * at.t) * step + at.head * p.value + column_of(at, 0u);
        float* odd = even + step;
        if (live == TILE) {
#pragma unroll
            for (u32 n = 0u; n < TOKEN_TILES; n++) {
                even[0] = o[n][0];
                even[8] = o[n][2];
                odd[0] = o[n][1];
                odd[8] = o[n][3];
                even += 8u * step;
                odd += 8u * step;
            }
            return;
        }
#pragma unroll
        for (u32 n = 0u; n < TOKEN_TILES; n++) {
            if (8u * n + 2u * at.t < live) {
                even[0] = o[n][0];
                even[8] = o[n][2];
            }
            if (8u * n + 2u * at.t + 1u < live) {
                odd[0] = o[n][1];
                odd[8] = o[n][3];
            }
            even += 8u * step;
            odd += 8u * step;
        }
    }

    // Where `running`, o += A·x and out it goes; S ← e^(b_last) S + Σ_j k_j (e^(gates after j) x_j).
    __device__ __forceinline__ void finish(
        Columns& s, u32 tile, u32 row, u32 live, const Tokens64& x, Tokens64& o) const {
        const float4* own = scales(tile);
        u32 near[TOKEN_STEPS][4];
        u32 high[TOKEN_STEPS][4];
        u32 low[TOKEN_STEPS][4];
#pragma unroll
        for (u32 step = 0u; step < TOKEN_STEPS; step++) {
            Sums left[2];
#pragma unroll
            for (u32 n = 0u; n < 2u; n++) {
                const Sums& from = x[2u * step + n];
                near[step][2u * n] = pack_bf16(from[0], from[1]);
                near[step][2u * n + 1u] = pack_bf16(from[2], from[3]);
#pragma unroll
                for (u32 c = 0u; c < 4u; c++) {
                    left[n][c] = own[16u * step + 8u * n + 2u * at.t + c % 2u].z * from[c];
                }
            }
            operand(left[0], left[1], high[step], low[step]);
        }
        if (DECAY != DECAY_NONE) {
            scale(s, own[live - 1u].y);
        }
        products_begin();
        if (running) {
#pragma unroll
            for (u32 step = 0u; step < TOKEN_STEPS; step++) {
                const u32* own_near = room + MATRICES_AT + NEAR * MATRIX_ROOM + step * (2u * CORE / 4u);
                product<TOKEN_TILES, false, false>(o, near[step], {own_near, MATRIX_ROWS, CORE});
            }
        }
        products_commit();
        products_wait<0>();
        products_begin();
#pragma unroll
        for (u32 step = 0u; step < TOKEN_STEPS; step++) {
            const Right k = {keys(tile) + step * 2u * (KEY_ROWS / 4u), CORE, KEY_ROWS};
            product<KEY_TILES, true, false>(s, high[step], k);
            product<KEY_TILES, true, false>(s, low[step], k);
        }
        products_commit();
        products_wait<0>();
        if (running) {
            put(row, live, o);
        }
    }

    // One tile of `live` rows from `row`, the next of which has `next_live` rows.
    __device__ __forceinline__ void one(Columns& s, u32 tile, u32 row, u32 live, u32 next_live, u32 chunk) const {
        const u32 next = row + TILE;

        // k, scales and q are there; under way are v and the inverse.
        cp_async_wait<2>();
        products_see();
        __syncthreads();
        load_matrices(NEAR, PARTS, chunk, live);
        if (next_live > 0u) {
            load_keys(tile + 1u, chunk + CHUNKS_OF_TILE, next_live);
        }
        cp_async_commit();
        Tokens64 x;
        Tokens64 o;
        read_state(s, tile, x, o);

        // v is there; q has been read.
        cp_async_wait<2>();
        __syncthreads();
        if (next_live > 0u) {
            load_queries(chunk + CHUNKS_OF_TILE, next_live);
        }
        cp_async_commit();
        write(tile, x, o);
        __syncwarp();
        if (next_live > 0u) {
            load_values(next, next_live);
        }
        cp_async_commit();

        Tokens64 solved;
        if (INVERSE) {
            cp_async_wait<3>();
            products_see();
            __syncthreads();
            solve(x, solved);
        }
        // A is there; the inverse has been read.
        cp_async_wait<2>();
        products_see();
        __syncthreads();
        if (next_live > 0u) {
            load_matrices(0u, NEAR, chunk + CHUNKS_OF_TILE, next_live);
        }
        cp_async_commit();
        finish(s, tile, row, live, INVERSE ? solved : x, o);
    }

    // Rows `first` to `first + rows`, whose chunks start at `chunk`. All threads of a block come here together.
    __device__ __forceinline__ void run(Columns& s, u32 first, u32 rows, u32 chunk) const {
        const u32 tiles = (rows + TILE - 1u) / TILE;
        // What the last step left in shared memory may be in use.
        __syncthreads();
        u32 live = min(rows, TILE);
        load_keys(0u, chunk, live);
        cp_async_commit();
        load_queries(chunk, live);
        cp_async_commit();
        load_values(first, live);
        cp_async_commit();
        load_matrices(0u, NEAR, chunk, live);
        cp_async_commit();
#pragma unroll 1
        for (u32 tile = 0u; tile < tiles; tile++) {
            const u32 row = first + tile * TILE;
            live = min(first + rows - row, TILE);
            const u32 next_live = tile + 1u < tiles ? min(first + rows - row - TILE, TILE) : 0u;
            one(s, tile, row, live, next_live, chunk + tile * CHUNKS_OF_TILE);
        }
    }
};
