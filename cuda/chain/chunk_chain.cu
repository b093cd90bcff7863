// chunk_chain: the recurrences of chain, 16 tokens at a time, from what chunk_prepare left.
//
// Layout    work: see chunk_record.wgsl; out [rows, HV·V]; slabs and slots as in steps.wgsl. All f32.
// Grid      x covers the columns by 32, y = value heads, z = chains of the launch. Columns of a chain with an operator
//           are S_run (V) | S (V) | transition, of others S_run only; threads past them leave.
// Shared memory: none, no barrier. Private: the column and 16 numbers in registers, and K floats in memory for an apply.
// Numbers   per chunk, for each token i: x_i = u_i − w_i·S (add: u_i; T: without u), o_i = qe_i·S + Σ a_ij x_j; then
//           S ← e^(Σg)·S + Σ ke_j x_j. The columns of S_run see the same operations whether or not an operator is under
//           construction, so its outputs have the same bits.
// Why       as in chain, one thread owns a column. The decay and the stores of the state happen once in 16 tokens,
//           and what the columns share (exponentials, products of keys, the triangular solve) is done once a head.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "chain/params.cuh"
#include "chain/chunk_record.cuh"
#include "chain/steps.cuh"

struct Rows {
    const Params& p;
    const u32* tables;
    const float* work;
    float* out;

    // The column of logs adds the sums of a chunk's gates.
    __device__ __forceinline__ void add_sums(State& state, u32 chunk, u32 head) const {
        const u32 place = chunk * p.value_heads + head;
        if (DECAY == DECAY_SCALAR) {
            state[0].x = fmaxf(state[0].x + work[place], LOG_ZERO);
        } else if (DECAY == DECAY_DIAGONAL) {
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                state[i] = sum_of_logs(state[i], aligned(work, place * K + 4u * i));
            }
        }
    }

    // state ← e^(Σg)·state
    __device__ __forceinline__ void decay_state(State& state, u32 chunk, u32 head) const {
        const u32 place = chunk * p.value_heads + head;
        if (DECAY == DECAY_SCALAR) {
            scale(state, decay_of(work[place]));
        } else if (DECAY == DECAY_DIAGONAL) {
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                state[i] = times(decays_of(aligned(work, place * K + 4u * i)), state[i]);
            }
        }
    }

    // The product of the column with the K words at word `at`.
    __device__ __forceinline__ float product(const State& state, u32 at) const {
        float4 sum = all(0.0f);
#pragma unroll
        for (u32 i = 0u; i < QUADS; i++) {
            sum = fused(aligned(work, at + 4u * i), state[i], sum);
        }
        return total(sum);
    }

    // Rows `first` to `end`, the rows of one chunk.
    __device__ __forceinline__ void run_chunk(State& state, u32 first, u32 end, u32 chunk, const Column& c) const {
        const u32 words = p.value_heads * (U + (p.value + 3u) / 4u * 4u);
        const u32 records = row_record(tables, p, first, c.head);
        Tokens written = no_tokens();
        u32 r = records;
#pragma unroll 1
        for (u32 row = first; row < end; row++) {
            float x = 0.0f;
            if (c.block != TRANSITION) {
                x = work[r + U + c.col];
            }
            if (DENSE) {
                x -= product(state, r + W);
            }
            set_token(written, row - first, x);
            if (c.block == RUNNING) {
                const float o = product(state, r);
                const float4 near = fused(aligned(work, r + A), four(written, 0u),
                                          times(aligned(work, r + A + 4u), four(written, 1u)));
                const float4 far = fused(aligned(work, r + A + 8u), four(written, 2u),
                                         times(aligned(work, r + A + 12u), four(written, 3u)));
                out[(row * p.value_heads + c.head) * p.value + c.col] = o + total(plus(near, far));
            }
            r += words;
        }
        decay_state(state, chunk, c.head);
        r = records;
#pragma unroll 1
        for (u32 row = first; row < end; row++) {
            const float x = written.x[0];
#pragma unroll
            for (u32 i = 0u; i < QUADS; i++) {
                state[i] = fused(x, aligned(work, r + KE + 4u * i), state[i]);
            }
            drop_first(written);
            r += words;
        }
    }

    // The rows of a run step, whose chunks start at `chunk`.
    __device__ __forceinline__ void run(State& state, u32 first, u32 rows, u32 chunk, const Column& c) const {
        const u32 end = first + rows;
        u32 number = chunk;
#pragma unroll 1
        for (u32 row = first; row < end; row += CHUNK_TOKENS) {
            if (is_log(c)) {
                add_sums(state, number, c.head);
            } else {
                run_chunk(state, row, min(row + CHUNK_TOKENS, end), number, c);
            }
            number++;
        }
    }
};

extern "C" __global__ void __launch_bounds__(32, 1) chunk_chain(
    Params p, const u32* __restrict__ tables, const float* __restrict__ work, float* out, float* private_slab,
    const float* __restrict__ shared0, const float* __restrict__ shared1, const float* __restrict__ shared2) {
    const Memory memory = {tables, private_slab, shared0, shared1, shared2};
    const Rows rows = {p, tables, work, out};
    walk(p, memory, rows);
}
