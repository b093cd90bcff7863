//! Operations over the backend contract: tensors, weights, slabs of layers, and the tables of a pass.
//!
//! An operation is a struct of borrowed tensors with [`Operation::check`] (typed errors), [`Operation::plan`] (pure: it
//! needs capabilities, not a device) and [`Operation::record`]. Adding one touches no device crate. A pass is a flat
//! batch of rows of any number of requests; [`PassBuilder`] turns runs, spans and chains into the tables that the
//! kernels read.

#![forbid(unsafe_code)]

mod activation;
mod attention;
mod blend;
mod chain;
mod checked;
mod chunk;
mod conv;
mod embed;
mod error;
mod experts;
mod gate;
mod gather;
mod head_norm;
mod kv;
mod linear;
mod log_gate;
mod mlstm;
mod norm;
mod operation;
mod pass;
mod pool;
mod recurrence;
mod rope;
mod router;
mod sample;
mod skip;
mod tensor;
mod tile;
mod weight;

/// Header words of the tables of a pass that hold counts of rows.
pub mod header {
    pub use seam_kernels::tables::{LOGITS, ROWS};
}

pub use activation::{Activation, ActivationKind};
pub use attention::{PART_ROWS, Parts, SpanAttention, splits_keys};
pub use blend::Blend;
pub use chain::Chain;
pub use checked::{Checked, Finding, Scan, Test};
pub use chunk::{ChunkChain, ChunkPrepare, chunk_words};
pub use conv::{ConvSilu, ConvTail};
pub use embed::Embed;
pub use error::OpError;
pub use experts::{
    ExpertBytes, ExpertCombine, ExpertProduct, ExpertShard, ExpertSort, ExpertWeight, Grouping, Shared, expert_words,
};
pub use gate::{GdnGate, SigmoidGate, SwiGlu};
pub use gather::GatherRows;
pub use head_norm::HeadNorm;
pub use kv::{KeyNorm, KvWrite, kv_dtype};
pub use linear::Linear;
pub use log_gate::{GlaGate, KdaGate, MambaGate};
pub use mlstm::{Mlstm, MlstmChain};
pub use norm::{GatedRmsNorm, L2Norm, OutputGate, RmsNorm};
pub use operation::{Operation, record};
pub use pass::{
    AttentionLaunch, ChainLaunch, ChainSpec, ConvLaunch, Form, PassBuilder, PassShape, PassTables, RunSpec, SlabId,
    Source, SpanSpec, Step, TailLaunch, Tiles,
};
pub use pool::{LayerPool, PoolFull};
pub use recurrence::{Decay, Pairing, Recurrence, Rotation, Update};
pub use rope::Rope;
pub use router::{Router, Scoring};
pub use sample::Sample;
pub use seam_kernels::sample::{BAD as BAD_LOGITS, Choice};
pub use skip::Skip;
pub use tensor::Tensor;
pub use tile::{TileChain, TilePrepare, most_chunks, takes_tiles, tile_words};
pub use weight::{BlockScales, Shard, Weight};
