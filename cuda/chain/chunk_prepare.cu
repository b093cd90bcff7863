// chunk_prepare: everything of a chunk of at most 16 tokens that needs no state, for chunk_chain.
//
// With g the log-gates, b_i their sum over the chunk's tokens up to i, and e(j, i) = e^(Σ g_m, j < m <= i):
//   qe_i = q_i e^(b_i), ke_i = k_i e(i, last), a_ij = Σ_d q_id k_jd e(j, i)_d for j <= i, the sums b_last;
//   u = v, or β v; for a delta update (I + G) U = β V and (I + G) W = β (K e^b), G_ij = β_i Σ_d k_id k_jd e(j, i)_d for j < i.
//
// Layout    qkv: row r starts at r·row, q [H, K] normalised and scaled, then k [H, K], then v [HV, V]; gates: row r starts at
//           r·gate_row, g [HV] or [HV, K] (or nothing), and β [HV] at `strength`; work: see chunk_record.wgsl. All f32.
// Grid      x = chunks, y = value heads.
// Shared memory: G, 1 KiB; one barrier. Private: 16 numbers in registers.
// Numbers   all exponents are sums of gates, never differences of sums: no gate is too hard, and e^x has x <= 0.
// Why       a thread takes one product of two rows: there are 136 of a and 120 of G, 256 together. Then it takes columns,
//           of V for U and of K for the rest, through the chunk's tokens.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "chain/params.cuh"
#include "chain/chunk_record.cuh"

constexpr u32 THREADS = 256u;
constexpr u32 QUADS = K / 4u;
constexpr bool SCALAR = DECAY == DECAY_SCALAR;
constexpr bool DIAGONAL = DECAY == DECAY_DIAGONAL;
constexpr bool DELTA = UPDATE == UPDATE_DELTA;

// The inputs, with the places of things in them.
struct Inputs {
    const Params& p;
    const float* qkv;
    const float* gates;
    u32 head;

    // First word of q of a row; k follows H·K words on.
    __device__ __forceinline__ u32 query(u32 row) const {
        return row * p.row + head / (p.value_heads / p.heads) * K;
    }

    __device__ __forceinline__ u32 key(u32 row) const {
        return query(row) + p.heads * K;
    }

    // The write strength of a row.
    __device__ __forceinline__ float strength(u32 row) const {
        return UPDATE == UPDATE_ADD ? 1.0f : gates[row * p.gate_row + p.strength + head];
    }

    // The log-gate of a row and key dim.
    __device__ __forceinline__ float log_gate(u32 row, u32 d) const {
        if (DIAGONAL) {
            return gates[row * p.gate_row + head * K + d];
        }
        return SCALAR ? gates[row * p.gate_row + head] : 0.0f;
    }

    // Four words of qkv, in one load where the place allows it.
    __device__ __forceinline__ float4 any_quad(u32 word) const {
        return word % 4u == 0u ? aligned(qkv, word) : strided(qkv, word, 1u);
    }

    // Σ_d x_d k_jd e(j, i)_d with the x at word `x`.
    __device__ __forceinline__ float decayed_product(u32 x, u32 i, u32 j) const {
        const u32 k = key(j);
        float4 sum = all(0.0f);
#pragma unroll 2
        for (u32 n = 0u; n < QUADS; n++) {
            float4 term = times(any_quad(x + 4u * n), any_quad(k + 4u * n));
            if (DIAGONAL) {
                float4 log = all(0.0f);
                for (u32 m = j + 1u; m <= i; m++) {
                    log = plus(log, strided(gates, m * p.gate_row + head * K + 4u * n, 1u));
                }
                term = times(term, make_float4(expf(log.x), expf(log.y), expf(log.z), expf(log.w)));
            }
            sum = plus(sum, term);
        }
        const float product = total(sum);
        if (!SCALAR) {
            return product;
        }
        float log = 0.0f;
        for (u32 m = j + 1u; m <= i; m++) {
            log += gates[m * p.gate_row + head];
        }
        return product * expf(log);
    }
};

// Σ_j G_ij x_j over the tokens before i; `solve` has rows of 16.
__device__ __forceinline__ float solved(const float4* solve, u32 i, const Tokens& x) {
    const float4 a = times(solve[4u * i], four(x, 0u));
    const float4 b = times(solve[4u * i + 1u], four(x, 1u));
    const float4 c = times(solve[4u * i + 2u], four(x, 2u));
    const float4 d = times(solve[4u * i + 3u], four(x, 3u));
    return total(plus(plus(a, b), plus(c, d)));
}

extern "C" __global__ void __launch_bounds__(256) chunk_prepare(
    Params p, const u32* __restrict__ tables, const float* __restrict__ qkv, const float* __restrict__ gates,
    float* __restrict__ work) {
    // Row i, column j: G_ij for j < i, otherwise 0.
    __shared__ float4 solve[64];
    const u32 head = blockIdx.y;
    const u32 lane = threadIdx.x;
    if (blockIdx.x >= tables[CHUNKS] || head >= p.value_heads) {
        return;
    }
    const u32 chunk = record(tables, CHUNK_TABLE, blockIdx.x, CHUNK_WORDS);
    const u32 first = tables[chunk];
    const u32 rows = tables[chunk + 1u];
    const u32 records = row_record(tables, p, first, head);
    const u32 record_words = p.value_heads * (U + (p.value + 3u) / 4u * 4u);
    const Inputs in = {p, qkv, gates, head};

    // Thread (r, c) takes a_rc for c <= r, and otherwise G_cr.
    const u32 r = lane / 16u;
    const u32 c = lane % 16u;
    float g = 0.0f;
    if (c <= r) {
        if (r < rows) {
            const u32 i = first + r;
            work[records + r * record_words + A + c] = in.decayed_product(in.query(i), i, first + c);
        }
    } else {
        if (r < rows) {
            work[records + r * record_words + A + c] = 0.0f;
        }
        if (DELTA && c < rows) {
            const u32 i = first + c;
            g = in.strength(i) * in.decayed_product(in.key(i), i, first + r);
        }
    }
    if (DELTA) {
        reinterpret_cast<float*>(solve)[16u * c + r] = g;
        __syncthreads();
    }

    for (u32 column = lane; column < p.value + K; column += THREADS) {
        // Column of U.
        if (column < p.value) {
            Tokens u = no_tokens();
#pragma unroll 1
            for (u32 i = 0u; i < rows; i++) {
                const u32 row = first + i;
                float x = in.strength(row) * qkv[row * p.row + 2u * p.heads * K + head * p.value + column];
                if (DELTA) {
                    x -= solved(solve, i, u);
                    set_token(u, i, x);
                }
                work[records + i * record_words + U + column] = x;
            }
            continue;
        }
        // Key dim of qe, ke and W, and its sum of gates.
        const u32 d = column - p.value;
        float log = 0.0f;
        Tokens w = no_tokens();
#pragma unroll 1
        for (u32 i = 0u; i < rows; i++) {
            const u32 row = first + i;
            const u32 at = records + i * record_words + d;
            log += in.log_gate(row, d);
            const float decay = expf(log);
            work[at] = qkv[in.query(row) + d] * decay;
            if (DELTA) {
                const float x = in.strength(row) * (qkv[in.key(row) + d] * decay) - solved(solve, i, w);
                set_token(w, i, x);
                work[at + W] = x;
            }
        }
        float rest = 0.0f;
#pragma unroll 1
        for (u32 i = rows; i > 0u; i--) {
            const u32 row = first + i - 1u;
            work[records + (i - 1u) * record_words + KE + d] = qkv[in.key(row) + d] * expf(rest);
            rest += in.log_gate(row, d);
        }
        const u32 place = blockIdx.x * p.value_heads + head;
        if (DIAGONAL) {
            work[place * K + d] = log;
        } else if (d == 0u) {
            work[place] = log;
        }
    }
}
