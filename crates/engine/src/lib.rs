//! Request life cycle: passes, batching, sampling, answers.
//!
//! A [`Runner`] is a model on a device with its memory; it runs passes over sequences. An [`Engine`] adds the cache:
//! it finds or computes the entries of a request's segments, splices them, and generates the answer.

#![forbid(unsafe_code)]

mod checked;
mod engine;
mod error;
pub mod quality;
mod report;
mod request;
mod runner;
pub mod sampling;
mod verify;

pub use engine::{Engine, EngineOptions};
pub use error::EngineError;
pub use report::{Answer, SegmentReport, Stop, Work};
pub use request::Request;
pub use runner::{Chosen, RunStats, Runner, RunnerOptions, Tap};
pub use verify::{Drift, LayerDrift};
