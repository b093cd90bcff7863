//! A prepared bench: something that runs, what it costs at least, and what must come out.

use std::time::Duration;

use seam_conformance::Check;

use crate::error::BenchError;

/// What one run must at least do; `None` where that says nothing about the bench.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes moved from and to device memory if nothing were read twice.
    pub bytes: Option<u64>,
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: Option<u64>,
    /// Tokens processed.
    pub tokens: Option<u64>,
}

/// The time of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// From the submission until the host knows that it is done.
    pub host: Duration,
    /// As the device measures it, where it does.
    pub device: Option<Duration>,
}

/// What can be run again and again.
pub(crate) trait Work {
    /// Runs once. What a run changes is put back before it, outside of the time.
    fn run(&mut self) -> Result<Sample, BenchError>;

    /// Runs once from results that were overwritten, and reads them.
    fn outputs(&mut self) -> Result<Vec<Vec<f32>>, BenchError>;
}

/// Compares outputs with a reference that shares no code with what made them.
pub(crate) type Reference = Box<dyn Fn(&[Vec<f32>]) -> Result<Vec<Check>, BenchError>>;

/// The checks of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// One for each output, or part of one.
    pub checks: Vec<Check>,
}

impl Verdict {
    /// Whether something was compared and all of it is within its bound.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(Check::passed)
    }

    /// The check that uses the largest share of its bound.
    #[must_use]
    pub fn worst(&self) -> Option<&Check> {
        let share = |c: &Check| if c.error == 0.0 { 0.0 } else { c.error / c.bound };
        self.checks.iter().max_by(|a, b| share(a).total_cmp(&share(b)))
    }
}

/// A bench prepared on a device.
pub struct Case {
    pub(crate) name: &'static str,
    pub(crate) cost: Cost,
    /// Kernels that its list launches; empty for requests, which run whole models.
    pub(crate) kernels: Vec<&'static str>,
    pub(crate) work: Box<dyn Work>,
    pub(crate) reference: Reference,
}

impl Case {
    /// The name of its bench.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What one run must at least do.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Kernels of the manifest that its list launches, each once; empty for requests, which run whole models.
    #[must_use]
    pub fn kernels(&self) -> &[&'static str] {
        &self.kernels
    }

    /// Runs once.
    ///
    /// # Errors
    /// What the device or the engine says.
    pub fn run(&mut self) -> Result<Sample, BenchError> {
        self.work.run()
    }

    /// Runs once and returns all results. They were overwritten before, so that an earlier run cannot stand in.
    ///
    /// # Errors
    /// What the device or the engine says.
    pub fn outputs(&mut self) -> Result<Vec<Vec<f32>>, BenchError> {
        self.work.outputs()
    }

    /// Holds results against the reference.
    ///
    /// # Errors
    /// What the reference says; a difference is in the verdict.
    pub fn check(&self, outputs: &[Vec<f32>]) -> Result<Verdict, BenchError> {
        Ok(Verdict { checks: (self.reference)(outputs)? })
    }

    /// Runs once and checks the results.
    ///
    /// # Errors
    /// As [`Case::outputs`] and [`Case::check`].
    pub fn verify(&mut self) -> Result<Verdict, BenchError> {
        let outputs = self.outputs()?;
        self.check(&outputs)
    }
}
