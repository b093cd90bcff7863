// steps: what the recurrent and the chunk form of a chain share, all but the run step.
//
// A chain's columns are S_run (V) | S (V) | transition. Of a delta update the transition is T, K columns that start from
// the identity; of an add update with a decay it is one column of log-sums of the gates, K of them (diagonal) or one
// (scalar, in element 0). A private slot is S_run [HV, K, V], S [HV, K, V], then T [HV, K, K] or log-sums [HV, K] or [HV].
//
// A thread's column is an array that only constants index, once the loops over it are unrolled, so that it stays in
// registers. What a number must index goes through an array in local memory.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "chain/params.cuh"

constexpr u32 QUADS = K / 4u;

// Whether the transition is a dense matrix, and the columns it has.
constexpr bool DENSE = UPDATE >= UPDATE_DELTA;
constexpr u32 TRANSITION_COLUMNS = DENSE ? K : DECAY == DECAY_NONE ? 0u : 1u;

typedef float4 State[QUADS];

// Which block of columns: S_run, S or the transition.
constexpr u32 RUNNING = 0u;
constexpr u32 FRESH = 1u;
constexpr u32 TRANSITION = 2u;

struct Column {
    // Value head.
    u32 head;
    // Block of columns, and the column in it.
    u32 block;
    u32 col;
    // Words from one element of the column to the next in a slot.
    u32 width;
};

// What the steps read and write.
struct Memory {
    const u32* tables;
    float* private_slab;
    const float* shared0;
    const float* shared1;
    const float* shared2;
};

// e^log for log <= 0, an exact 0 for the least ones.
__device__ __forceinline__ float decay_of(float log) {
    return log < -104.0f ? 0.0f : expf(log);
}

__device__ __forceinline__ float4 decays_of(float4 log) {
    return make_float4(decay_of(log.x), decay_of(log.y), decay_of(log.z), decay_of(log.w));
}

// Sums of logarithms, no smaller than that of 0.
__device__ __forceinline__ float4 sum_of_logs(float4 a, float4 b) {
    const float4 sum = plus(a, b);
    return make_float4(fmaxf(sum.x, LOG_ZERO), fmaxf(sum.y, LOG_ZERO), fmaxf(sum.z, LOG_ZERO), fmaxf(sum.w, LOG_ZERO));
}

// Whether the column holds log-sums.
__device__ __forceinline__ bool is_log(const Column& c) {
    return !DENSE && c.block == TRANSITION;
}

// The slab that an apply names: shared 0..2, otherwise private.
__device__ __forceinline__ const float* slab_of(const Memory& m, u32 slab) {
    switch (slab) {
        case 0u:
            return m.shared0;
        case 1u:
            return m.shared1;
        case 2u:
            return m.shared2;
        default:
            return m.private_slab;
    }
}

// The word of element 0 of the column in the private slot at `base`; element i is i·width further on.
__device__ __forceinline__ u32 slot(const Params& p, u32 base, const Column& c) {
    const u32 block = base + c.block * p.value_heads * p.value * K;
    if (is_log(c)) {
        return block + c.head * (DECAY == DECAY_DIAGONAL ? K : 1u);
    }
    return block + c.head * c.width * K + c.col;
}

__device__ __forceinline__ void load(State& state, const float* slab, u32 at, const Column& c) {
    if (is_log(c) && DECAY == DECAY_SCALAR) {
        state[0] = make_float4(slab[at], 0.0f, 0.0f, 0.0f);
        return;
    }
    const u32 width = opaque(c.width);
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = strided(slab, at + 4u * i * width, width);
    }
}

__device__ __forceinline__ void store(const State& state, float* slab, u32 at, const Column& c) {
    if (is_log(c) && DECAY == DECAY_SCALAR) {
        slab[at] = state[0].x;
        return;
    }
    const u32 width = opaque(c.width);
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        const u32 w = at + 4u * i * width;
        slab[w] = state[i].x;
        slab[w + width] = state[i].y;
        slab[w + 2u * width] = state[i].z;
        slab[w + 3u * width] = state[i].w;
    }
}

__device__ __forceinline__ void fill(State& state, float x) {
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = all(x);
    }
}

__device__ __forceinline__ void scale(State& state, float factor) {
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = times(all(factor), state[i]);
    }
}

// S and T start from 0 | I, log-sums from 0.
__device__ __forceinline__ void begin(State& state, const Column& c) {
    fill(state, 0.0f);
    if (DENSE && c.block == TRANSITION) {
#pragma unroll
        for (u32 i = 0u; i < QUADS; i++) {
            state[i] = make_float4(
                4u * i == c.col ? 1.0f : 0.0f, 4u * i + 1u == c.col ? 1.0f : 0.0f, 4u * i + 2u == c.col ? 1.0f : 0.0f,
                4u * i + 3u == c.col ? 1.0f : 0.0f);
        }
    }
}

// The column in local memory, where elements can be chosen by a number.
__device__ __forceinline__ void put(const State& state, float (&elements)[K]) {
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        elements[4u * i] = state[i].x;
        elements[4u * i + 1u] = state[i].y;
        elements[4u * i + 2u] = state[i].z;
        elements[4u * i + 3u] = state[i].w;
    }
}

__device__ __forceinline__ void take(State& state, const float (&elements)[K]) {
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = make_float4(elements[4u * i], elements[4u * i + 1u], elements[4u * i + 2u], elements[4u * i + 3u]);
    }
}

// next ← T·state with T at word `t`. All threads of a head read the same rows of T at the same time.
template <bool ALIGNED>
__device__ __forceinline__ void products(const State& state, const float* __restrict__ slab, u32 t, float (&next)[K]) {
#pragma unroll 1
    for (u32 row = 0u; row < K; row++) {
        float4 sum = all(0.0f);
#pragma unroll
        for (u32 j = 0u; j < QUADS; j++) {
            sum = fused(state[j], quad<ALIGNED>(slab, t + row * K + 4u * j), sum);
        }
        next[row] = total(sum);
    }
}

// state ← T·state. The new column waits in local memory: beside the old one it would not fit in registers.
__device__ __forceinline__ void dense(State& state, const float* __restrict__ slab, u32 t) {
    float next[K];
    if (t % 4u == 0u) {
        products<true>(state, slab, t, next);
    } else {
        products<false>(state, slab, t, next);
    }
    take(state, next);
}

// Multiplies the elements by the exponentials of the K logarithms at word `t`.
__device__ __forceinline__ void decay_elements(State& state, const float* __restrict__ slab, u32 t) {
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = times(decays_of(strided(slab, t + 4u * i, 1u)), state[i]);
    }
}

// How a rotation acts on element `i` of a column: element `i` times `cosine` plus the partner's times `sine`.
struct Turn {
    u32 partner;
    float cosine;
    float sine;
};

// The rotation by the angle record at word `angle`; `sign` −1 for its inverse.
__device__ __forceinline__ Turn turn_of(const u32* __restrict__ tables, u32 rot, u32 i, u32 angle, float sign) {
    const u32 half = rot / 2u;
    if (i >= rot) {
        return {i, 1.0f, 0.0f};
    }
    u32 pair = i % half;
    bool second = i >= half;
    u32 partner = second ? i - half : i + half;
    if (ROTATION == ROTATION_INTERLEAVED) {
        pair = i / 2u;
        second = i % 2u == 1u;
        partner = second ? i - 1u : i + 1u;
    }
    const float sine = sign * __uint_as_float(tables[angle + half + pair]);
    return {partner, __uint_as_float(tables[angle + pair]), second ? sine : -sine};
}

// state ← R·state
__device__ __forceinline__ void rotate(
    State& state, const u32* __restrict__ tables, u32 rot, u32 angle, float sign) {
    float old[K];
    float next[K];
    put(state, old);
#pragma unroll 1
    for (u32 i = 0u; i < K; i++) {
        const Turn r = turn_of(tables, rot, i, angle, sign);
        next[i] = r.cosine * old[i] + r.sine * old[r.partner];
    }
    take(state, next);
}

// Adds a column of S whose elements are `width` words apart.
__device__ __forceinline__ void add(State& state, const float* __restrict__ slab, u32 at, u32 width) {
    const u32 step = opaque(width);
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = plus(state[i], strided(slab, at + 4u * i * step, step));
    }
}

// Adds the same column of R·S.
__device__ __forceinline__ void add_moved(
    State& state, const u32* __restrict__ tables, u32 rot, const float* __restrict__ slab, u32 at, u32 width, u32 angle) {
    float moved[K];
#pragma unroll 1
    for (u32 i = 0u; i < K; i++) {
        const Turn r = turn_of(tables, rot, i, angle, 1.0f);
        moved[i] = r.cosine * slab[at + i * width] + r.sine * slab[at + r.partner * width];
    }
#pragma unroll
    for (u32 i = 0u; i < QUADS; i++) {
        state[i] = plus(
            state[i], make_float4(moved[4u * i], moved[4u * i + 1u], moved[4u * i + 2u], moved[4u * i + 3u]));
    }
}

// Adds the logarithms of an operator's transition to a column of log-sums.
__device__ __forceinline__ void add_logs(State& state, const float* __restrict__ slab, u32 form, u32 t, u32 head) {
    if (form == FORM_DIAGONAL) {
#pragma unroll
        for (u32 i = 0u; i < QUADS; i++) {
            state[i] = sum_of_logs(state[i], strided(slab, t + head * K + 4u * i, 1u));
        }
    } else if (form == FORM_SCALAR) {
        const float4 log = all(slab[t + head]);
#pragma unroll
        for (u32 i = 0u; i < QUADS; i++) {
            state[i] = sum_of_logs(state[i], log);
        }
    } else if (form != FORM_IDENTITY) {
        fill(state, LOG_ZERO);
    }
}

// h ← T·h + S for S_run and S, T·h for the transition. `step` is the word of the step's record.
__device__ __forceinline__ void apply(State& state, const Params& p, const Memory& m, u32 step, const Column& c) {
    const u32* tables = m.tables;
    const float* slab = slab_of(m, tables[step + 1u]);
    const u32 s = tables[step + 2u];
    const u32 t = tables[step + 3u];
    const u32 form = tables[step + 4u];
    if (is_log(c)) {
        add_logs(state, slab, form, t, c.head);
        return;
    }
    const bool moved = ROTATION != ROTATION_NONE && tables[step + 5u] != 0u;
    const u32 angle = tables[ANGLE_TABLE] + (tables[step + 5u] - 1u) * p.rot;
    if (form == FORM_DENSE) {
        if (DENSE) {
            if (moved) {
                rotate(state, tables, p.rot, angle, -1.0f);
            }
            dense(state, slab, t + c.head * K * K);
            if (moved) {
                rotate(state, tables, p.rot, angle, 1.0f);
            }
        }
    } else if (form == FORM_DIAGONAL) {
        decay_elements(state, slab, t + c.head * K);
    } else if (form == FORM_SCALAR) {
        scale(state, decay_of(slab[t + c.head]));
    } else if (form != FORM_IDENTITY) {
        fill(state, 0.0f);
    }
    if (c.block != TRANSITION) {
        const u32 at = s + c.head * K * p.value + c.col;
        if (moved) {
            add_moved(state, tables, p.rot, slab, at, p.value, angle);
        } else {
            add(state, slab, at, p.value);
        }
    }
}

// Walks the chain of this thread. `rows` is what a run step does: rows.run(state, first row, rows, first chunk, column).
template <class Rows>
__device__ __forceinline__ void walk(const Params& p, const Memory& m, const Rows& rows) {
    const u32* tables = m.tables;
    const u32 launch = record(tables, CHAIN_LAUNCHES, p.launch, LAUNCH_WORDS);
    if (blockIdx.z >= tables[launch + 1u] || blockIdx.y >= p.value_heads) {
        return;
    }
    const u32 chain = record(tables, CHAIN_TABLE, tables[launch] + blockIdx.z, CHAIN_WORDS);
    const bool both = (tables[chain + 2u] & CHAIN_OPERATOR) != 0u;
    const u32 id = blockIdx.x * 32u + threadIdx.x;
    if (id >= (both ? 2u * p.value + TRANSITION_COLUMNS : p.value)) {
        return;
    }
    const u32 block = min(id / p.value, TRANSITION);
    const u32 transition = DENSE ? K : 1u;
    const Column c = {blockIdx.y, block, id - block * p.value, block == TRANSITION ? transition : p.value};

    State state;
    fill(state, 0.0f);
    // S and the transition take part from the step that begins or loads them.
    bool takes_part = block == RUNNING;
    const u32 first = record(tables, STEP_TABLE, tables[chain], STEP_WORDS);
    const u32 end = first + tables[chain + 1u] * STEP_WORDS;
#pragma unroll 1
    for (u32 step = first; step < end; step += STEP_WORDS) {
        const u32 a = tables[step + 1u];
        const u32 b = tables[step + 2u];
        switch (tables[step]) {
            case STEP_ZERO:
                if (block == RUNNING) {
                    fill(state, 0.0f);
                }
                break;
            case STEP_LOAD:
                if (block == RUNNING || b == 1u) {
                    load(state, m.private_slab, slot(p, a, c), c);
                    takes_part = true;
                }
                break;
            case STEP_RUN:
                if (takes_part) {
                    rows.run(state, a, b, tables[step + 3u], c);
                }
                break;
            case STEP_BEGIN:
                if (block != RUNNING) {
                    begin(state, c);
                    takes_part = true;
                }
                break;
            case STEP_APPLY:
                if (takes_part) {
                    apply(state, p, m, step, c);
                }
                break;
            // A snapshot is the running state alone.
            case STEP_STORE:
            case STEP_SNAPSHOT:
                if (block == RUNNING || (tables[step] == STEP_STORE && b == 1u)) {
                    store(state, m.private_slab, slot(p, a, c), c);
                }
                break;
            default:
                break;
        }
    }
}
