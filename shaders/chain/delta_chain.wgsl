// delta_chain: S = e^g·S; u = β(v − Sᵀk); S += k uᵀ; o = Sᵀq along the steps of each chain.
//
// Layout    qkv: row r starts at r·row, q [H, K] normalised and scaled, then k [H, K] normalised, then v [HV, V];
//           gates [rows, 2·HV]: g, then beta; out [rows, HV·V]. States are [HV, K, V], T is [HV, K, K]; a private slot
//           is S_run, S, T. All f32.
// Grid      x covers the columns by 32, y = value heads, z = chains of the launch. Columns of a chain with an operator
//           are S_run (V) | S (V) | T (K), of others S_run only; invocations past them leave.
// Workgroup memory: none, no barrier. Private: the column, K floats, and K more inside a dense apply.
// Numbers   a column's sums run in four interleaved parts over K. The columns of S_run see the same operations
//           whether or not an operator is under construction, so its outputs have the same bits.
// Why       given q, k and the gates the columns are independent: one invocation keeps its column in registers for the
//           whole chain, and all invocations of a workgroup read the same q, k and rows of T. Loops over the column have
//           constant bounds, so that drivers unroll them and the column stays in registers. Choices of a slab and of
//           aligned loads stand outside the loops: software drivers run both sides of a branch.
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

// The column of this invocation.
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

fn qkv_words(word: u32) -> vec4<f32> {
    return vec4(qkv_word(word), qkv_word(word + 1u), qkv_word(word + 2u), qkv_word(word + 3u));
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

fn slab_words(slab: u32, word: u32) -> vec4<f32> {
    return vec4(
        slab_word(slab, word),
        slab_word(slab, word + 1u),
        slab_word(slab, word + 2u),
        slab_word(slab, word + 3u),
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

// One token.
fn token(row: u32, c: Column) {
    let keys = p.heads * K;
    let q = row * p.row + c.head / (p.value_heads / p.heads) * K;
    let k = q + keys;
    // K is a multiple of 4, so the rows are aligned for vec4 loads unless HV·V is not.
    let aligned = q % 4u == 0u;
    let gate = row * 2u * p.value_heads + c.head;
    let decay = exp(gates[gate]);
    let beta = gates[gate + p.value_heads];

    var seen = vec4(0.0);
    if (aligned) {
        for (var i = 0u; i < QUADS; i++) {
            let s = decay * state[i];
            state[i] = s;
            seen += qkv[k / 4u + i] * s;
        }
    } else {
        for (var i = 0u; i < QUADS; i++) {
            let s = decay * state[i];
            state[i] = s;
            seen += qkv_words(k + 4u * i) * s;
        }
    }
    var write = 0.0;
    if (c.block != TRANSITION) {
        write = qkv_word(row * p.row + 2u * keys + c.head * p.value + c.col);
    }
    let u = beta * (write - total(seen));
    var o = vec4(0.0);
    if (aligned) {
        for (var i = 0u; i < QUADS; i++) {
            let s = state[i] + u * qkv[k / 4u + i];
            state[i] = s;
            o += qkv[q / 4u + i] * s;
        }
    } else {
        for (var i = 0u; i < QUADS; i++) {
            let s = state[i] + u * qkv_words(k + 4u * i);
            state[i] = s;
            o += qkv_words(q + 4u * i) * s;
        }
    }
    if (c.block == RUNNING) {
        out[(row * p.value_heads + c.head) * p.value + c.col] = total(o);
    }
}

// state ← T·state with the rows of T at word `t`: s · M is the vector of products with the columns of M, which here
// hold four rows of T.
fn dense(slab: u32, t: u32) {
    var next: array<vec4<f32>, QUADS>;
    let t4 = t / 4u;
    if (t % 4u == 0u && slab == 0u) {
        for (var i = 0u; i < QUADS; i++) {
            let r = t4 + i * K;
            var sum = vec4(0.0);
            for (var j = 0u; j < QUADS; j++) {
                let a = r + j;
                sum += state[j] * mat4x4(shared0[a], shared0[a + QUADS], shared0[a + 2u * QUADS], shared0[a + 3u * QUADS]);
            }
            next[i] = sum;
        }
    } else if (t % 4u == 0u && slab == 1u) {
        for (var i = 0u; i < QUADS; i++) {
            let r = t4 + i * K;
            var sum = vec4(0.0);
            for (var j = 0u; j < QUADS; j++) {
                let a = r + j;
                sum += state[j] * mat4x4(shared1[a], shared1[a + QUADS], shared1[a + 2u * QUADS], shared1[a + 3u * QUADS]);
            }
            next[i] = sum;
        }
    } else if (t % 4u == 0u && slab == 2u) {
        for (var i = 0u; i < QUADS; i++) {
            let r = t4 + i * K;
            var sum = vec4(0.0);
            for (var j = 0u; j < QUADS; j++) {
                let a = r + j;
                sum += state[j] * mat4x4(shared2[a], shared2[a + QUADS], shared2[a + 2u * QUADS], shared2[a + 3u * QUADS]);
            }
            next[i] = sum;
        }
    } else {
        for (var i = 0u; i < QUADS; i++) {
            let r = t + 4u * i * K;
            var sum = vec4(0.0);
            for (var j = 0u; j < QUADS; j++) {
                let a = r + 4u * j;
                sum += state[j] * mat4x4(
                    slab_words(slab, a),
                    slab_words(slab, a + K),
                    slab_words(slab, a + 2u * K),
                    slab_words(slab, a + 3u * K),
                );
            }
            next[i] = sum;
        }
    }
    for (var i = 0u; i < QUADS; i++) {
        state[i] = next[i];
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
        let at = tables[step + 2u] + c.head * K * p.value + c.col;
        for (var i = 0u; i < QUADS; i++) {
            let w = at + 4u * i * p.value;
            state[i] += vec4(
                slab_word(slab, w),
                slab_word(slab, w + p.value),
                slab_word(slab, w + 2u * p.value),
                slab_word(slab, w + 3u * p.value),
            );
        }
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
                    for (var row = a; row < a + b; row++) {
                        token(row, c);
                    }
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
