//! Experts: their weights, which rows go to each, their products, and the weighted sum of a row's results.

mod combine;
mod product;
mod sort;
mod weight;

pub use combine::{ExpertCombine, Shared};
pub use product::ExpertProduct;
pub use sort::{ExpertSort, Grouping, expert_words};
pub use weight::{ExpertBytes, ExpertShard, ExpertWeight};
