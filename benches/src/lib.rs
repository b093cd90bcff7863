//! The benches of Seam: one registry that is both timed and verified.
//!
//! **What it is.** A [`Bench`] of [`BENCHES`] names an operation or a request, knows its sizes at two scales, and
//! prepares a [`Case`] on any device: something that runs, what it must at least move and compute, and a reference that
//! its results are held against. [`measure()`] times a case, [`Report`] says how fast it was beside the ceilings of the same
//! run (a device copy and a product). The bench target `run` is the command line of this; the tests verify every case.
//!
//! [`kernels`] measures every kernel alone, at the sizes at which models launch it (`seam bench kernels`).
//!
//! **What it is not.** A benchmark is no test: no time decides whether anything passes. A wrong result is never timed.
//!
//! ```
//! use std::sync::Arc;
//! use seam_benches::{BENCHES, Plan, Scale, measure};
//! use seam_device::Device;
//!
//! let device: Arc<dyn Device> = seam_cpu::CpuDevice::open(Default::default());
//! let bench = BENCHES.iter().find(|b| b.name == "gemm/decode").expect("it is registered");
//! let mut case = bench.prepare(&device, Scale::Small)?;
//! assert!(case.verify()?.passed());
//! let timing = measure(&mut case, &Plan { samples: 3, ..Plan::default() })?;
//! assert_eq!(timing.samples, 3);
//! # Ok::<(), seam_benches::BenchError>(())
//! ```

#![forbid(unsafe_code)]

mod case;
mod cases;
mod error;
pub mod kernels;
mod lab;
pub mod measure;
mod random;
mod reference;
pub mod registry;
pub mod report;

pub use case::{Case, Cost, Sample, Verdict};
pub use error::BenchError;
pub use measure::{Plan, Spread, Timing, measure};
pub use registry::{BENCHES, Bench, Scale};
pub use report::{Report, Row, run};
