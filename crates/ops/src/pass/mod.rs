//! The description of one pass: what the rows of the flat batch are.

mod builder;
mod chains;
mod shape;
mod tiles;

pub use builder::{PassBuilder, PassTables, RunSpec, SlabId, Source, SpanSpec};
pub use chains::{ChainSpec, Form, Step};
pub use shape::{AttentionLaunch, ChainLaunch, ConvLaunch, PassShape, TailLaunch, Tiles};
