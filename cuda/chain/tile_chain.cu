// tile_chain: the recurrences of chain on tensor cores, 64 tokens at a time, from what tile_prepare left.
//
// Layout    qkv: row r starts at r·row, v [HV, V] behind q and k [H, K], f32; work: see tile.cuh; out [rows, HV·V]; slabs and slots
//           as in steps.cuh, f32.
// Grid      x covers the columns by 64, a warp takes 16, y = value heads, z = chains of the launch. Columns of a chain with an
//           operator are S_run (V) | S (V) | T (K), of others S_run only. The log-sums of an add update have the last block. Where S
//           is S_run (no seam before the operator), it is walked once.
// Shared memory: 94 KiB at K = 128, two blocks a multiprocessor; an apply takes 64 KiB of it for T.
// Numbers   q and k are rounded to bf16, once, so k is the same everywhere. Products that reach the state are sums of products of
//           16-bit parts (S and x have two parts, k has one), about 2^-16 of each; o alone has products of bf16. The columns of
//           S_run see the same operations whether or not an operator is under construction, so their bits are the same.
// Why       a warp's 16 columns are independent of all others, and stay in registers for the whole chain. A tile is 448 products of
//           16×8×16 a warp: at 8 cycles each 2 µs, or 1.05 ms for 32768 tokens in one chain. Measured on an H200: 1.45 ms, since
//           one warp a scheduler waits a third of its time for results; 64 chains of 512 tokens and 32 heads of 128 take 0.64 ms
//           (S_run alone), 1.54 ms with S and T behind a seam.
#include "shared/tables.cuh"
#include "shared/math.cuh"
#include "shared/mma.cuh"
#include "chain/params.cuh"
#include "chain/steps.cuh"
#include "chain/tile.cuh"
#include "chain/tile_state.cuh"
#include "chain/tile_run.cuh"

// Columns of a block of threads.
constexpr u32 COLUMNS = 64u;

// The steps of a chain as the log-sum of a head sees them, by one thread.
__device__ __forceinline__ void walk_logs(const Params& p, const Memory& m, const u32* work, u32 first, u32 end, u32 head) {
    const u32* tables = m.tables;
    const u32 place = 2u * p.value_heads * p.value * K + head;
    float log = 0.0f;
    bool takes_part = false;
    for (u32 step = first; step < end; step += STEP_WORDS) {
        const u32 a = tables[step + 1u];
        const u32 b = tables[step + 2u];
        switch (tables[step]) {
            case STEP_LOAD:
                if (b == 1u) {
                    log = m.private_slab[a + place];
                    takes_part = true;
                }
                break;
            case STEP_BEGIN:
                log = 0.0f;
                takes_part = true;
                break;
            case STEP_RUN:
                if (takes_part) {
                    // The last row of a tile has the sum of its gates.
                    for (u32 row = 0u; row < b; row += TILE) {
                        const u32 last = min(row + TILE, b) - 1u;
                        const u32 scales = scale_words(p, tables[CHUNKS], head, tables[step + 3u]) + 4u * last;
                        log += __uint_as_float(work[scales + 3u]);
                    }
                    log = fmaxf(log, LOG_ZERO);
                }
                break;
            case STEP_APPLY:
                if (takes_part) {
                    const u32 form = tables[step + 4u];
                    if (form == FORM_SCALAR) {
                        log = fmaxf(log + slab_of(m, a)[tables[step + 3u] + head], LOG_ZERO);
                    } else if (form != FORM_IDENTITY) {
                        log = LOG_ZERO;
                    }
                }
                break;
            case STEP_STORE:
                if (b == 1u) {
                    m.private_slab[a + place] = log;
                }
                break;
            default:
                break;
        }
    }
}

// Whether S of a chain is S_run from its first step to its last: both start from zero, and nothing touches one alone.
__device__ __forceinline__ bool one_state(const u32* __restrict__ tables, u32 first, u32 end) {
    if (tables[first] != STEP_ZERO || first + STEP_WORDS == end || tables[first + STEP_WORDS] != STEP_BEGIN) {
        return false;
    }
    for (u32 step = first + 2u * STEP_WORDS; step < end; step += STEP_WORDS) {
        const u32 kind = tables[step];
        if (kind == STEP_ZERO || kind == STEP_LOAD || kind == STEP_BEGIN) {
            return false;
        }
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(128, 2) tile_chain(
    Params p, const u32* __restrict__ tables, const float* __restrict__ qkv, const u32* __restrict__ work, float* out,
    float* private_slab, const float* __restrict__ shared0, const float* __restrict__ shared1,
    const float* __restrict__ shared2) {
    extern __shared__ uint4 room[];
    const u32 launch = record(tables, CHAIN_LAUNCHES, p.launch, LAUNCH_WORDS);
    const u32 head = blockIdx.y;
    if (blockIdx.z >= tables[launch + 1u] || head >= p.value_heads) {
        return;
    }
    const Memory m = {tables, private_slab, shared0, shared1, shared2};
    const u32 chain = record(tables, CHAIN_TABLE, tables[launch] + blockIdx.z, CHAIN_WORDS);
    const bool both = (tables[chain + 2u] & CHAIN_OPERATOR) != 0u;
    const u32 first = record(tables, STEP_TABLE, tables[chain], STEP_WORDS);
    const u32 end = first + tables[chain + 1u] * STEP_WORDS;

    // Blocks of columns are whole blocks of threads: V and K are multiples of 64.
    const u32 values = p.value / COLUMNS;
    const u32 blocks = both ? 2u * values + (DENSE ? K / COLUMNS : 0u) : values;
    if (blockIdx.x >= blocks) {
        if (!DENSE && DECAY == DECAY_SCALAR && both && blockIdx.x + 1u == gridDim.x && threadIdx.x == 0u) {
            walk_logs(p, m, work, first, end, head);
        }
        return;
    }
    const u32 block = min(blockIdx.x / values, TRANSITION);
    const bool twice = both && block != TRANSITION && one_state(tables, first, end);
    if (twice && block == FRESH) {
        return;
    }
    const u32 own = (blockIdx.x - block * values) * COLUMNS + threadIdx.x / 32u * 16u;
    const u32 lane = threadIdx.x % 32u;
    const Place at = {head, block, own, block == TRANSITION ? K : p.value, lane / 4u, lane % 4u, lane};

    // What is never loaded meets zeros: it must be a number.
    u32* shared = reinterpret_cast<u32*>(room);
    for (u32 i = threadIdx.x; i < ROOM / 4u; i += THREADS) {
        room[i] = make_uint4(0u, 0u, 0u, 0u);
    }
    Columns s;
    fill(s, 0.0f);
    // S and T take part from the step that begins or loads them.
    bool takes_part = block == RUNNING;
#pragma unroll 1
    for (u32 step = first; step < end; step += STEP_WORDS) {
        const u32 a = tables[step + 1u];
        const u32 b = tables[step + 2u];
        switch (tables[step]) {
            case STEP_ZERO:
                if (block == RUNNING) {
                    fill(s, 0.0f);
                }
                break;
            case STEP_LOAD:
                if (block == RUNNING || b == 1u) {
                    load(s, private_slab, slot(p, a, at), at.width);
                    takes_part = true;
                }
                break;
            case STEP_RUN:
                if (takes_part && b > 0u) {
                    const Run rows = {
                        p, qkv, work, out, shared, at, tables[CHUNKS], block == RUNNING, block != TRANSITION};
                    rows.run(s, a, b, tables[step + 3u]);
                }
                break;
            case STEP_BEGIN:
                if (block != RUNNING) {
                    begin(s, at);
                    takes_part = true;
                }
                break;
            case STEP_APPLY:
                if (takes_part) {
                    apply(s, p, m, step, at, shared);
                }
                break;
            // A snapshot is the running state alone.
            case STEP_STORE:
            case STEP_SNAPSHOT:
                if (block == RUNNING || (tables[step] == STEP_STORE && b == 1u)) {
                    store(s, private_slab, slot(p, a, at), at.width);
                    if (twice && b == 1u && tables[step] == STEP_STORE) {
                        store(s, private_slab, slot(p, a, at) + p.value_heads * p.value * K, at.width);
                    }
                }
                break;
            default:
                break;
        }
    }
}
