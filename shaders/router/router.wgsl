// router: the k experts of each row, best first, and their weights.
//
// MODE 0: softmax over all experts, the k most probable. 1: the k largest logits, softmax over them. 2: sigmoid scores s;
// choice = s + bias, the `keep` groups with the largest sum of their two best choices, the k best choices in them;
// weights from s. With renormalise = 1 weights are divided by their sum; `scale` comes last.
//
// Layout    logits [rows, experts]; bias [experts] (MODE 2); index [rows, top] u32; weight [rows, top] f32.
// Grid      x = rows; one workgroup of 64 per row, its invocations stride over the experts.
// Workgroup memory: 8.9 KiB: a choice and its order for up to 1024 experts, up to 64 chosen ones, partial sums.
// Numbers   order is decided on words that sort as the numbers do, equal ones by index, so that every expert has a rank of
//           its own, whatever it is. Weights of a row are added best first.
// Why       an expert's rank is the number of those before it: E/64·E comparisons an invocation and two barriers, against
//           a tree of barriers for each of the k. E is a few hundred.
#include "shared/tables.wgsl"
#include "shared/math.wgsl"

struct Params {
    experts: u32,
    top: u32,
    groups: u32,
    keep: u32,
    renormalise: u32,
    scale: f32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> index: array<u32>;
@group(0) @binding(5) var<storage, read_write> weight: array<f32>;

const LANES: u32 = 64u;
const MOST_EXPERTS: u32 = 1024u;
const MOST_CHOSEN: u32 = 64u;
const LOWEST: f32 = -3.40282346e+38;
#include "shared/lane_sum.wgsl"

var<workgroup> choices: array<f32, MOST_EXPERTS>;
var<workgroup> keys: array<u32, MOST_EXPERTS>;
var<workgroup> groups: array<u32, MOST_CHOSEN>;
var<workgroup> chosen: array<u32, MOST_CHOSEN>;
var<workgroup> weights: array<f32, MOST_CHOSEN>;

// A word that orders as the number does, for every bit pattern; 0 and −0 are equal. The lowest word is left free.
fn order(x: f32) -> u32 {
    let word = bitcast<u32>(x);
    let bits = select(word, 0u, word == 0x80000000u);
    return max(select(bits | 0x80000000u, ~bits, bits >= 0x80000000u), 1u);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let r = group.x;
    if (r >= tables[ROWS]) {
        return;
    }
    let row = r * p.experts;
    for (var e = lane; e < p.experts; e += LANES) {
        var choice = logits[row + e];
        if (MODE == 2u) {
            choice = sigmoid(choice) + bias[e];
        }
        choices[e] = choice;
        keys[e] = order(choice);
    }
    workgroupBarrier();
    if (MODE == 2u) {
        let size = p.experts / p.groups;
        if (lane < p.groups) {
            var first = LOWEST;
            var second = LOWEST;
            for (var e = lane * size; e < lane * size + size; e++) {
                let choice = choices[e];
                second = max(second, min(first, choice));
                first = max(first, choice);
            }
            groups[lane] = order(first + second);
        }
        workgroupBarrier();
        if (lane < p.groups) {
            var rank = 0u;
            for (var g = 0u; g < p.groups; g++) {
                let before = groups[g] > groups[lane] || (groups[g] == groups[lane] && g < lane);
                rank += select(0u, 1u, before);
            }
            if (rank >= p.keep) {
                for (var e = lane * size; e < lane * size + size; e++) {
                    keys[e] = 0u;
                }
            }
        }
        workgroupBarrier();
    }
    for (var e = lane; e < p.experts; e += LANES) {
        let key = keys[e];
        var rank = 0u;
        for (var other = 0u; other < p.experts; other++) {
            let before = keys[other] > key || (keys[other] == key && other < e);
            rank += select(0u, 1u, before);
        }
        if (rank < p.top) {
            chosen[rank] = e;
        }
    }
    workgroupBarrier();
    let largest = logits[row + chosen[0]];
    if (lane < p.top) {
        let x = logits[row + chosen[lane]];
        if (MODE == 2u) {
            weights[lane] = sigmoid(x);
        } else {
            weights[lane] = exp(x - largest);
        }
    }
    // Of all experts, for a softmax whose chosen part is not renormalised.
    var all = 0.0;
    if (MODE == 0u) {
        for (var e = lane; e < p.experts; e += LANES) {
            all += exp(choices[e] - largest);
        }
        all = lane_sum(lane, all);
    } else {
        workgroupBarrier();
    }
    var total = 0.0;
    for (var i = 0u; i < p.top; i++) {
        total += weights[i];
    }
    if (MODE == 0u) {
        total = select(all, total, p.renormalise == 1u);
    } else if (MODE == 2u) {
        total = select(1.0, total + 1e-20, p.renormalise == 1u);
    }
    if (lane < p.top) {
        index[r * p.top + lane] = chosen[lane];
        weight[r * p.top + lane] = weights[lane] / total * p.scale;
    }
}
