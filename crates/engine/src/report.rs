//! What an engine says of a request.

use std::time::Duration;

use seam_pic::{Role, Tier};
use serde::Serialize;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// A stop token.
    Token,
    /// The limit of new tokens.
    Length,
}

/// What became of one segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// Its index in the prompt.
    pub index: usize,
    /// Head or interior; `None` for the query.
    pub role: Option<Role>,
    /// Its tokens.
    pub tokens: usize,
    /// Tokens whose stored keys and operator were used.
    pub reused: usize,
    /// Tokens computed within the request's prompt: seam, or everything.
    pub computed: usize,
    /// The tier that had the entry; `None` for a miss.
    pub hit: Option<Tier>,
    /// Name of the miss (stable, for metrics); `None` for a hit.
    pub miss: Option<&'static str>,
    /// The miss in words.
    pub why: Option<String>,
    /// Bytes of the entry on the device; 0 without one.
    pub bytes: u64,
}

/// What a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Rows computed alone to build entries.
    pub cold_rows: u64,
    /// Rows of the prompt that were computed: seams, segments without an entry, and the query.
    pub prompt_rows: u64,
    /// Tokens of the prompt that came from entries.
    pub reused_tokens: u64,
    /// Bytes of entries that moved to the device.
    pub uploaded_bytes: u64,
    /// Passes.
    pub passes: u64,
    /// Bytes of tables written.
    pub table_bytes: u64,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Token ids, without the stop token.
    pub tokens: Vec<u32>,
    /// Log-probability of each, under the unmodified distribution.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub stop: Stop,
    /// Each segment.
    pub segments: Vec<SegmentReport>,
    /// From the start of the request to its first token.
    pub ttft: Duration,
    /// From the start of the request to its last token.
    pub total: Duration,
    /// What the prompt cost (decoding not counted).
    pub work: Work,
}
