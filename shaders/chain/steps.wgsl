// steps: what the recurrent and the chunk form of a chain share, all but the run step.
//
// A chain's columns are S_run (V) | S (V) | transition. Of a delta update the transition is T, K columns that start from
// the identity; of an add update with a decay it is one column of log-sums of the gates, K of them (diagonal) or one
// (scalar, in element 0). A private slot is S_run [HV, K, V], S [HV, K, V], then T [HV, K, K] or log-sums [HV, K] or [HV].
//
// The file that includes this declares p: Params, tables, private_slab, shared0..2 and
// fn run(first: u32, rows: u32, chunk: u32, c: Column).

const QUADS: u32 = K / 4u;

// Whether the transition is a dense matrix, and the columns it has.
const DENSE: bool = UPDATE >= UPDATE_DELTA;
const TRANSITION_COLUMNS: u32 = select(select(1u, 0u, DECAY == DECAY_NONE), K, DENSE);

// The column of this invocation. Only ever indexed by constants (once the loops over it are unrolled), so that it stays
// in registers.
var<private> state: array<vec4<f32>, QUADS>;

// Which block of columns: S_run, S or the transition.
const RUNNING: u32 = 0u;
const FRESH: u32 = 1u;
const TRANSITION: u32 = 2u;

struct Column {
    // Value head.
    head: u32,
    // Block of columns, and the column in it.
    block: u32,
    col: u32,
    // Words from one element of the column to the next in a slot.
    width: u32,
}

fn total(x: vec4<f32>) -> f32 {
    return (x.x + x.z) + (x.y + x.w);
}

// e^log for log <= 0, an exact 0 for the least ones: no driver is asked for the exponential of −1e38.
fn decay_of(log: f32) -> f32 {
    return select(exp(max(log, -128.0)), 0.0, log < -104.0);
}

fn decays_of(log: vec4<f32>) -> vec4<f32> {
    return select(exp(max(log, vec4(-128.0))), vec4(0.0), log < vec4(-104.0));
}

// Whether the column holds log-sums.
fn is_log(c: Column) -> bool {
    return !DENSE && c.block == TRANSITION;
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
    let block = base + c.block * p.value_heads * p.value * K;
    if (is_log(c)) {
        return block + c.head * select(1u, K, DECAY == DECAY_DIAGONAL);
    }
    return block + c.head * c.width * K + c.col;
}

fn load(at: u32, c: Column) {
    if (is_log(c) && DECAY == DECAY_SCALAR) {
        state[0] = vec4(private_slab[at], 0.0, 0.0, 0.0);
        return;
    }
    for (var i = 0u; i < QUADS; i++) {
        let w = at + 4u * i * c.width;
        state[i] = vec4(
            private_slab[w],
            private_slab[w + c.width],
            private_slab[w + 2u * c.width],
            private_slab[w + 3u * c.width],
        );
    }
}

fn store(at: u32, c: Column) {
    if (is_log(c) && DECAY == DECAY_SCALAR) {
        private_slab[at] = state[0].x;
        return;
    }
    for (var i = 0u; i < QUADS; i++) {
        let w = at + 4u * i * c.width;
        let s = state[i];
        private_slab[w] = s.x;
        private_slab[w + c.width] = s.y;
        private_slab[w + 2u * c.width] = s.z;
        private_slab[w + 3u * c.width] = s.w;
    }
}

fn clear() {
    for (var i = 0u; i < QUADS; i++) {
        state[i] = vec4(0.0);
    }
}

// S and T start from 0 | I, log-sums from 0.
fn begin(c: Column) {
    clear();
    if (DENSE && c.block == TRANSITION) {
        for (var i = 0u; i < QUADS; i++) {
            state[i] = select(vec4(0.0), vec4(1.0), vec4(4u * i) + vec4(0u, 1u, 2u, 3u) == vec4(c.col));
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

// Multiplies the elements by the exponentials of the K logarithms at word `t`.
fn decay_elements(slab: u32, t: u32) {
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        state[0] *= decays_of(slab_words(slab, t + 4u * i, 1u));
        turn();
    }
}

// How a rotation acts on element `i` of a column: element `i` times `cos` plus the partner's times `sin`.
struct Turn {
    partner: u32,
    cos: f32,
    sin: f32,
}

// The rotation by the angle record at word `angle`; `sign` −1 for its inverse.
fn turn_of(i: u32, angle: u32, sign: f32) -> Turn {
    let half = p.rot / 2u;
    if (i >= p.rot) {
        return Turn(i, 1.0, 0.0);
    }
    var pair = i % half;
    var second = i >= half;
    var partner = select(i + half, i - half, second);
    if (ROTATION == ROTATION_INTERLEAVED) {
        pair = i / 2u;
        second = i % 2u == 1u;
        partner = select(i + 1u, i - 1u, second);
    }
    let sin = sign * bitcast<f32>(tables[angle + half + pair]);
    return Turn(partner, bitcast<f32>(tables[angle + pair]), select(-sin, sin, second));
}

// state ← R·state, through memory, where elements can be chosen by a number.
fn rotate(angle: u32, sign: f32) {
    var old: array<f32, K>;
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        let s = state[0];
        old[4u * i] = s.x;
        old[4u * i + 1u] = s.y;
        old[4u * i + 2u] = s.z;
        old[4u * i + 3u] = s.w;
        turn();
    }
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        var quad = vec4(0.0);
        for (var e = 4u * i; e < 4u * i + not_unrolled(4u); e++) {
            let r = turn_of(e, angle, sign);
            quad = vec4(quad.yzw, r.cos * old[e] + r.sin * old[r.partner]);
        }
        state[0] = quad;
        turn();
    }
}

// Adds a column of S whose elements are `width` words apart.
fn add(slab: u32, at: u32, width: u32) {
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        state[0] += slab_words(slab, at + 4u * i * width, width);
        turn();
    }
}

// Adds the same column of R·S.
fn add_moved(slab: u32, at: u32, width: u32, angle: u32) {
    for (var i = 0u; i < not_unrolled(QUADS); i++) {
        var quad = vec4(0.0);
        for (var e = 4u * i; e < 4u * i + not_unrolled(4u); e++) {
            let r = turn_of(e, angle, 1.0);
            let own = r.cos * slab_word(slab, at + e * width);
            quad = vec4(quad.yzw, own + r.sin * slab_word(slab, at + r.partner * width));
        }
        state[0] += quad;
        turn();
    }
}

// Adds the logarithms of an operator's transition to a column of log-sums.
fn add_logs(slab: u32, form: u32, t: u32, head: u32) {
    if (form == FORM_DIAGONAL) {
        for (var i = 0u; i < not_unrolled(QUADS); i++) {
            state[0] = max(state[0] + slab_words(slab, t + head * K + 4u * i, 1u), vec4(LOG_ZERO));
            turn();
        }
    } else if (form == FORM_SCALAR) {
        let log = slab_word(slab, t + head);
        for (var i = 0u; i < QUADS; i++) {
            state[i] = max(state[i] + vec4(log), vec4(LOG_ZERO));
        }
    } else if (form != FORM_IDENTITY) {
        for (var i = 0u; i < QUADS; i++) {
            state[i] = vec4(LOG_ZERO);
        }
    }
}

// h ← T·h + S for S_run and S, T·h for the transition. `step` is the word of the step's record.
fn apply(step: u32, c: Column) {
    let slab = tables[step + 1u];
    let s = tables[step + 2u];
    let t = tables[step + 3u];
    let form = tables[step + 4u];
    if (is_log(c)) {
        add_logs(slab, form, t, c.head);
        return;
    }
    let moved = ROTATION != ROTATION_NONE && tables[step + 5u] != 0u;
    let angle = tables[ANGLE_TABLE] + (tables[step + 5u] - 1u) * p.rot;
    if (form == FORM_DENSE) {
        if (DENSE) {
            if (moved) {
                rotate(angle, -1.0);
            }
            dense(slab, t + c.head * K * K);
            if (moved) {
                rotate(angle, 1.0);
            }
        }
    } else if (form == FORM_DIAGONAL) {
        decay_elements(slab, t + c.head * K);
    } else if (form == FORM_SCALAR) {
        let factor = decay_of(slab_word(slab, t + c.head));
        for (var i = 0u; i < QUADS; i++) {
            state[i] *= factor;
        }
    } else if (form != FORM_IDENTITY) {
        clear();
    }
    if (c.block != TRANSITION) {
        let at = s + c.head * K * p.value + c.col;
        if (moved) {
            add_moved(slab, at, p.value, angle);
        } else {
            add(slab, at, p.value);
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
    if (id.x >= select(p.value, 2u * p.value + TRANSITION_COLUMNS, both)) {
        return;
    }
    let block = min(id.x / p.value, TRANSITION);
    let transition = select(1u, K, DENSE);
    let c = Column(group.y, block, id.x - block * p.value, select(p.value, transition, block == TRANSITION));

    // S and the transition take part from the step that begins or loads them.
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
                    load(slot(a, c), c);
                    takes_part = true;
                }
            }
            case STEP_RUN: {
                if (takes_part) {
                    run(a, b, tables[step + 3u], c);
                }
            }
            case STEP_BEGIN: {
                if (block != RUNNING) {
                    begin(c);
                    takes_part = true;
                }
            }
            case STEP_APPLY: {
                if (takes_part) {
                    apply(step, c);
                }
            }
            case STEP_STORE: {
                if (block == RUNNING || b == 1u) {
                    store(slot(a, c), c);
                }
            }
            case STEP_SNAPSHOT: {
                if (block == RUNNING) {
                    store(slot(a, c), c);
                }
            }
            default: {}
        }
    }
}
