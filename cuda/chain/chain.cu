// chain: S = e^g·S; u = v, β·v or β(v − Sᵀk); S += k uᵀ (or S = e^g·S + b (aᵀS) + k vᵀ); o = Sᵀq, token by token along the
// steps of each chain: the recurrent form of every family.
//
// Layout    qkv: row r starts at r·row, a multiple of four; q [H, K] scaled, then k [H, K], then v [HV, V], then, for a
//           rank-one update, from the next multiple of four on a and b [H, K]; gates: row r starts at r·gate_row, g [HV] or [HV, K], and β [HV] at `strength`. out
//           [rows, HV·V]. States are [HV, K, V]. All f32.
// Grid      x covers the columns by 32, y = value heads, z = chains of the launch. Columns of a chain with an operator
//           are S_run | S | transition, of others S_run only; threads past them leave.
// Shared memory: none, no barrier. Private: the column, K floats in registers, and K more in memory for an apply.
// Numbers   a column's sums run in four interleaved parts over K. The columns of S_run see the same operations
//           whether or not an operator is under construction, so its outputs have the same bits.
// Why       given q, k and the gates the columns are independent: one thread keeps its column in registers for the
//           whole chain, and all threads of a block read the same q, k and rows of T. Registers need constant
//           indices: loops over `state` have constant bounds and are unrolled, all other loops are not. Choices of a slab
//           stand outside the loops, because software drivers run both sides of a branch.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "chain/params.cuh"
#include "chain/steps.cuh"

// What the token at hand has: words of q and k, and of a and b for a rank-one update; the word of its gates; e^g of a
// scalar decay.
struct Token {
    u32 q;
    u32 k;
    u32 a;
    u32 b;
    u32 gate;
    float decay;
    float strength;
    float value;
};

struct Rows {
    const Params& p;
    const float* qkv;
    const float* gates;
    float* out;

    // Quad `i` of the state after the decay.
    __device__ __forceinline__ float4 decayed(const State& state, const Token& t, u32 i) const {
        if (DECAY == DECAY_NONE) {
            return state[i];
        }
        if (DECAY == DECAY_SCALAR) {
            return times(all(t.decay), state[i]);
        }
        const float4 g = strided(gates, t.gate + 4u * i, 1u);
        return times(make_float4(expf(g.x), expf(g.y), expf(g.z), expf(g.w)), state[i]);
    }

    // One token, o = Sᵀq.
    __device__ __forceinline__ float token(State& state, const Token& t) const {
        float4 o = all(0.0f);
        float4 seen = all(0.0f);
        if (UPDATE == UPDATE_DELTA) {
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                state[i] = decayed(state, t, i);
                seen = fused(quad<true>(qkv, t.k + 4u * i), state[i], seen);
            }
            const float u = t.strength * (t.value - total(seen));
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                state[i] = fused(u, quad<true>(qkv, t.k + 4u * i), state[i]);
                o = fused(quad<true>(qkv, t.q + 4u * i), state[i], o);
            }
        } else if (UPDATE == UPDATE_RANK_ONE) {
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                seen = fused(quad<true>(qkv, t.a + 4u * i), state[i], seen);
            }
            const float u = total(seen);
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                const float4 s = fused(u, quad<true>(qkv, t.b + 4u * i), decayed(state, t, i));
                state[i] = fused(t.value, quad<true>(qkv, t.k + 4u * i), s);
                o = fused(quad<true>(qkv, t.q + 4u * i), state[i], o);
            }
        } else {
            const float u = t.strength * t.value;
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                state[i] = fused(u, quad<true>(qkv, t.k + 4u * i), decayed(state, t, i));
                o = fused(quad<true>(qkv, t.q + 4u * i), state[i], o);
            }
        }
        return total(o);
    }

    // Adds the gates of `rows` rows to a column of log-sums.
    __device__ __forceinline__ void sum_logs(State& state, u32 first, u32 rows, const Column& c) const {
#pragma unroll 1
        for (u32 row = first; row < first + rows; row++) {
            const u32 gate = row * p.gate_row;
            if (DECAY == DECAY_DIAGONAL) {
#pragma unroll
                for (u32 i = 0u; i < QUADS; i++) {
                    state[i] = sum_of_logs(state[i], strided(gates, gate + c.head * K + 4u * i, 1u));
                }
            } else if (DECAY == DECAY_SCALAR) {
                state[0].x = fmaxf(state[0].x + gates[gate + c.head], LOG_ZERO);
            }
        }
    }

    __device__ __forceinline__ void run(State& state, u32 first, u32 rows, u32 chunk, const Column& c) const {
        if (is_log(c)) {
            sum_logs(state, first, rows, c);
            return;
        }
        const u32 key_head = c.head / (p.value_heads / p.heads);
        const u32 values = 2u * p.heads * K;
#pragma unroll 1
        for (u32 row = first; row < first + rows; row++) {
            Token t;
            t.q = row * p.row + key_head * K;
            t.k = t.q + p.heads * K;
            t.a = row * p.row + values + (p.value_heads * p.value + 3u) / 4u * 4u + key_head * K;
            t.b = t.a + p.heads * K;
            t.gate = row * p.gate_row + c.head * (DECAY == DECAY_DIAGONAL ? K : 1u);
            t.decay = DECAY == DECAY_SCALAR ? expf(gates[t.gate]) : 1.0f;
            t.strength = 1.0f;
            if (UPDATE == UPDATE_STRENGTH || UPDATE == UPDATE_DELTA) {
                t.strength = gates[row * p.gate_row + p.strength + c.head];
            }
            // T is written nothing.
            t.value = c.block == TRANSITION ? 0.0f : qkv[row * p.row + values + c.head * p.value + c.col];
            const float o = token(state, t);
            if (c.block == RUNNING) {
                out[(row * p.value_heads + c.head) * p.value + c.col] = o;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(32, 1) chain(
    Params p, const u32* __restrict__ tables, const float* __restrict__ qkv, const float* __restrict__ gates, float* out,
    float* private_slab, const float* __restrict__ shared0, const float* __restrict__ shared1,
    const float* __restrict__ shared2) {
    const Memory memory = {tables, private_slab, shared0, shared1, shared2};
    const Rows rows = {p, qkv, gates, out};
    walk(p, memory, rows);
}
