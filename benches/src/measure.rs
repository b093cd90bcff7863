//! Timing: warm-up, then samples, then their order statistics.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::case::{Case, Sample};
use crate::error::BenchError;

/// How a case is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Runs before the first sample at least, as far as the budget permits; one in any case. The first runs compile
    /// shaders and touch memory.
    pub warm_up: usize,
    /// The warm-up goes on for so long, so that clocks have risen.
    pub warm_up_time: Duration,
    /// Samples.
    pub samples: usize,
    /// Samples that are taken however long they last.
    pub least: usize,
    /// After this time of warm-up, and again of sampling, no further run begins.
    pub budget: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            warm_up: 2,
            warm_up_time: Duration::from_millis(100),
            samples: 50,
            least: 3,
            budget: Duration::from_secs(3),
        }
    }
}

/// Order statistics of times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The shortest.
    pub min: f64,
    /// A quarter is at most this long.
    pub lower: f64,
    /// Half are at most this long.
    pub median: f64,
    /// Three quarters are at most this long.
    pub upper: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// Of some times; `None` of none. Between two times quantiles are interpolated.
    #[must_use]
    pub fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let quantile = |share: f64| {
            let at = share * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
            low + (high - low) * at.fract()
        };
        Some(Self { min, lower: quantile(0.25), median: quantile(0.5), upper: quantile(0.75), max })
    }

    /// The times of one of `n` equal parts.
    #[must_use]
    pub fn over(&self, n: usize) -> Self {
        let part = |time: f64| time / n.max(1) as f64;
        let Self { min, lower, median, upper, max } = *self;
        Self { min: part(min), lower: part(lower), median: part(median), upper: part(upper), max: part(max) }
    }
}

/// The times of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Number of samples.
    pub samples: usize,
    /// From submission to completion, as the host sees it.
    pub host: Spread,
    /// As the device measures it, where it does so for every sample.
    pub device: Option<Spread>,
}

impl Timing {
    /// The median that says most about kernels: of the device where there is one.
    #[must_use]
    pub fn kernel_time(&self) -> f64 {
        self.device.unwrap_or(self.host).median
    }
}

/// Times a case. Times never decide whether anything passes.
///
/// # Errors
/// What a run says.
pub fn measure(case: &mut Case, plan: &Plan) -> Result<Timing, BenchError> {
    let start = Instant::now();
    case.run()?;
    let mut runs = 1;
    while (runs < plan.warm_up && start.elapsed() < plan.budget) || start.elapsed() < plan.warm_up_time {
        case.run()?;
        runs += 1;
    }
    let start = Instant::now();
    let mut samples: Vec<Sample> = vec![case.run()?];
    while samples.len() < plan.samples && (samples.len() < plan.least || start.elapsed() < plan.budget) {
        samples.push(case.run()?);
    }
    Ok(summary(&samples))
}

fn summary(samples: &[Sample]) -> Timing {
    let host: Vec<Duration> = samples.iter().map(|s| s.host).collect();
    let device: Option<Vec<Duration>> = samples.iter().map(|s| s.device).collect();
    let nothing = Spread { min: 0.0, lower: 0.0, median: 0.0, upper: 0.0, max: 0.0 };
    Timing {
        samples: samples.len(),
        host: Spread::of(&host).unwrap_or(nothing),
        device: device.and_then(|times| Spread::of(&times)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|&s| Duration::from_secs(s)).collect()
    }

    #[test]
    fn quartiles_by_hand() {
        let spread = Spread::of(&seconds(&[5, 1, 4, 2, 3])).expect("five times");
        assert_eq!(spread, Spread { min: 1.0, lower: 2.0, median: 3.0, upper: 4.0, max: 5.0 });
        let spread = Spread::of(&seconds(&[4, 1, 2, 3])).expect("four times");
        assert_eq!((spread.lower, spread.median, spread.upper), (1.75, 2.5, 3.25));
        let one = Spread::of(&seconds(&[7])).expect("one time");
        assert_eq!((one.min, one.median, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_device_time_that_is_missing_once_is_missing() {
        let sample = |device| Sample { host: Duration::from_secs(2), device };
        let second = Some(Duration::from_secs(1));
        assert_eq!(summary(&[sample(second), sample(second)]).kernel_time(), 1.0);
        let timing = summary(&[sample(second), sample(None)]);
        assert_eq!((timing.device, timing.kernel_time(), timing.samples), (None, 2.0, 2));
    }
}
