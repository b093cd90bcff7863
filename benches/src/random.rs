//! Numbers from a fixed sequence, so that a case is the same on every device and in every run.

/// The generator of Steele, Lea and Flood ("SplitMix64", 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        (self.bits() % u64::from(n.max(1))) as u32
    }

    /// In `[low, high)`, with 24 random bits.
    pub(crate) fn real(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.bits() >> 40) as f32 / (1 << 24) as f32
    }

    /// `n` values in `[low, high)`.
    pub(crate) fn reals(&mut self, n: u32, low: f32, high: f32) -> Vec<f32> {
        (0..n).map(|_| self.real(low, high)).collect()
    }

    /// `n` values in `[-1, 1)`.
    pub(crate) fn signed(&mut self, n: u32) -> Vec<f32> {
        self.reals(n, -1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn values_are_spread_and_repeat() {
        let values = Random::new(7).signed(4096);
        assert_eq!(values, Random::new(7).signed(4096));
        assert_ne!(values, Random::new(8).signed(4096));
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        // The mean of 4096 such values has a standard deviation of 0.009.
        let mean = values.iter().sum::<f32>() / 4096.0;
        assert!(mean.abs() < 0.05, "{mean}");
    }
}
