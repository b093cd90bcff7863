// chain: S = e^g·S; u = v, β·v or β(v − Sᵀk); S += k uᵀ (or S = e^g·S + b (aᵀS) + k vᵀ); o = Sᵀq, token by token along the
// steps of each chain: the recurrent form of every family.
//
// Layout    qkv: row r starts at r·row, a multiple of four; q [H, K] scaled, then k [H, K], then v [HV, V], then, for a
//           rank-one update, from the next multiple of four on a and b [H, K]; gates: row r starts at r·gate_row, g [HV] or [HV, K], and β [HV] at `strength`. out
//           [rows, HV·V]. States are [HV, K, V]. All f32.
// Grid      x covers the columns by 32, y = value heads, z = chains of the launch. Columns of a chain with an operator
//           are S_run | S | transition, of others S_run only; invocations past them leave.
// Workgroup memory: none, no barrier. Private: the column, K floats in registers, and K more in memory for an apply.
// Numbers   a column's sums run in four interleaved parts over K. The columns of S_run see the same operations
//           whether or not an operator is under construction, so its outputs have the same bits.
// Why       given q, k and the gates the columns are independent: one invocation keeps its column in registers for the
//           whole chain, and all invocations of a workgroup read the same q, k and rows of T. Registers need constant
//           indices: loops over `state` have constant bounds and are unrolled, all other loops are not. Choices of a slab
//           stand outside the loops, because software drivers run both sides of a branch.
#include "shared/tables.wgsl"
#include "chain/params.wgsl"

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read_write> private_slab: array<f32>;
@group(0) @binding(6) var<storage, read> shared0: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> shared1: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> shared2: array<vec4<f32>>;

#include "chain/steps.wgsl"

fn qkv_word(word: u32) -> f32 {
    return qkv[word / 4u][word % 4u];
}

// The value that a token writes to this column; T gets none.
fn value_of(row: u32, c: Column) -> f32 {
    if (c.block == TRANSITION) {
        return 0.0;
    }
    return qkv_word(row * p.row + 2u * p.heads * K + c.head * p.value + c.col);
}

// What the token at hand has: words of q and k, and of a and b for a rank-one update; the word of its gates; e^g of a
// scalar decay.
struct Token {
    q: u32,
    k: u32,
    a: u32,
    b: u32,
    gate: u32,
    decay: f32,
    strength: f32,
    value: f32,
}

// The decay of quad `i`.
fn decay_of_quad(t: Token, i: u32) -> vec4<f32> {
    if (DECAY == DECAY_DIAGONAL) {
        let g = t.gate + 4u * i;
        return exp(vec4(gates[g], gates[g + 1u], gates[g + 2u], gates[g + 3u]));
    }
    return vec4(t.decay);
}

// Runs one token; returns Sᵀq.
fn token(t: Token) -> f32 {
    var o = vec4(0.0);
    if (UPDATE == UPDATE_ADD || UPDATE == UPDATE_STRENGTH) {
        let u = t.strength * t.value;
        for (var i = 0u; i < QUADS; i++) {
            let s = decay_of_quad(t, i) * state[i] + u * qkv[t.k / 4u + i];
            state[i] = s;
            o += qkv[t.q / 4u + i] * s;
        }
        return total(o);
    }
    var seen = vec4(0.0);
    if (UPDATE == UPDATE_DELTA) {
        for (var i = 0u; i < QUADS; i++) {
            let s = decay_of_quad(t, i) * state[i];
            state[i] = s;
            seen += qkv[t.k / 4u + i] * s;
        }
        let u = t.strength * (t.value - total(seen));
        for (var i = 0u; i < QUADS; i++) {
            let s = state[i] + u * qkv[t.k / 4u + i];
            state[i] = s;
            o += qkv[t.q / 4u + i] * s;
        }
    } else {
        for (var i = 0u; i < QUADS; i++) {
            seen += qkv[t.a / 4u + i] * state[i];
        }
        let u = total(seen);
        for (var i = 0u; i < QUADS; i++) {
            let s = decay_of_quad(t, i) * state[i] + u * qkv[t.b / 4u + i] + t.value * qkv[t.k / 4u + i];
            state[i] = s;
            o += qkv[t.q / 4u + i] * s;
        }
    }
    return total(o);
}

// Adds the gates of `rows` rows to a column of log-sums.
fn sum_logs(first: u32, rows: u32, c: Column) {
    for (var row = first; row < first + rows; row++) {
        let gate = row * p.gate_row;
        if (DECAY == DECAY_DIAGONAL) {
            for (var i = 0u; i < QUADS; i++) {
                let g = gate + c.head * K + 4u * i;
                state[i] = max(state[i] + vec4(gates[g], gates[g + 1u], gates[g + 2u], gates[g + 3u]), vec4(LOG_ZERO));
            }
        } else if (DECAY == DECAY_SCALAR) {
            state[0].x = max(state[0].x + gates[gate + c.head], LOG_ZERO);
        }
    }
}

fn run(first: u32, rows: u32, chunk: u32, c: Column) {
    if (is_log(c)) {
        sum_logs(first, rows, c);
        return;
    }
    let key_head = c.head / (p.value_heads / p.heads);
    for (var row = first; row < first + rows; row++) {
        var t: Token;
        t.q = row * p.row + key_head * K;
        t.k = t.q + p.heads * K;
        t.a = row * p.row + 2u * p.heads * K + (p.value_heads * p.value + 3u) / 4u * 4u + key_head * K;
        t.b = t.a + p.heads * K;
        t.gate = row * p.gate_row + c.head * select(1u, K, DECAY == DECAY_DIAGONAL);
        t.decay = 1.0;
        if (DECAY == DECAY_SCALAR) {
            t.decay = exp(gates[t.gate]);
        }
        t.strength = 1.0;
        if (UPDATE == UPDATE_STRENGTH || UPDATE == UPDATE_DELTA) {
            t.strength = gates[row * p.gate_row + p.strength + c.head];
        }
        t.value = value_of(row, c);
        let o = token(t);
        if (c.block == RUNNING) {
            out[(row * p.value_heads + c.head) * p.value + c.col] = o;
        }
    }
}
