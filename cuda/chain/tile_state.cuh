// tile_state: 16 columns of a state as a warp holds them, and the steps of a chain that touch no rows.
//
// The state is kept transposed, [16 columns, K], as the sums of K/8 products of 8 key dims: lane (g, t) = (lane/4, lane%4) has
// columns g and g + 8, key dims 8n + 2t and 8n + 2t + 1 of tile n. Two neighbouring tiles, rounded, are the left operand of
// the next product, so a state never leaves its registers.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/mma.cuh"
#include "shared/split.cuh"
#include "chain/params.cuh"
#include "chain/steps.cuh"
#include "chain/tile.cuh"

constexpr u32 KEY_TILES = K / 8u;
constexpr u32 KEY_STEPS = K / 16u;
constexpr u32 THREADS = 128u;
// Steps of 16 key dims whose operands are made while the products of as many are under way.
constexpr u32 AHEAD = 2u;

typedef Sums Columns[KEY_TILES];

// The columns of a warp.
struct Place {
    u32 head;
    // Block of columns, its first column in it, columns of the block.
    u32 block;
    u32 first;
    u32 width;
    // Columns g and key dims 2t of this lane.
    u32 g;
    u32 t;
    u32 lane;
};

// Two neighbouring tiles of sums as a left operand, in two parts.
__device__ __forceinline__ void operand(const Sums& a, const Sums& b, u32 (&high)[4], u32 (&low)[4]) {
    const Split parts[4] = {split(a[0], a[1]), split(a[2], a[3]), split(b[0], b[1]), split(b[2], b[3])};
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        high[i] = parts[i].high;
        low[i] = parts[i].low;
    }
}

__device__ __forceinline__ void fill(Columns& s, float x) {
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            s[n][c] = x;
        }
    }
}

__device__ __forceinline__ void scale(Columns& s, float factor) {
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            s[n][c] *= factor;
        }
    }
}

// The key dim and the column of element c of tile n.
__device__ __forceinline__ u32 key_of(const Place& at, u32 n, u32 c) {
    return 8u * n + 2u * at.t + c % 2u;
}

__device__ __forceinline__ u32 column_of(const Place& at, u32 c) {
    return at.first + at.g + c / 2u * 8u;
}

// S and T start from 0 | I.
__device__ __forceinline__ void begin(Columns& s, const Place& at) {
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            s[n][c] = at.block == TRANSITION && key_of(at, n, c) == column_of(at, c) ? 1.0f : 0.0f;
        }
    }
}

// The word of element (key 2t, column g) of this lane in the private slot at `base`.
__device__ __forceinline__ u32 slot(const Params& p, u32 base, const Place& at) {
    const u32 block = base + at.block * p.value_heads * p.value * K;
    return block + (at.head * K + 2u * at.t) * at.width + at.first + at.g;
}

__device__ __forceinline__ void load(Columns& s, const float* slab, u32 word, u32 width) {
    const u32 step = opaque(width);
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
        const u32 w = word + 8u * n * step;
        s[n][0] = slab[w];
        s[n][1] = slab[w + step];
        s[n][2] = slab[w + 8u];
        s[n][3] = slab[w + step + 8u];
    }
}

__device__ __forceinline__ void store(const Columns& s, float* slab, u32 word, u32 width) {
    const u32 step = opaque(width);
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
        const u32 w = word + 8u * n * step;
        slab[w] = s[n][0];
        slab[w + step] = s[n][1];
        slab[w + 8u] = s[n][2];
        slab[w + step + 8u] = s[n][3];
    }
}

__device__ __forceinline__ void add(Columns& s, const float* __restrict__ slab, u32 word, u32 width) {
    const u32 step = opaque(width);
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
        const u32 w = word + 8u * n * step;
        s[n][0] += slab[w];
        s[n][1] += slab[w + step];
        s[n][2] += slab[w + 8u];
        s[n][3] += slab[w + step + 8u];
    }
}

// Adds R·S; `word` is that of key 0 and column g.
__device__ __forceinline__ void add_moved(
    Columns& s, const u32* __restrict__ tables, u32 rot, const float* __restrict__ slab, u32 word, u32 width, u32 angle,
    const Place& at) {
#pragma unroll 1
    for (u32 n = 0u; n < KEY_TILES; n++) {
        Sums moved;
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            const u32 key = key_of(at, n, c);
            const Turn r = turn_of(tables, rot, key, angle, 1.0f);
            const float* column = slab + word + c / 2u * 8u;
            moved[c] = r.cosine * column[key * width] + r.sine * column[r.partner * width];
        }
#pragma unroll
        for (u32 m = 0u; m < KEY_TILES; m++) {
            if (m == n) {
#pragma unroll
                for (u32 c = 0u; c < 4u; c++) {
                    s[m][c] += moved[c];
                }
            }
        }
    }
}

// Multiplies key dims by the exponentials of the K logarithms at word `t`.
__device__ __forceinline__ void decay_keys(Columns& s, const float* __restrict__ slab, u32 t, const Place& at) {
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
        const float even = decay_of(slab[t + key_of(at, n, 0u)]);
        const float odd = decay_of(slab[t + key_of(at, n, 1u)]);
        s[n][0] *= even;
        s[n][1] *= odd;
        s[n][2] *= even;
        s[n][3] *= odd;
    }
}

// s ← T·s + next for the T [K, K] at word `t`, through `room`, 4·K·K bytes of shared memory. Three products of 16-bit parts:
// what is left out is below 2^-16 of a product.
__device__ __forceinline__ void dense(
    Columns& s, Columns& next, const float* __restrict__ slab, u32 t, u32* room, const Place& at) {
    u32* high_rows = room;
    u32* low_rows = room + K * K / 2u;
    // A warp takes 8 rows by 16 columns at a time, so that core matrices are written whole; so many loads are under way.
    constexpr u32 BATCH = 8u;
    constexpr u32 PATCHES = K / 8u * (K / 16u);
    const bool quads = t % 4u == 0u;
#pragma unroll 1
    for (u32 first = threadIdx.x / 32u; first < PATCHES; first += BATCH * (THREADS / 32u)) {
        float4 x[BATCH];
#pragma unroll
        for (u32 i = 0u; i < BATCH; i++) {
            const u32 patch = first + i * (THREADS / 32u);
            const u32 row = patch / (K / 16u) * 8u + at.lane / 4u;
            const u32 word = t + row * K + patch % (K / 16u) * 16u + at.lane % 4u * 4u;
            x[i] = quads ? aligned(slab, word) : strided(slab, word, 1u);
        }
#pragma unroll
        for (u32 i = 0u; i < BATCH; i++) {
            const u32 patch = first + i * (THREADS / 32u);
            const u32 row = patch / (K / 16u) * 8u + at.lane / 4u;
            const Split even = split(x[i].x, x[i].y);
            const Split odd = split(x[i].z, x[i].w);
            const u32 place = core_word(row, patch % (K / 16u) * 16u + at.lane % 4u * 4u, K);
            *reinterpret_cast<uint2*>(high_rows + place) = make_uint2(even.high, odd.high);
            *reinterpret_cast<uint2*>(low_rows + place) = make_uint2(even.low, odd.low);
        }
    }
    products_see();
    __syncthreads();
#pragma unroll
    for (u32 begin = 0u; begin < KEY_STEPS; begin += AHEAD) {
        u32 high[AHEAD][4];
        u32 low[AHEAD][4];
#pragma unroll
        for (u32 i = 0u; i < AHEAD; i++) {
            operand(s[2u * (begin + i)], s[2u * (begin + i) + 1u], high[i], low[i]);
        }
        products_begin();
#pragma unroll
        for (u32 i = 0u; i < AHEAD; i++) {
            const u32 words = (begin + i) * (2u * CORE / 4u);
            const Right upper = {high_rows + words, KEY_ROWS, CORE};
            const Right lower = {low_rows + words, KEY_ROWS, CORE};
            product<KEY_TILES, false, false>(next, high[i], upper);
            product<KEY_TILES, false, false>(next, low[i], upper);
            product<KEY_TILES, false, false>(next, high[i], lower);
        }
        products_commit();
        products_wait<1>();
    }
    products_wait<0>();
#pragma unroll
    for (u32 n = 0u; n < KEY_TILES; n++) {
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            s[n][c] = next[n][c];
        }
    }
}

// h ← T·h + S for S_run and S, T·h for the transition. `step` is the word of the step's record.
__device__ __forceinline__ void apply(
    Columns& s, const Params& p, const Memory& m, u32 step, const Place& at, u32* room) {
    const u32* tables = m.tables;
    const float* slab = slab_of(m, tables[step + 1u]);
    const u32 t = tables[step + 3u];
    const u32 form = tables[step + 4u];
    const bool adds = at.block != TRANSITION;
    const u32 word = tables[step + 2u] + at.head * K * p.value + at.first + at.g;
    if (form == FORM_DENSE) {
        if (DENSE) {
            // S is on its way while T is.
            Columns next;
            fill(next, 0.0f);
            if (adds) {
                load(next, slab, word + 2u * at.t * p.value, p.value);
            }
            __syncthreads();
            dense(s, next, slab, t + at.head * K * K, room, at);
        }
        return;
    }
    if (form == FORM_DIAGONAL) {
        decay_keys(s, slab, t + at.head * K, at);
    } else if (form == FORM_SCALAR) {
        scale(s, decay_of(slab[t + at.head]));
    } else if (form != FORM_IDENTITY) {
        fill(s, 0.0f);
    }
    if (!adds) {
        return;
    }
    if (ROTATION != ROTATION_NONE && tables[step + 5u] != 0u) {
        const u32 angle = tables[ANGLE_TABLE] + (tables[step + 5u] - 1u) * p.rot;
        add_moved(s, tables, p.rot, slab, word, p.value, angle, at);
    } else {
        add(s, slab, word + 2u * at.t * p.value, p.value);
    }
}
