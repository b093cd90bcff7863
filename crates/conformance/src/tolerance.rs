//! Every tolerance, with its reason.

use seam_device::Precision;

/// A bound on the largest difference of a tensor from its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Absolute part.
    pub absolute: f64,
    /// Part relative to the reference tensor's largest magnitude.
    pub relative: f64,
}

impl Tolerance {
    const fn new(absolute: f64, relative: f64) -> Self {
        Self { absolute, relative }
    }

    /// The bound for a reference whose largest magnitude is `scale`.
    #[must_use]
    pub fn bound(&self, scale: f64) -> f64 {
        self.absolute + self.relative * scale
    }

    /// The bound of the same results where operands of products have a precision.
    #[must_use]
    pub fn in_precision(self, precision: Precision) -> Self {
        match precision {
            Precision::F32 => self,
            Precision::Bf16 => Self::new(self.absolute, self.relative.max(BF16.relative)),
        }
    }
}

/// Results of products whose operands are rounded to bf16, relative to what their f32 bound is relative to: roundings of at most
/// 2^-8 = 3.9e-3, at random, of which sums keep less. The best published kernels differ from each other by 5e-3.
pub const BF16: Tolerance = Tolerance::new(0.0, 6e-3);

/// Two devices in f32, each within 1e-5 of f64, relative to the largest value of the tensor.
pub const DEVICES: Tolerance = Tolerance::new(0.0, 2e-5);

/// Logits of a whole f32 stack against an f32 reference, at a spread of about 1: other summation orders in some fifty
/// products of depth 64 to 256 differ by about 3e-5 between independent implementations; 1e-4 is what is promised.
pub const LOGITS: Tolerance = Tolerance::new(1e-4, 0.0);

/// Residual streams of the same comparison. They are not normalised, so the bound grows with their magnitude.
pub const HIDDEN: Tolerance = Tolerance::new(5e-5, 2e-5);

/// Recurrent states, conv inputs, keys and values of the same comparison.
pub const STATE: Tolerance = Tolerance::new(5e-5, 2e-5);

/// No difference: values that are copied.
pub const EXACT: Tolerance = Tolerance::new(0.0, 0.0);

/// One rounding to f32, 2^-24 of every value: an operator that is uploaded and applied to `0 | I`.
pub const ROUNDED: Tolerance = Tolerance::new(0.0, 5.97e-8);

/// End states and S of a chain against f64, each head's Frobenius norm relative to `max(‖s0‖, ‖S‖)`: what is promised
/// for one layer in f32. A sequential recurrence reaches 6e-7 where exp is rounded well; the polynomial of a software
/// driver is low by 4e-8 near zero, which at slow decay adds up to 4e-6 over 130 tokens and to 1e-5 over 300.
pub const CHAIN_STATE: Tolerance = Tolerance::new(0.0, 1e-5);

/// Outputs of a chain, each row and head relative to `max(‖s0‖, ‖S‖)·‖q‖·scale`: some outputs nearly cancel, so their
/// own size says nothing. The bound is that of the state they are read from.
pub const CHAIN_OUTPUT: Tolerance = CHAIN_STATE;

/// T of an operator, each head relative to `max(1, ‖T‖)`. The same steps as the state's.
pub const CHAIN_TRANSITION: Tolerance = CHAIN_STATE;

/// `T·h + S` with T and S rounded to f32, each head relative to `max(‖s0‖, ‖S‖)`: sums of K = 8 to 128 products reach
/// 1.6e-7, in another order about as much.
pub const APPLIED: Tolerance = Tolerance::new(0.0, 5e-7);

/// `R·S` with S rounded to f32, each head relative to `‖S‖`: the rounding of S, of the cos and sin (made from f64 products),
/// of two products and a sum.
pub const MOVED: Tolerance = Tolerance::new(0.0, 3e-7);

/// States, S and T of chains in tiles on tensor cores, of q and k that are bf16, each head as for [`CHAIN_STATE`]: products of
/// numbers that keep 16 of their bits are off by 2^-16 each at most and at random, sums are f32. Measured 5e-6 for tokens that forget;
/// a delta rule whose keys repeat at β near 2 amplifies what is off by the inverse it solves with. 1e-4 is what is
/// promised for a chain of 64 segments.
pub const TILE_STATE: Tolerance = Tolerance::new(0.0, 1e-4);

/// Outputs of the same: products of bf16, whose roundings of 2^-8 at most leave 2.5e-3; the best published kernels differ from
/// each other by 5e-3.
pub const TILE_OUTPUT: Tolerance = Tolerance::new(0.0, 6e-3);

/// A norm, each group relative to its own size: sums of 16 squares (1e-7), a reciprocal root of 2 ulp (2.4e-7) and three
/// roundings.
pub const NORM: Tolerance = Tolerance::new(0.0, 6e-7);

/// A norm times `silu(z)`, each group relative to its own size: exp of |z| up to 12 may be off by 3 + 2|z| ulp, but z that
/// far from zero on the side where it counts makes small values.
pub const GATED_NORM: Tolerance = Tolerance::new(0.0, 2e-6);

/// g of the gated delta rule, value by value. It enters as e^g, so small ones count absolutely and large ones do not
/// count at all; its two factors are an exp of up to 2.8, 9 ulp, and a softplus.
pub const GATE_DECAY: Tolerance = Tolerance::new(2e-7, 2e-6);

/// beta, value by value, in 0..1: an exp whose error is largest where its weight is smallest, and a division.
pub const GATE_BETA: Tolerance = Tolerance::new(3e-7, 0.0);

/// The weight of a chosen expert, value by value: chosen logits lie within a few units of each other, and an exp of |x| up
/// to 5 may be off by 3 + 2|x| = 13 ulp (1.6e-6); a sum, a division and a product more.
pub const ROUTER_WEIGHT: Tolerance = Tolerance::new(0.0, 2e-6);

/// The log-probability of a token from its logit, the highest one and a sum over the vocabulary, value by value: sums of
/// some hundred terms a lane and a tree over lanes are off by 2e-6 at most, the logarithm of drivers by 2e-6 absolutely, and
/// the result is rounded.
pub const LOGPROB: Tolerance = Tolerance::new(5e-6, 3e-7);

/// A value added past a recurrence, value by value: one product and one sum of terms of order 1, which may cancel.
pub const SKIP: Tolerance = Tolerance::new(2e-7, 1e-7);

/// Decays that the host computes in f64: powers and products of a few factors.
pub const HOST: Tolerance = Tolerance::new(0.0, 1e-14);

/// `silu` of a convolution of 4 taps, value by value: the sum of terms of order 1 is off by up to 3e-7 however small it is.
pub const CONV: Tolerance = Tolerance::new(5e-7, 5e-7);

/// A rotated key, each head relative to its length: angles rounded once from f64, two products and a sum (2e-7), after a
/// norm whose factor is divided out.
pub const ROPE: Tolerance = Tolerance::new(0.0, 6e-7);

/// A product with bf16 weights, each row of the result relative to its own size: every partial sum is rounded, and sums
/// of k random terms of one sign and the other, added in order, are off by 3.4e-8·√(k/2): 1.5e-6 for k = 4096. Kernels
/// that keep several partial sums are nearer.
pub const PRODUCT: Tolerance = Tolerance::new(0.0, 4e-6);

/// Experts of a row (two products with SwiGLU between them, summed), relative to the row's size: each product as
/// [`PRODUCT`], the activation as [`ACTIVATION`].
pub const EXPERTS: Tolerance = Tolerance::new(0.0, 1.1e-5);

/// Attention over spans, each row and head relative to the weighted mean of `‖v‖`: its own size says nothing where the
/// values of many keys cancel. A logit is off by the rounding of its angles, 1e-7 of `scale·‖q‖·‖k‖` (up to 16 at the
/// sizes of the benches), and by an exp of a few ulp; over many keys both average out. Measured: 1e-7.
pub const ATTENTION: Tolerance = Tolerance::new(0.0, 1e-6);

/// Attention over spans of bf16 keys and values, inputs that bf16 holds exactly, each row and head relative to its output: the
/// rotated query is rounded to bf16 (2^-9 of each element, which moves a logit by about 1.1e-3 of its size), and so are
/// the weights (2^-9 each). Both average out over keys and elements, least where few keys count: 2e-3 to 5e-3 for heads
/// of 32 to 256 with logits of up to 5.
pub const ATTENTION_BF16: Tolerance = Tolerance::new(0.0, 6e-3);

/// Logits of a whole stack with bf16 operands against f32, relative to the largest logit: some fifty products in a row each
/// round their operands by up to 2^-8, at random about 2^-9, which adds up like a random walk to 1.4e-2; three times that.
pub const LOGITS_BF16: Tolerance = Tolerance::new(0.0, 4e-2);

/// A value times sigmoid, value by value: exp of |x| up to 8 may be off by 3 + 2|x| = 19 ulp (2.3e-6), which for negative
/// x is the error of the result; a division and two products more.
pub const ACTIVATION: Tolerance = Tolerance::new(0.0, 3e-6);

/// `a·f(x) + b·y` with factors of order 1, value by value: f(x) is off as [`ACTIVATION`], y by nothing; two products and a
/// sum of terms of up to 8 that may cancel, 2^-24 of each.
pub const BLEND: Tolerance = Tolerance::new(3e-6, 3e-6);

/// A key as it is written, each head relative to its length: a norm, then a rotation (see [`NORM`] and [`ROPE`]).
pub const KEYS: Tolerance = Tolerance::new(0.0, 1.2e-6);

/// The same rounded to bf16, which keeps 8 bits: each element by at most 2^-8 of itself, so the head by at most 2^-8 of its
/// length.
pub const KEYS_BF16: Tolerance = Tolerance::new(0.0, 3.91e-3);

/// The laws on a device in f32: 2e-5, the worst that a composed state of one layer may be off (see
/// [`seam_algebra::laws::Tolerances::F32`]). Batches bit-equal: every column of a chain is walked alone, whatever else is
/// in the pass.
pub const LAWS: seam_algebra::laws::Tolerances = seam_algebra::laws::Tolerances::F32;
