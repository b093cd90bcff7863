// Functions that several kernels share. Each matches the function of the same name in the twins to a few ulp.

// 1/(1+e^-x). The argument of exp is never positive, so nothing overflows.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    let r = 1.0 / (1.0 + e);
    return select(e * r, r, x >= 0.0);
}

// x·sigmoid(x)
fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}

// ln(1+t) for 0 <= t <= 1, as 2·atanh(z) with z = t/(2+t) <= 1/3. log() is not used: drivers may take it from a table
// whose absolute error is small but whose relative error near 1 is a thousand ulp, and every slow decay lives there.
// The first term left out is z^17/17, below 2e-9 of the sum.
fn log1p_unit(t: f32) -> f32 {
    let z = t / (2.0 + t);
    let y = z * z;
    var s = 1.0 / 15.0;
    s = s * y + 1.0 / 13.0;
    s = s * y + 1.0 / 11.0;
    s = s * y + 1.0 / 9.0;
    s = s * y + 1.0 / 7.0;
    s = s * y + 1.0 / 5.0;
    s = s * y + 1.0 / 3.0;
    s = s * y + 1.0;
    return 2.0 * z * s;
}

// ln(1+e^x) = max(x, 0) + ln(1+e^-|x|): relative accuracy for every x, the identity for large ones.
fn softplus(x: f32) -> f32 {
    return max(x, 0.0) + log1p_unit(exp(-abs(x)));
}

// The two bf16 values of a word: exact, bf16 is the upper half of an f32.
fn bf16_low(word: u32) -> f32 {
    return bitcast<f32>(word << 16u);
}

fn bf16_high(word: u32) -> f32 {
    return bitcast<f32>(word & 0xffff0000u);
}
