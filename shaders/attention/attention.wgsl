// attention: out = softmax(scale·q·Kᵀ)·V over the spans of each row whose KV slabs are bound, online over launches.
//
// Layout    q, out [rows, heads·HEAD]; stats [rows, heads, 2]: running maximum and sum of weights; KV slabs
//           [KV rows, 2, kv_heads·HEAD]: a token's key, then its value. f32. Query head h reads KV head h/(heads/kv_heads).
// Grid      x = heads, y = rows; one workgroup of 64 per (row, head).
// Workgroup memory: 4·HEAD bytes + 1.8 KiB, at most 2.8 KiB.
// Numbers   scores, maximum, sum and values in f32. The sum of weights and the weighted values are kept per part of the
//           keys and joined once at the end. "No key yet" is the finite maximum −3e38, since WGSL has no infinity. The
//           angle of a span is composed from two host-made ones: cos(p−a) = cos p·cos a + sin p·sin a.
// Why       a span's keys are stored rotated by their offset inside the segment, so the query is rotated anew for each
//           span and nothing shared is copied. Per tile of 64 keys an invocation scores one key; then it owns four
//           output elements and every (256/HEAD)-th key, so that all 64 stay busy for any head size and value rows are
//           read in whole. Three barriers a tile. A continued launch (first = 0) takes up out and stats, which is how
//           more slabs than four are read.
#include "shared/tables.wgsl"

struct Params {
    heads: u32,
    kv_heads: u32,
    rot: u32,
    launch: u32,
    first: u32,
    last: u32,
    scale: f32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> stats: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> kv0: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> kv1: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> kv2: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> kv3: array<vec4<f32>>;

const TILE: u32 = 64u;
const QUADS: u32 = HEAD / 4u;
// Parts of the keys whose weighted values are summed side by side.
const PARTS: u32 = TILE / QUADS;
const NO_KEY: f32 = -3.0e38;

var<workgroup> turned: array<vec4<f32>, QUADS>;
var<workgroup> scores: array<f32, TILE>;
var<workgroup> best: array<f32, 8>;
var<workgroup> weights: array<f32, TILE>;
var<workgroup> sums: array<f32, TILE>;
var<workgroup> values: array<vec4<f32>, TILE>;

// Element d of the query that starts at quad `at`.
fn query(at: u32, d: u32) -> f32 {
    return q[at + d / 4u][d % 4u];
}

// Element d of the query, rotated from position angle `pos` back by origin angle `origin` (words of the tables).
fn rotated(at: u32, d: u32, pos: u32, origin: u32) -> f32 {
    let x = query(at, d);
    if (d >= p.rot) {
        return x;
    }
    let half = p.rot / 2u;
    let i = d % half;
    let cos_p = bitcast<f32>(tables[pos + i]);
    let sin_p = bitcast<f32>(tables[pos + half + i]);
    let cos_a = bitcast<f32>(tables[origin + i]);
    let sin_a = bitcast<f32>(tables[origin + half + i]);
    let c = cos_p * cos_a + sin_p * sin_a;
    let s = sin_p * cos_a - cos_p * sin_a;
    if (d < half) {
        return x * c - query(at, d + half) * s;
    }
    return x * c + query(at, d - half) * s;
}

// q·K for the key at quad `at` of a slab.
fn score(slab: u32, at: u32) -> f32 {
    var sum = vec4(0.0);
    let end = at + not_unrolled(QUADS);
    switch slab {
        case 0u: {
            for (var k = at; k < end; k++) {
                sum += turned[k - at] * kv0[k];
            }
        }
        case 1u: {
            for (var k = at; k < end; k++) {
                sum += turned[k - at] * kv1[k];
            }
        }
        case 2u: {
            for (var k = at; k < end; k++) {
                sum += turned[k - at] * kv2[k];
            }
        }
        default: {
            for (var k = at; k < end; k++) {
                sum += turned[k - at] * kv3[k];
            }
        }
    }
    return (sum.x + sum.z) + (sum.y + sum.w);
}

// Σ weight·V over the keys `part`, `part + PARTS`, … of a tile of `len`; `at` is the quad of the first value.
fn weighted(slab: u32, at: u32, stride: u32, part: u32, len: u32) -> vec4<f32> {
    var sum = vec4(0.0);
    switch slab {
        case 0u: {
            for (var j = part; j < len; j += PARTS) {
                sum += weights[j] * kv0[at + j * stride];
            }
        }
        case 1u: {
            for (var j = part; j < len; j += PARTS) {
                sum += weights[j] * kv1[at + j * stride];
            }
        }
        case 2u: {
            for (var j = part; j < len; j += PARTS) {
                sum += weights[j] * kv2[at + j * stride];
            }
        }
        default: {
            for (var j = part; j < len; j += PARTS) {
                sum += weights[j] * kv3[at + j * stride];
            }
        }
    }
    return sum;
}

// Which binding holds KV slab `slab` in this launch; KV_SLABS if none.
fn binding_of(launch: u32, slab: u32) -> u32 {
    let count = min(tables[launch], KV_SLABS);
    for (var i = 0u; i < count; i++) {
        if (tables[launch + 4u + i] == slab) {
            return i;
        }
    }
    return KV_SLABS;
}

@compute @workgroup_size(TILE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let h = group.x;
    let r = group.y;
    if (r >= tables[ROWS] || h >= p.heads) {
        return;
    }
    let row = record(ROW_TABLE, r, ROW_WORDS);
    let run = record(RUN_TABLE, tables[row], RUN_WORDS);
    let launch = record(ATTENTION_LAUNCHES, p.launch, ATTENTION_LAUNCH_WORDS);
    let position = tables[row + 1u];
    let pos_angle = record(ANGLE_TABLE, tables[row + 2u], p.rot);
    let q_at = (r * p.heads + h) * QUADS;
    // A token takes 2·width floats of a slab.
    let stride = 2u * p.kv_heads * QUADS;
    let kv_head = h / (p.heads / p.kv_heads) * QUADS;
    let part = lane / QUADS;
    let quad = lane % QUADS;

    // Selected, not branched on, here and at the end: see not_unrolled.
    let at_stats = 2u * (r * p.heads + h);
    let goes_on = p.first == 0u;
    let holds = goes_on & (part == 0u);
    var top = select(NO_KEY, stats[at_stats], goes_on);
    var sum = select(0.0, stats[at_stats + 1u], holds);
    var acc = select(vec4(0.0), out[q_at + quad], holds);

    let first_span = tables[run + 2u];
    let spans = tables[run + 3u];
    for (var n = 0u; n < spans; n++) {
        let span = record(SPAN_TABLE, first_span + n, SPAN_WORDS);
        let slab = binding_of(launch, tables[span]);
        // Causal: key j of the span is at its first position + j.
        let before = position + 1u - min(tables[span + 3u], position + 1u);
        let visible = min(before, tables[span + 2u]);
        if (slab == KV_SLABS || visible == 0u) {
            continue;
        }
        let origin = record(ANGLE_TABLE, tables[span + 4u], p.rot);
        if (lane < QUADS) {
            var t: vec4<f32>;
            for (var i = 0u; i < not_unrolled(4u); i++) {
                t[i] = rotated(q_at, 4u * lane + i, pos_angle, origin);
            }
            turned[lane] = t;
        }
        workgroupBarrier();
        for (var tile = 0u; tile < visible; tile += TILE) {
            let len = min(TILE, visible - tile);
            let at = (tables[span + 1u] + tile) * stride + kv_head;
            var mine = NO_KEY;
            if (lane < len) {
                mine = p.scale * score(slab, at + lane * stride);
            }
            scores[lane] = mine;
            workgroupBarrier();
            if (lane < 8u) {
                var m = scores[lane];
                for (var i = lane + 8u; i < TILE; i += 8u) {
                    m = max(m, scores[i]);
                }
                best[lane] = m;
            }
            workgroupBarrier();
            var m = top;
            for (var i = 0u; i < not_unrolled(8u); i++) {
                m = max(m, best[i]);
            }
            weights[lane] = select(0.0, exp(mine - m), lane < len);
            workgroupBarrier();
            let keep = exp(top - m);
            top = m;
            sum *= keep;
            for (var j = part; j < len; j += PARTS) {
                sum += weights[j];
            }
            acc = keep * acc + weighted(slab, at + stride / 2u + quad, stride, part, len);
        }
    }

    sums[lane] = sum;
    values[lane] = acc;
    workgroupBarrier();
    if (part == 0u) {
        for (var i = 1u; i < not_unrolled(PARTS); i++) {
            sum += sums[lane + i * QUADS];
            acc += values[lane + i * QUADS];
        }
        out[q_at + quad] = select(acc, acc / sum, (p.last == 1u) & (sum > 0.0));
    }
    if (lane == 0u) {
        stats[at_stats] = top;
        stats[at_stats + 1u] = sum;
    }
}
