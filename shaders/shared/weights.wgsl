// weights: four elements at a time of matrices of f32 (WEIGHT 0), bf16 (1) or FP8 (2).
//
// The file that includes this declares `w: array<vec2<u32>>`: a row of bf16 starts at a multiple of 8 bytes only, one of FP8
// at a multiple of 4.
#include "shared/math.wgsl"

// The four e4m3 numbers of a word, low byte first, without the scale of their block: exact. No number is expected.
fn e4m3(word: u32) -> vec4<f32> {
    let bytes = (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(0xffu);
    // Exponent and mantissa in their places of an f32, whose bias is larger by 120.
    let wide = bitcast<vec4<f32>>(((bytes & vec4(0x7fu)) << vec4(20u)) + vec4(0x3c000000u));
    // Exponent 0: what was made is 2^-7·(1 + m/8), what is meant is 2^-6·m/8.
    let magnitude = select(wide, 2.0 * wide - vec4(0.015625), (bytes & vec4(0x78u)) == vec4(0u));
    return select(magnitude, -magnitude, bytes >= vec4(0x80u));
}

// Elements 4·i .. 4·i + 3 of the weights.
fn weights(i: u32) -> vec4<f32> {
    if (WEIGHT == 1u) {
        let x = w[i];
        return vec4(bf16_low(x.x), bf16_high(x.x), bf16_low(x.y), bf16_high(x.y));
    } else if (WEIGHT == 2u) {
        let x = w[i / 2u];
        return e4m3(select(x.x, x.y, i % 2u == 1u));
    } else {
        return vec4(bitcast<vec2<f32>>(w[2u * i]), bitcast<vec2<f32>>(w[2u * i + 1u]));
    }
}
