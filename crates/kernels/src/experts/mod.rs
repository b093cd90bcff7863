//! Experts: which rows go to each, their products, and the weighted sum of a row's results.
//!
//! A *pair* is a row with one of the k experts that its router chose: pair `r·k + j` is the j-th of row r. Products and what
//! lies between them are rows of pairs, so only the products need to know which pairs share an expert.

mod combine;
mod product;
mod sort;

pub use combine::{CombineParams, EXPERT_COMBINE, SHARED_GATED, SHARED_NONE, SHARED_PLAIN};
pub use product::{EXPERT_FEW, EXPERT_TILES, FEW_PAIRS, ProductParams, TILE_PAIRS};
pub use sort::{EXPERT_SORT, SortParams, group_words, most_tiles};
