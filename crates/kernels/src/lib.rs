//! The kernels of Seam: one manifest, one Rust face per kernel, WGSL sources and CPU twins.
//!
//! A kernel is a [`Kernel`] entry of the [`manifest`]: its name, bindings with access, parameter struct, constants with
//! their legal values, its WGSL entry point and its *twin*, the same stage in safe Rust with the same bindings. The
//! `cpu` device executes the twins; every other device is tested against them. Nothing here touches a device.
//!
//! Rows of a pass are described by [`tables`], which all kernels read: see there for the layout.

#![forbid(unsafe_code)]

pub mod activation;
pub mod attention;
pub mod attention_mma;
pub mod blend;
pub mod chain;
pub mod chunk;
pub mod conv;
pub mod cuda;
pub mod elementwise;
pub mod embed;
pub mod experts;
pub mod gate;
pub mod gather;
pub mod gemm;
pub mod head_norm;
pub mod kv_write;
pub mod manifest;
pub mod mlstm;
pub mod norm;
pub mod rope;
pub mod router;
pub mod sample;
pub mod scan;
pub mod skip;
pub mod source;
pub mod tables;
pub mod tile;
pub mod twin;
pub mod weights;

pub use manifest::{Binding, Constant, Kernel, kernel, validate};
pub use twin::{Args, Slot};
