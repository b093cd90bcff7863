//! Tests across the crates, in one binary so that they link once.

#![allow(clippy::print_stdout, reason = "measured errors and skipped devices are printed")]

mod attention;
mod bad_models;
mod bad_requests;
mod benches;
mod cli;
mod conformance;
mod contract;
mod cuda;
mod experts;
mod goldens;
mod kernel_bench;
mod lanes;
mod operations;
mod quality;
mod recurrences;
mod reuse;
mod sampling;
mod splicing;
mod tidy;
mod tiers;
mod tiles;
