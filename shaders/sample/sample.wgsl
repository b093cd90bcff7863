// sample: the next token of each row that wanted logits, and its log-probability under the unmodified logits.
//
// Temperature, top-k, top-p, min-p and the draw, in this order; temperature 0 takes the highest logit, the first of equal
// ones. A row with a logit that is not finite gives 0xffffffff and the first such token.
//
// Layout    logits [rows, vocab]; choices [rows, 8]: temperature, top_k, top_p·2^32, min_p, draw (low, high), 0, 0;
//           out [rows, 2]: token, log-probability.
// Grid      x = rows; one workgroup of 256 per row, its invocations stride over the logits.
// Workgroup memory: 5.1 KiB: 256 bins and 256 partial sums of 64 bits, partial sums of f32, a few scalars.
// Numbers   a weight exp((logit − highest)/temperature) is counted in units of 2^-44, exact but for what is below; sums are
//           integers of two words, the same in any order. So the choice depends on a device by its exp alone.
// Why       top-k and top-p are thresholds on words that sort as the logits do: four digits of 8 bits, from a histogram of
//           counts or weights each. A lane collects neighbours of one bin before it adds them: few atomics where many values
//           share a digit. The draw walks blocks of tokens, one an invocation, in the order of their ids.
#include "shared/tables.wgsl"

struct Params {
    vocab: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read> choices: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

const LANES: u32 = 256u;
const NONE: u32 = 0xffffffffu;
const INFINITY: u32 = 0x7f800000u;
#include "shared/lane_sum.wgsl"

// Bins: the two words of sums.
var<workgroup> low: array<atomic<u32>, LANES>;
var<workgroup> high: array<atomic<u32>, LANES>;
// Of each lane: a sum, or its best key and where that stands.
var<workgroup> lanes: array<vec2<u32>, LANES>;
var<workgroup> bad: atomic<u32>;
var<workgroup> digit: u32;
var<workgroup> above: vec2<u32>;
var<workgroup> want: vec2<u32>;
var<workgroup> ties: u32;
var<workgroup> owner: u32;

// A word that orders as the number does; 0 and −0 are equal.
fn order(x: f32) -> u32 {
    let word = bitcast<u32>(x);
    let bits = select(word, 0u, word == 0x80000000u);
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

// And back.
fn value(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

// Numbers of 64 bits: low word, high word.
fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let sum = a.x + b.x;
    return vec2(sum, a.y + b.y + select(0u, 1u, sum < a.x));
}

fn less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// a·b
fn wide(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let first = a0 * b0;
    let second = a0 * b1;
    let third = a1 * b0;
    let middle = (first >> 16u) + (second & 0xffffu) + (third & 0xffffu);
    return vec2((middle << 16u) | (first & 0xffffu), a1 * b1 + (second >> 16u) + (third >> 16u) + (middle >> 16u));
}

// a·b / 2^32, and a·b, each for results below 2^64.
fn scaled(a: vec2<u32>, b: u32) -> vec2<u32> {
    return add(vec2(wide(a.x, b).y, 0u), wide(a.y, b));
}

fn times(a: vec2<u32>, b: u32) -> vec2<u32> {
    let product = wide(a.x, b);
    return vec2(product.x, product.y + a.y * b);
}

// a·b / 2^64
fn upper(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let second = wide(a.x, b.y);
    let third = wide(a.y, b.x);
    let middle = add(add(vec2(wide(a.x, b.x).y, 0u), vec2(second.x, 0u)), vec2(third.x, 0u));
    let sum = add(add(wide(a.y, b.y), vec2(second.y, 0u)), vec2(third.y, 0u));
    return add(sum, vec2(middle.y, 0u));
}

fn weight(x: f32, highest: f32, temperature: f32) -> f32 {
    return min(exp(max((x - highest) / temperature, -120.0)), 1.0);
}

// A weight in units of 2^-44.
fn fixed(w: f32) -> vec2<u32> {
    let scaled_up = w * 4096.0;
    let whole = floor(scaled_up);
    return vec2(u32((scaled_up - whole) * 4294967296.0), u32(whole));
}

fn flush(bin: u32, sum: vec2<u32>) {
    if (sum.x == 0u && sum.y == 0u) {
        return;
    }
    let before = atomicAdd(&low[bin], sum.x);
    let carry = select(0u, 1u, before + sum.x < sum.x);
    atomicAdd(&high[bin], sum.y + carry);
}

// The key of the last token that is kept, from the highest down, when their counts or weights first reach `want`. Tokens
// below `least` do not count. `part` of their weight is wanted, where it is not 0; then `above` is that of higher keys.
fn descend(lane: u32, row: u32, part: u32, least: u32, highest: f32, temperature: f32) -> u32 {
    var key_prefix = 0u;
    var mask = 0u;
    for (var level = 0u; level < 4u; level++) {
        let shift = 24u - 8u * level;
        atomicStore(&low[lane], 0u);
        atomicStore(&high[lane], 0u);
        workgroupBarrier();
        var bin = 0u;
        var sum = vec2(0u, 0u);
        for (var i = lane; i < p.vocab; i += LANES) {
            let x = logits[row + i];
            let key = order(x);
            if (key >= least && ((key ^ key_prefix) & mask) == 0u) {
                let own = (key >> shift) & 255u;
                if (own != bin) {
                    flush(bin, sum);
                    sum = vec2(0u, 0u);
                    bin = own;
                }
                if (part == 0u) {
                    sum.x += 1u;
                } else {
                    sum = add(sum, fixed(weight(x, highest, temperature)));
                }
            }
        }
        flush(bin, sum);
        workgroupBarrier();
        if (lane == 0u) {
            if (level == 0u) {
                above = vec2(0u, 0u);
                if (part != 0u) {
                    var total = vec2(0u, 0u);
                    for (var b = 0u; b < LANES; b++) {
                        total = add(total, vec2(atomicLoad(&low[b]), atomicLoad(&high[b])));
                    }
                    want = scaled(total, part);
                    if (want.x == 0u && want.y == 0u) {
                        want.x = 1u;
                    }
                }
            }
            var b = 255u;
            var sum_above = above;
            loop {
                let next = add(sum_above, vec2(atomicLoad(&low[b]), atomicLoad(&high[b])));
                if (b == 0u || !less(next, want)) {
                    break;
                }
                sum_above = next;
                b -= 1u;
            }
            above = sum_above;
            digit = b;
        }
        workgroupBarrier();
        key_prefix |= digit << shift;
        mask |= 255u << shift;
    }
    return key_prefix;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let r = group.x;
    if (r >= tables[LOGITS]) {
        return;
    }
    let row = r * p.vocab;
    if (lane == 0u) {
        atomicStore(&bad, NONE);
        ties = NONE;
    }
    workgroupBarrier();
    var best = vec2(0u, NONE);
    for (var i = lane; i < p.vocab; i += LANES) {
        let x = logits[row + i];
        if ((bitcast<u32>(x) & INFINITY) == INFINITY) {
            atomicMin(&bad, i);
        }
        let key = order(x);
        if (key > best.x) {
            best = vec2(key, i);
        }
    }
    lanes[lane] = best;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let own = lanes[lane];
            let other = lanes[lane + half];
            if (other.x > own.x || (other.x == own.x && other.y < own.y)) {
                lanes[lane] = other;
            }
        }
    }
    workgroupBarrier();
    let first = lanes[0].y;
    let highest = value(lanes[0].x);
    var sum = 0.0;
    for (var i = lane; i < p.vocab; i += LANES) {
        sum += exp(logits[row + i] - highest);
    }
    let log_sum = log(lane_sum(lane, sum));

    let temperature = bitcast<f32>(choices[8u * r]);
    let top_k = choices[8u * r + 1u];
    let top_p = choices[8u * r + 2u];
    let min_p = bitcast<f32>(choices[8u * r + 3u]);
    let draw = vec2(choices[8u * r + 4u], choices[8u * r + 5u]);
    var token = first;
    var mine = lane == 0u;
    if (choices[8u * r] != 0u) {
        var cut = 0u;
        if (top_k > 0u && top_k < p.vocab) {
            if (lane == 0u) {
                want = vec2(top_k, 0u);
            }
            cut = descend(lane, row, 0u, 0u, highest, temperature);
        }
        if (top_p > 0u) {
            cut = descend(lane, row, top_p, cut, highest, temperature);
            if (lane == 0u) {
                // The least number of tokens with the last key that reach what is wanted.
                let each = fixed(weight(value(cut), highest, temperature));
                var below = 0u;
                var enough = p.vocab;
                while (below + 1u < enough) {
                    let middle = (below + enough) / 2u;
                    if (less(add(above, times(each, middle)), want)) {
                        below = middle;
                    } else {
                        enough = middle;
                    }
                }
                ties = enough;
            }
        }
        let size = (p.vocab + LANES - 1u) / LANES;
        let begin = min(lane * size, p.vocab);
        let end = min(begin + size, p.vocab);
        // Tokens with the last key before the block of this lane.
        var equal = 0u;
        for (var i = begin; i < end; i++) {
            equal += select(0u, 1u, order(logits[row + i]) == cut);
        }
        lanes[lane].x = equal;
        workgroupBarrier();
        var rank = 0u;
        for (var other = 0u; other < lane; other++) {
            rank += lanes[other].x;
        }
        workgroupBarrier();
        let rank_before = rank;
        var kept = vec2(0u, 0u);
        for (var i = begin; i < end; i++) {
            let x = logits[row + i];
            let key = order(x);
            let w = weight(x, highest, temperature);
            if ((key > cut || (key == cut && rank < ties)) && w >= min_p) {
                kept = add(kept, fixed(w));
            }
            rank += select(0u, 1u, key == cut);
        }
        lanes[lane] = kept;
        workgroupBarrier();
        if (lane == 0u) {
            var total = vec2(0u, 0u);
            for (var other = 0u; other < LANES; other++) {
                total = add(total, lanes[other]);
            }
            want = upper(draw, total);
            var before = vec2(0u, 0u);
            var at = 0u;
            while (at + 1u < LANES && !less(want, add(before, lanes[at]))) {
                before = add(before, lanes[at]);
                at += 1u;
            }
            above = before;
            owner = at;
        }
        workgroupBarrier();
        mine = lane == owner;
        if (mine) {
            var before = above;
            rank = rank_before;
            for (var i = begin; i < end; i++) {
                let x = logits[row + i];
                let key = order(x);
                let w = weight(x, highest, temperature);
                if ((key > cut || (key == cut && rank < ties)) && w >= min_p) {
                    before = add(before, fixed(w));
                    if (less(want, before)) {
                        token = i;
                        break;
                    }
                }
                rank += select(0u, 1u, key == cut);
            }
        }
    }
    if (mine) {
        let found = atomicLoad(&bad);
        let logprob = bitcast<u32>(logits[row + min(token, p.vocab - 1u)] - highest - log_sum);
        out[2u * r] = select(token, NONE, found != NONE);
        out[2u * r + 1u] = select(logprob, found, found != NONE);
    }
}
