// chunk_chain: the recurrences of chain, 16 tokens at a time, from what chunk_prepare left.
//
// Layout    work: see chunk_record.wgsl; out [rows, HV·V]; slabs and slots as in steps.wgsl. All f32.
// Grid      x covers the columns by 32, y = value heads, z = chains of the launch. Columns of a chain with an operator
//           are S_run (V) | S (V) | transition, of others S_run only; invocations past them leave.
// Workgroup memory: none, no barrier. Private: the column and 16 numbers in registers, and K floats in memory for an apply.
// Numbers   per chunk, for each token i: x_i = u_i − w_i·S (add: u_i; T: without u), o_i = qe_i·S + Σ a_ij x_j; then
//           S ← e^(Σg)·S + Σ ke_j x_j. The columns of S_run see the same operations whether or not an operator is under
//           construction, so its outputs have the same bits.
// Why       as in chain, one invocation owns a column. The decay and the stores of the state happen once in 16 tokens,
//           and what the columns share (exponentials, products of keys, the triangular solve) is done once a head.
#include "shared/tables.wgsl"
#include "chain/params.wgsl"
#include "chain/chunk_record.wgsl"

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> work: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read_write> private_slab: array<f32>;
@group(0) @binding(5) var<storage, read> shared0: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> shared1: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> shared2: array<vec4<f32>>;

#include "chain/steps.wgsl"

fn work_word(word: u32) -> f32 {
    return work[word / 4u][word % 4u];
}

// The column of logs adds the sums of a chunk's gates.
fn add_sums(chunk: u32, head: u32) {
    let place = chunk * p.value_heads + head;
    if (DECAY == DECAY_SCALAR) {
        state[0].x = max(state[0].x + work_word(place), LOG_ZERO);
    } else {
        for (var i = 0u; i < not_unrolled(QUADS); i++) {
            state[0] = max(state[0] + work[place * QUADS + i], vec4(LOG_ZERO));
            turn();
        }
    }
}

// state ← e^(Σg)·state
fn decay_state(chunk: u32, head: u32) {
    let place = chunk * p.value_heads + head;
    if (DECAY == DECAY_SCALAR) {
        let decay = decay_of(work_word(place));
        for (var i = 0u; i < QUADS; i++) {
            state[i] *= decay;
        }
    } else if (DECAY == DECAY_DIAGONAL) {
        for (var i = 0u; i < QUADS; i++) {
            state[i] *= decays_of(work[place * QUADS + i]);
        }
    }
}

// Rows `first` to `end`, the rows of one chunk.
fn run_chunk(first: u32, end: u32, chunk: u32, c: Column) {
    var written = Tokens();
    for (var row = first; row < end; row++) {
        let r = row_record(row, c.head);
        var x = 0.0;
        if (c.block != TRANSITION) {
            x = work_word(r + U + c.col);
        }
        if (DENSE) {
            var seen = vec4(0.0);
            for (var i = 0u; i < QUADS; i++) {
                seen += work[(r + W) / 4u + i] * state[i];
            }
            x -= total(seen);
        }
        written = with_token(written, row - first, x);
        if (c.block == RUNNING) {
            var o = vec4(0.0);
            for (var i = 0u; i < QUADS; i++) {
                o += work[r / 4u + i] * state[i];
            }
            let a = (r + A) / 4u;
            let near = work[a] * written.a + work[a + 1u] * written.b;
            let far = work[a + 2u] * written.c + work[a + 3u] * written.d;
            out[(row * p.value_heads + c.head) * p.value + c.col] = total(o) + total(near + far);
        }
    }
    decay_state(chunk, c.head);
    for (var row = first; row < end; row++) {
        let ke = (row_record(row, c.head) + KE) / 4u;
        let x = written.a.x;
        for (var i = 0u; i < QUADS; i++) {
            state[i] += x * work[ke + i];
        }
        written = without_first(written);
    }
}

// The rows of a run step, whose chunks start at `chunk`.
fn run(first: u32, rows: u32, chunk: u32, c: Column) {
    let end = first + rows;
    var number = chunk;
    for (var row = first; row < end; row += CHUNK_TOKENS) {
        if (is_log(c)) {
            add_sums(number, c.head);
        } else {
            run_chunk(row, min(row + CHUNK_TOKENS, end), number, c);
        }
        number++;
    }
}
