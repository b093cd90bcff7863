//! A small deterministic generator, so that a case is a seed and not an array.

/// SplitMix64 (Steele, Lea and Flood 2014): every seed is a good one, and the stream is the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * 2f64.powi(-53)
    }

    /// In `[low, high)`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Ten to a power in `[low, high)`.
    pub(crate) fn power(&mut self, low: f64, high: f64) -> f64 {
        10f64.powf(self.between(low, high))
    }

    /// In `0..=top`, spread by a fraction, so that it shrinks along with `top`.
    pub(crate) fn up_to(&mut self, top: usize) -> usize {
        ((self.unit() * (top as f64 + 1.0)) as usize).min(top)
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Mean 0, variance 1, bell-shaped: four uniforms added up, which needs no library function.
    pub(crate) fn normal(&mut self) -> f64 {
        let sum: f64 = (0..4).map(|_| self.unit()).sum();
        (sum - 2.0) * 3f64.sqrt()
    }

    /// `n` draws of [`Self::normal`], scaled to Euclidean norm 1.
    pub(crate) fn direction(&mut self, n: usize) -> Vec<f64> {
        let mut x: Vec<f64> = (0..n).map(|_| self.normal()).collect();
        normalise(&mut x);
        x
    }
}

/// Scales to norm 1; zeros stay zeros.
pub(crate) fn normalise(x: &mut [f64]) {
    let norm = crate::matrix::frobenius(x);
    if norm > 0.0 {
        x.iter_mut().for_each(|x| *x /= norm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_the_published_one() {
        // First outputs of SplitMix64 for the seed 1234567, as published with the algorithm's test vectors.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn moments_are_those_of_a_normal() {
        let mut rng = Rng::new(1);
        let x: Vec<f64> = (0..20_000).map(|_| rng.normal()).collect();
        let mean = x.iter().sum::<f64>() / 2e4;
        let variance = x.iter().map(|x| x * x).sum::<f64>() / 2e4;
        // Four standard errors: 4/√20000 and about the same for the variance.
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03);
    }
}
