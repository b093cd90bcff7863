//! Tests across the crates, in one binary so that they link once.

mod bad_models;
mod bad_requests;
mod benches;
mod cli;
mod conformance;
mod contract;
mod goldens;
mod quality;
mod reuse;
mod splicing;
mod tidy;
mod tiers;
