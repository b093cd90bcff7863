//! The roofline of Williams, Waterman and Patterson ("Roofline: an insightful visual performance model", 2009): a kernel takes
//! at least the time of its bytes at the bandwidth, and at least the time of its operations at the rate of products.

use serde::Serialize;

/// Two ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Floating-point operations a second.
    pub flops_per_s: f64,
}

/// What a kernel reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Achieved {
    /// Least bytes moved, over the time, in 1e9 bytes a second.
    pub gb_per_s: f64,
    /// Operations, over the time, in 1e12 a second.
    pub tflop_per_s: f64,
    /// Operations a byte.
    pub intensity: f64,
    /// The time at the ceilings, in seconds: `max(bytes / bandwidth, flops / rate)`.
    pub roofline_seconds: f64,
    /// The time over that at the ceilings. Below 1 the data stayed in a cache, which that of the copy does not.
    pub ratio: f64,
}

impl Roofline {
    /// The least time of so many bytes and operations, in seconds; 0 where a ceiling is missing.
    #[must_use]
    pub fn seconds(&self, bytes: u64, flops: u64) -> f64 {
        let at = |amount: u64, ceiling: f64| if ceiling > 0.0 { amount as f64 / ceiling } else { 0.0 };
        at(bytes, self.bytes_per_s).max(at(flops, self.flops_per_s))
    }

    /// Operations a byte from which on products bound a kernel; 0 where a ceiling is missing.
    #[must_use]
    pub fn ridge(&self) -> f64 {
        if self.bytes_per_s > 0.0 { self.flops_per_s / self.bytes_per_s } else { 0.0 }
    }

    /// What a kernel that took `seconds` reached; `None` if it took no time.
    #[must_use]
    pub fn achieved(&self, bytes: u64, flops: u64, seconds: f64) -> Option<Achieved> {
        let roofline_seconds = self.seconds(bytes, flops);
        (seconds > 0.0).then(|| Achieved {
            gb_per_s: bytes as f64 / seconds / 1e9,
            tflop_per_s: flops as f64 / seconds / 1e12,
            intensity: flops as f64 / bytes.max(1) as f64,
            roofline_seconds,
            ratio: if roofline_seconds > 0.0 { seconds / roofline_seconds } else { 0.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOF: Roofline = Roofline { bytes_per_s: 4e12, flops_per_s: 8e14 };

    #[test]
    fn the_longer_of_two_times_counts() {
        assert_eq!(ROOF.ridge(), 200.0);
        // 4 GB take 1 ms, 8e11 operations as long.
        assert_eq!(ROOF.seconds(4_000_000_000, 0), 1e-3);
        assert_eq!(ROOF.seconds(4_000_000_000, 1_600_000_000_000), 2e-3);
        assert_eq!(ROOF.seconds(8_000_000_000, 1_600_000_000_000), 2e-3);
        assert_eq!(Roofline { bytes_per_s: 0.0, flops_per_s: 0.0 }.seconds(1, 1), 0.0);
    }

    #[test]
    fn rates_and_ratio_by_hand() {
        let achieved = ROOF.achieved(2_000_000_000, 100_000_000_000, 1e-3).expect("it took time");
        assert_eq!((achieved.gb_per_s, achieved.tflop_per_s, achieved.intensity), (2000.0, 100.0, 50.0));
        assert_eq!((achieved.roofline_seconds, achieved.ratio), (5e-4, 2.0));
        assert_eq!(ROOF.achieved(1, 1, 0.0), None);
        let copied = ROOF.achieved(1000, 0, 1e-6).expect("it took time");
        assert!(copied.intensity == 0.0 && copied.ratio.is_finite());
    }
}
