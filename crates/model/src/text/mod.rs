//! Text on the host: the tokenizer, incremental decoding, and the segments of a prompt.

mod decode;
mod error;
pub mod segments;
mod tokenizer;

pub use decode::DecodeStream;
pub use error::TextError;
pub use segments::SegmentFormat;
pub use tokenizer::Tokenizer;
