//! The next token of each row that wanted logits.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{LOGITS, View};
use crate::twin::Args;

/// The token of a row whose logits are not all finite; in the place of its log-probability stands the first such token.
pub const BAD: u32 = u32::MAX;

/// The temperature that lower ones above 0 are raised to: it leaves nothing but the highest logits either way, and its
/// reciprocal is a number.
pub const LEAST_TEMPERATURE: f32 = 1e-30;

/// Parameters of [`SAMPLE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SampleParams {
    /// Logits of a row.
    pub vocab: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

/// How the token of a row is chosen: a record of the `choices` binding.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Choice {
    /// The logits' divisor; 0 takes the highest logit.
    pub temperature: f32,
    /// The most probable tokens that are kept, with those that tie with the last; 0 keeps all.
    pub top_k: u32,
    /// The part of the probability that is kept, in units of 2^-32; 0 keeps all.
    pub top_p: u32,
    /// Tokens less probable than the best one times this are dropped.
    pub min_p: f32,
    /// The random number, a fraction of 2^64: low word, high word.
    pub draw: [u32; 2],
    /// Zeros.
    pub pad: [u32; 2],
}

impl Choice {
    /// The highest logit, the first of equal ones.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 0, min_p: 0.0, draw: [0; 2], pad: [0; 2] };

    /// A draw: `top_p` in (0, 1] and `min_p` in [0, 1], `draw` as a fraction of 2^64. Temperature 0 is greedy.
    #[must_use]
    pub fn new(temperature: f32, top_k: u32, top_p: f32, min_p: f32, draw: u64) -> Self {
        if temperature <= 0.0 {
            return Self::GREEDY;
        }
        // Saturating, and exact for a number below 1 whose last bit is at least 2^-32.
        let part = if top_p < 1.0 { ((f64::from(top_p) * 4_294_967_296.0).ceil() as u32).max(1) } else { 0 };
        Self {
            temperature: temperature.max(LEAST_TEMPERATURE),
            top_k,
            top_p: part,
            min_p,
            draw: [draw as u32, (draw >> 32) as u32],
            pad: [0; 2],
        }
    }
}

/// Chooses a token a row and says its log-probability under the unmodified logits.
///
/// `logits` is `[rows, vocab]`, `choices` `[rows]` of [`Choice`], `out` `[rows, 2]`: token (u32) and log-probability (f32),
/// or [`BAD`] and the first token whose logit is not finite. A row is chosen from in the order of the transformers library:
/// temperature, top-k, top-p, min-p, draw.
///
/// Weights `exp((logit − highest)/temperature)` are counted in units of 2^-44, cut off, so that their sums are integers of
/// 64 bits: the same in any order. What is kept and chosen depends on a device by its exp alone. Grid: x = rows.
pub static SAMPLE: Kernel = Kernel {
    id: KernelId(31),
    name: "sample",
    wgsl: Some("sample/sample.wgsl"),
    cuda: Some("sample/sample.cu"),
    twin: Some(sample),
    bindings: &[Binding::read("tables"), Binding::read("logits"), Binding::read("choices"), Binding::write("out")],
    params: size_of::<SampleParams>(),
    workgroup: Workgroup::new(256, 5248),
    constants: &[],
};

/// A weight in units of 2^-44; exact but for what is below.
fn fixed(weight: f32) -> u64 {
    (f64::from(weight) * (1u64 << 44) as f64) as u64
}

fn sample(args: &mut Args<'_>) {
    let p: SampleParams = args.params();
    let (t, logits, choices) = (View(args.words(0)), args.floats(1), args.words(2));
    let out = args.take_words(3);
    let rows = out.par_chunks_exact_mut(2).take(t.header(LOGITS)).enumerate();
    rows.for_each(|(r, out)| {
        let logits = &logits[r * p.vocab as usize..][..p.vocab as usize];
        let choice: Choice = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&choices[8 * r..8 * r + 8]));
        let (token, second) = chosen(logits, &choice);
        (out[0], out[1]) = (token, second);
    });
}

/// Token and log-probability of one row, as words.
fn chosen(logits: &[f32], choice: &Choice) -> (u32, u32) {
    if let Some(at) = logits.iter().position(|x| !x.is_finite()) {
        return (BAD, at as u32);
    }
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    let highest = logits[best];
    let sum: f64 = logits.iter().map(|x| f64::from((x - highest).exp())).sum();
    let token = if choice.temperature > 0.0 { drawn(logits, highest, choice) } else { best };
    let logprob = f64::from(logits[token]) - f64::from(highest) - sum.ln();
    (token as u32, (logprob as f32).to_bits())
}

/// Sorts all where there are filters, which no other form does: the plainest one.
fn drawn(logits: &[f32], highest: f32, choice: &Choice) -> usize {
    let weight = |i: usize| ((logits[i] - highest) / choice.temperature).max(-120.0).exp().min(1.0);
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    if choice.top_k > 0 || choice.top_p > 0 {
        ranked.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(b)));
    }
    if choice.top_k > 0 && (choice.top_k as usize) < ranked.len() {
        let least = logits[ranked[choice.top_k as usize - 1]];
        ranked.retain(|&i| logits[i] >= least);
    }
    if choice.top_p > 0 {
        let total: u64 = ranked.iter().map(|&i| fixed(weight(i))).sum();
        let want = ((u128::from(total) * u128::from(choice.top_p)) >> 32) as u64;
        let mut sum = 0;
        let enough = ranked.iter().position(|&i| {
            sum += fixed(weight(i));
            sum >= want.max(1)
        });
        ranked.truncate(enough.map_or(ranked.len(), |last| last + 1));
    }
    ranked.retain(|&i| weight(i) >= choice.min_p);
    ranked.sort_unstable();
    let total: u64 = ranked.iter().map(|&i| fixed(weight(i))).sum();
    let draw = u64::from(choice.draw[1]) << 32 | u64::from(choice.draw[0]);
    let target = ((u128::from(draw) * u128::from(total)) >> 64) as u64;
    let mut sum = 0;
    let at = ranked.iter().position(|&i| {
        sum += fixed(weight(i));
        sum > target
    });
    at.and_then(|at| ranked.get(at)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 1 << 63;

    fn token(logits: &[f32], choice: Choice) -> u32 {
        chosen(logits, &choice).0
    }

    #[test]
    fn greedy_takes_the_first_of_the_highest() {
        assert_eq!(token(&[1.0, 3.0, 3.0, 2.0], Choice::GREEDY), 1);
        assert_eq!(token(&[-0.0, 0.0], Choice::GREEDY), 0);
        assert_eq!(Choice::new(0.0, 5, 0.5, 0.5, HALF), Choice::GREEDY);
        let (_, logprob) = chosen(&[0.0, 0.0], &Choice::GREEDY);
        assert!((f32::from_bits(logprob) + std::f32::consts::LN_2).abs() < 1e-7);
    }

    #[test]
    fn bad_logits_are_named() {
        assert_eq!(chosen(&[1.0, f32::NAN, f32::INFINITY], &Choice::GREEDY), (BAD, 1));
        assert_eq!(chosen(&[f32::NEG_INFINITY, 0.0], &Choice::new(1.0, 0, 1.0, 0.0, 0)), (BAD, 0));
    }

    #[test]
    fn filters_by_hand() {
        // Probabilities 1/2, 1/4, 1/8, 1/8 in this order of tokens: 2, 0, 1, 3.
        let logits = [0.25f32.ln(), 0.125f32.ln(), 0.5f32.ln(), 0.125f32.ln()];
        let drawn = |top_k, top_p, min_p, draw: f64| {
            token(&logits, Choice::new(1.0, top_k, top_p, min_p, (draw * (HALF as f64) * 2.0) as u64))
        };
        // All, by token id: 1/4, 3/8, 7/8, 1.
        assert_eq!([0.0, 0.24, 0.26, 0.38, 0.87, 0.88].map(|u| drawn(0, 1.0, 0.0, u)), [0, 0, 1, 2, 2, 3]);
        // Two of them: 1/3, 1.
        assert_eq!([0.32, 0.34, 0.99].map(|u| drawn(2, 1.0, 0.0, u)), [0, 2, 2]);
        // A third one comes with the one it ties with.
        assert_eq!([0.99, 0.3].map(|u| drawn(3, 1.0, 0.0, u)), [3, 1]);
        // Half of the probability is one token, 0.8 are three: of equal ones that with the smaller id.
        assert_eq!([0.0, 0.99].map(|u| drawn(0, 0.499, 0.0, u)), [2, 2]);
        assert_eq!([0.99, 0.3].map(|u| drawn(0, 0.8, 0.0, u)), [2, 1]);
        // At least 0.4 of the best.
        assert_eq!([0.0, 0.99].map(|u| drawn(0, 1.0, 0.4, u)), [0, 2]);
        assert_eq!(drawn(0, 1.0, 1.0, 0.0), 2);
    }
}
