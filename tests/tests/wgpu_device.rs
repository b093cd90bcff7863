//! The wgpu device: every kernel against its twin, and the contract of the backend with its errors.
//!
//! Without an adapter the tests print a line and pass, unless SEAM_REQUIRE names wgpu.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

#[path = "wgpu_device/attention.rs"]
mod attention;
#[path = "wgpu_device/chain.rs"]
mod chain;
#[path = "wgpu_device/chunk.rs"]
mod chunk;
#[path = "wgpu_device/contract.rs"]
mod contract;
#[path = "wgpu_device/experts.rs"]
mod experts;
#[path = "wgpu_device/harness.rs"]
mod harness;
#[path = "wgpu_device/kernels.rs"]
mod kernels;
#[path = "wgpu_device/rows.rs"]
mod rows;
