// chunk_prepare: everything of a chunk of at most 16 tokens that needs no state, for chunk_chain.
//
// With g the log-gates, b_i their sum over the chunk's tokens up to i, and e(j, i) = e^(Σ g_m, j < m <= i):
//   qe_i = q_i e^(b_i), ke_i = k_i e(i, last), a_ij = Σ_d q_id k_jd e(j, i)_d for j <= i, the sums b_last;
//   u = v, or β v; for a delta update (I + G) U = β V and (I + G) W = β (K e^b), G_ij = β_i Σ_d k_id k_jd e(j, i)_d for j < i.
//
// Layout    qkv: row r starts at r·row, a multiple of four; q [H, K] normalised and scaled, then k [H, K], then v [HV, V]; gates: row r starts at
//           r·gate_row, g [HV] or [HV, K] (or nothing), and β [HV] at `strength`; work: see chunk_record.wgsl. All f32.
// Grid      x = chunks, y = value heads.
// Workgroup memory: G, 1 KiB; one barrier. Private: 16 numbers in registers.
// Numbers   all exponents are sums of gates, never differences of sums: no gate is too hard, and e^x has x <= 0.
// Why       an invocation takes one product of two rows: there are 136 of a and 120 of G, 256 together. Then it takes columns,
//           of V for U and of K for the rest, through the chunk's tokens.
#include "shared/tables.wgsl"
#include "chain/params.wgsl"
#include "chain/chunk_record.wgsl"

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read_write> work: array<f32>;

const INVOCATIONS: u32 = 256u;
const QUADS: u32 = K / 4u;
const SCALAR: bool = DECAY == DECAY_SCALAR;
const DIAGONAL: bool = DECAY == DECAY_DIAGONAL;
const DELTA: bool = UPDATE == UPDATE_DELTA;

// Row i, column j: G_ij for j < i, otherwise 0.
var<workgroup> solve: array<f32, 256>;

fn qkv_word(word: u32) -> f32 {
    return qkv[word / 4u][word % 4u];
}

fn gate_quad(word: u32) -> vec4<f32> {
    return vec4(gates[word], gates[word + 1u], gates[word + 2u], gates[word + 3u]);
}

// First word of q of a row; k follows H·K words on.
fn query(row: u32, head: u32) -> u32 {
    return row * p.row + head / (p.value_heads / p.heads) * K;
}

// The write strength of a row.
fn strength(row: u32, head: u32) -> f32 {
    if (UPDATE == UPDATE_ADD) {
        return 1.0;
    }
    return gates[row * p.gate_row + p.strength + head];
}

// The log-gate of a row and key dim.
fn log_gate(row: u32, head: u32, d: u32) -> f32 {
    if (DIAGONAL) {
        return gates[row * p.gate_row + head * K + d];
    }
    if (SCALAR) {
        return gates[row * p.gate_row + head];
    }
    return 0.0;
}

// Σ_d x_d k_jd e(j, i)_d with the x at word `x`.
fn decayed_product(x: u32, i: u32, j: u32, head: u32) -> f32 {
    let k = query(j, head) + p.heads * K;
    var sum = vec4(0.0);
    for (var quad = 0u; quad < not_unrolled(QUADS); quad++) {
        var term = qkv[x / 4u + quad] * qkv[k / 4u + quad];
        if (DIAGONAL) {
            var log = vec4(0.0);
            for (var m = j + 1u; m <= i; m++) {
                log += gate_quad(m * p.gate_row + head * K + 4u * quad);
            }
            term *= exp(log);
        }
        sum += term;
    }
    let product = (sum.x + sum.z) + (sum.y + sum.w);
    if (!SCALAR) {
        return product;
    }
    var log = 0.0;
    for (var m = j + 1u; m <= i; m++) {
        log += gates[m * p.gate_row + head];
    }
    return product * exp(log);
}

// Σ_j G_ij x_j over the tokens before i.
fn solved(i: u32, x: Tokens) -> f32 {
    let g = 16u * i;
    let a = vec4(solve[g], solve[g + 1u], solve[g + 2u], solve[g + 3u]) * x.a;
    let b = vec4(solve[g + 4u], solve[g + 5u], solve[g + 6u], solve[g + 7u]) * x.b;
    let c = vec4(solve[g + 8u], solve[g + 9u], solve[g + 10u], solve[g + 11u]) * x.c;
    let d = vec4(solve[g + 12u], solve[g + 13u], solve[g + 14u], solve[g + 15u]) * x.d;
    let sum = (a + b) + (c + d);
    return (sum.x + sum.z) + (sum.y + sum.w);
}

// Column `col` of U.
fn values(first: u32, rows: u32, head: u32, col: u32) {
    var u = Tokens();
    for (var i = 0u; i < rows; i++) {
        let row = first + i;
        var x = strength(row, head) * qkv_word(row * p.row + 2u * p.heads * K + head * p.value + col);
        if (DELTA) {
            x -= solved(i, u);
            u = with_token(u, i, x);
        }
        work[row_record(row, head) + U + col] = x;
    }
}

// Key dim `d` of qe, ke and W; its sum of gates.
fn keys(first: u32, rows: u32, head: u32, d: u32) -> f32 {
    var log = 0.0;
    var w = Tokens();
    for (var i = 0u; i < rows; i++) {
        let row = first + i;
        let at = row_record(row, head) + d;
        let q = query(row, head) + d;
        log += log_gate(row, head, d);
        let decay = exp(log);
        work[at] = qkv_word(q) * decay;
        if (DELTA) {
            let x = strength(row, head) * (qkv_word(q + p.heads * K) * decay) - solved(i, w);
            w = with_token(w, i, x);
            work[at + W] = x;
        }
    }
    var rest = 0.0;
    for (var i = rows; i > 0u; i--) {
        let row = first + i - 1u;
        work[row_record(row, head) + KE + d] = qkv_word(query(row, head) + p.heads * K + d) * exp(rest);
        rest += log_gate(row, head, d);
    }
    return log;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.y;
    if (group.x >= tables[CHUNKS] || head >= p.value_heads) {
        return;
    }
    let chunk = record(CHUNK_TABLE, group.x, CHUNK_WORDS);
    let first = tables[chunk];
    let rows = tables[chunk + 1u];

    // Invocation (r, c) takes a_rc for c <= r, and otherwise G_cr.
    let r = lane / 16u;
    let c = lane % 16u;
    var g = 0.0;
    if (c <= r) {
        if (r < rows) {
            let i = first + r;
            work[row_record(i, head) + A + c] = decayed_product(query(i, head), i, first + c, head);
        }
    } else {
        if (r < rows) {
            work[row_record(first + r, head) + A + c] = 0.0;
        }
        if (DELTA && c < rows) {
            let i = first + c;
            g = strength(i, head) * decayed_product(query(i, head) + p.heads * K, i, first + r, head);
        }
    }
    if (DELTA) {
        solve[16u * c + r] = g;
        workgroupBarrier();
    }

    for (var column = lane; column < p.value + K; column += INVOCATIONS) {
        if (column < p.value) {
            values(first, rows, head, column);
        } else {
            let d = column - p.value;
            let sum = keys(first, rows, head, d);
            let place = group.x * p.value_heads + head;
            if (DIAGONAL) {
                work[place * K + d] = sum;
            } else if (d == 0u) {
                work[place] = sum;
            }
        }
    }
}
