// delta_chain: S = e^g·S; u = β(v − Sᵀk); S += k uᵀ; o = Sᵀq along the steps of each chain.
//
// Layout    qkv: row r starts at r·row, q [H, K] normalised and scaled, then k [H, K] normalised, then v [HV, V];
//           gates [rows, 2·HV]: g, then beta; out [rows, HV·V]. States are [HV, K, V], T is [HV, K, K]; a private slot
//           is S_run, S, T. All f32.
// Grid      x covers the columns by 32, y = value heads, z = chains of the launch. Columns of a chain with an operator
//           are S_run (V) | S (V) | T (K), of others S_run only; invocations past them leave.
// Workgroup memory: none, no barrier. Private: the column, K floats in registers, and K more in memory for an apply.
// Numbers   a column's sums run in four interleaved parts over K. The columns of S_run see the same operations
//           whether or not an operator is under construction, so its outputs have the same bits.
// Why       given q, k and the gates the columns are independent: one invocation keeps its column in registers for the
//           whole chain, and all invocations of a workgroup read the same q, k and rows of T. Registers need constant
//           indices: loops over `state` have constant bounds and are unrolled, all other loops are not. Choices of a slab
//           stand outside the loops, because software drivers run both sides of a branch.
#include "shared/tables.wgsl"

struct Params {
    heads: u32,
    value_heads: u32,
    value: u32,
    row: u32,
    launch: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read_write> private_slab: array<f32>;
@group(0) @binding(6) var<storage, read> shared0: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> shared1: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> shared2: array<vec4<f32>>;

const QUADS: u32 = K / 4u;

// The column of this invocation. Only ever indexed by constants (once the loops over it are unrolled), so that it stays
// in registers.
var<private> state: array<vec4<f32>, QUADS>;

// Which block of columns: S_run, S or T.
const RUNNING: u32 = 0u;
const FRESH: u32 = 1u;
const TRANSITION: u32 = 2u;

struct Column {
    // Value head.
    head: u32,
    // Block of columns, and the column in it.
    block: u32,
    col: u32,
    // Columns of the block: V or K.
    width: u32,
}

fn qkv_word(word: u32) -> f32 {
    return qkv[word / 4u][word % 4u];
}

fn total(x: vec4<f32>) -> f32 {
    return (x.x + x.z) + (x.y + x.w);
}

// A word of the slab that an apply names: shared 0..2, otherwise private.
fn slab_word(slab: u32, word: u32) -> f32 {
    switch slab {
        case 0u: {
            return shared0[word / 4u][word % 4u];
        }
        case 1u: {
            return shared1[word / 4u][word % 4u];
        }
        case 2u: {
            return shared2[word / 4u][word % 4u];
        }
        default: {
            return private_slab[word];
        }
    }
}

// Four words, `stride` apart.
fn slab_words(slab: u32, word: u32, stride: u32) -> vec4<f32> {
    return vec4(
        slab_word(slab, word),
        slab_word(slab, word + stride),
        slab_word(slab, word + 2u * stride),
        slab_word(slab, word + 3u * stride),
    );
}

// The word of element 0 of the column in the private slot at `base`; element i is i·width further on.
fn slot(base: u32, c: Column) -> u32 {
    return base + (c.block * p.value_heads * p.value + c.head * c.width) * K + c.col;
}

fn load(at: u32, width: u32) {
    for (var i = 0u; i < QUADS; i++) {
        let w = at + 4u * i * width;
        state[i] = vec4(
            private_slab[w],
            private_slab[w + width],
            private_slab[w + 2u * width],
            private_slab[w + 3u * width],
        );
    }
}

fn store(at: u32, width: u32) {
    for (var i = 0u; i < QUADS; i++) {
        let w = at + 4u * i * width;
        let s = state[i];
        private_slab[w] = s.x;
        private_slab[w + width] = s.y;
        private_slab[w + 2u * width] = s.z;
        private_slab[w + 3u * width] = s.w;
    }
}

fn clear() {
    for (var i = 0u; i < QUADS; i++) {
        state[i] = vec4(0.0);
    }
}

// The value that a token writes to this column; T gets none.
fn value_of(row: u32, c: Column) -> f32 {
    if (c.block == TRANSITION) {
        return 0.0;
    }
    return qkv_word(row * p.row + 2u * p.heads * K + c.head * p.value + c.col);
}

// One token, with q and k at words `q` and `k`. `decay` is e^g.
fn token(q: u32, k: u32, decay: f32, beta: f32, value: f32) -> f32 {
    var seen = vec4(0.0);
    for (var i = 0u; i < QUADS; i++) {
        let s = decay * state[i];
        state[i] = s;
        seen += qkv[k / 4u + i] * s;
    }
    let u = beta * (value - total(seen));
    var o = vec4(0.0);
    for (var i = 0u; i < QUADS; i++) {
        let s = state[i] + u * qkv[k / 4u + i];
        state[i] = s;
        o += qkv[q / 4u + i] * s;
    }
    return total(o);
}

// Four words from word `shift` (1 to 3) of the eight in a and b.
fn realign(a: vec4<f32>, b: vec4<f32>, shift: u32) -> vec4<f32> {
    let two = select(vec4(a.yzw, b.x), vec4(a.zw, b.xy), shift == 2u);
    return select(two, vec4(a.w, b.xyz), shift == 3u);
}

// The same for rows that do not start at a multiple of four words, which happens only if HV·V is none.
fn token_unaligned(q: u32, k: u32, decay: f32, beta: f32, value: f32) -> f32 {
    let shift = q % 4u;
    var seen = vec4(0.0);
    var a = qkv[k / 4u];
    for (var i = 0u; i < QUADS; i++) {
        let b = qkv[k / 4u + i + 1u];
        let s = decay * state[i];
        state[i] = s;
        seen += realign(a, b, shift) * s;
        a = b;
    }
    let u = beta * (value - total(seen));
    a = qkv[k / 4u];
    for (var i = 0u; i < QUADS; i++) {
        let b = qkv[k / 4u + i + 1u];
        state[i] += u * realign(a, b, shift);
        a = b;
    }
    var o = vec4(0.0);
    a = qkv[q / 4u];
    for (var i = 0u; i < QUADS; i++) {
        let b = qkv[q / 4u + i + 1u];
        o += realign(a, b, shift) * state[i];
        a = b;
    }
    return total(o);
}

// Rows `first` to `end`.
fn run(first: u32, end: u32, c: Column) {
    let key_head = c.head / (p.value_heads / p.heads);
    for (var row = first; row < end; row++) {
        let q = row * p.row + key_head * K;
        let k = q + p.heads * K;
        let gate = row * 2u * p.value_heads + c.head;
        let decay = exp(gates[gate]);
        let beta = gates[gate + p.value_heads];
        let value = value_of(row, c);
        var o: f32;
        if (q % 4u == 0u) {
            o = token(q, k, decay, beta, value);
        } else {
            o = token_unaligned(q, k, decay, beta, value);
        }
        if (c.block == RUNNING) {
            out[(row * p.value_heads + c.head) * p.value + c.col] = o;
        }
    }
}

// The product of the column with the row of T at word `t`. Private slabs, and T at a word that is no multiple of four,
// take the slow path.
fn product(slab: u32, t: u32) -> f32 {
    let r = t / 4u;
    var sum = vec4(0.0);
    if (slab >= SHARED_SLABS || t % 4u != 0u) {
        for (var j = 0u; j < not_unrolled(QUADS); j++) {
            sum += state[0] * slab_words(slab, t + 4u * j, 1u);
            turn();
        }
    } else if (slab == 0u) {
        for (var j = 0u; j < QUADS; j++) {
            sum += state[j] * shared0[r + j];
        }
    } else if (slab == 1u) {
        for (var j = 0u; j < QUADS; j++) {
            sum += state[j] * shared1[r + j];
        }
    } else {
        for (var j = 0u; j < QUADS; j++) {
            sum += state[j] * shared2[r + j];
        }
    }
    return total(sum);
}

// state ← T·state with T at word `t`. The new column waits in memory: beside the old one it would not fit in registers.
fn dense(slab: u32, t: u32) {
    var next: array<vec4<f32>, QUADS>;
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        var quad = vec4(0.0);
        for (var row = 4u * i; row < 4u * i + not_unrolled(4u); row++) {
            quad = vec4(quad.yzw, product(slab, t + row * K));
        }
        next[i] = quad;
    }
    for (var i = 0u; i < QUADS; i++) {
        state[i] = next[i];
    }
}

// Moves the first quad of the column to its end: after QUADS calls the column is as it was.
fn turn() {
    let first = state[0];
    for (var i = 0u; i + 1u < QUADS; i++) {
        state[i] = state[i + 1u];
    }
    state[QUADS - 1u] = first;
}

// Adds a column of S whose elements are `width` words apart.
fn add(slab: u32, at: u32, width: u32) {
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        state[0] += slab_words(slab, at + 4u * i * width, width);
        turn();
    }
}

// h ← T·h + S for S_run and S, T·h for T. `step` is the word of the step's record.
fn apply(step: u32, c: Column) {
    let slab = tables[step + 1u];
    let form = tables[step + 4u];
    if (form == FORM_DENSE) {
        dense(slab, tables[step + 3u] + c.head * K * K);
    } else if (form != FORM_IDENTITY) {
        clear();
    }
    if (c.block != TRANSITION) {
        add(slab, tables[step + 2u] + c.head * K * p.value + c.col, p.value);
    }
}

@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(global_invocation_id) id: vec3<u32>,
) {
    let launch = record(CHAIN_LAUNCHES, p.launch, LAUNCH_WORDS);
    if (group.z >= tables[launch + 1u] || group.y >= p.value_heads) {
        return;
    }
    let chain = record(CHAIN_TABLE, tables[launch] + group.z, CHAIN_WORDS);
    let both = (tables[chain + 2u] & CHAIN_OPERATOR) != 0u;
    if (id.x >= select(p.value, 2u * p.value + K, both)) {
        return;
    }
    let block = min(id.x / p.value, TRANSITION);
    let c = Column(group.y, block, id.x - block * p.value, select(p.value, K, block == TRANSITION));

    // S and T take part from the step that begins or loads them.
    var takes_part = block == RUNNING;
    let first = record(STEP_TABLE, tables[chain], STEP_WORDS);
    let end = first + tables[chain + 1u] * STEP_WORDS;
    for (var step = first; step < end; step += STEP_WORDS) {
        let a = tables[step + 1u];
        let b = tables[step + 2u];
        switch tables[step] {
            case STEP_ZERO: {
                if (block == RUNNING) {
                    clear();
                }
            }
            case STEP_LOAD: {
                if (block == RUNNING || b == 1u) {
                    load(slot(a, c), c.width);
                    takes_part = true;
                }
            }
            case STEP_RUN: {
                if (takes_part) {
                    run(a, a + b, c);
                }
            }
            case STEP_BEGIN: {
                if (block != RUNNING) {
                    clear();
                    takes_part = true;
                    if (block == TRANSITION) {
                        for (var i = 0u; i < QUADS; i++) {
                            state[i] = select(vec4(0.0), vec4(1.0), vec4(4u * i) + vec4(0u, 1u, 2u, 3u) == vec4(c.col));
                        }
                    }
                }
            }
            case STEP_APPLY: {
                if (takes_part) {
                    apply(step, c);
                }
            }
            case STEP_STORE: {
                if (block == RUNNING || b == 1u) {
                    store(slot(a, c), c.width);
                }
            }
            default: {}
        }
    }
}
