//! Errors of the engine.

use seam_device::DeviceError;
use seam_model::ModelError;
use seam_ops::{OpError, PoolFull};
use seam_pic::{DiskError, ResidentError};

use crate::sampling::SamplingError;

/// Why a request, or the engine, fails. The engine itself goes on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Loading or recording the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An operation.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No room for a request's state or keys.
    #[error(transparent)]
    Pool(#[from] PoolFull),
    /// An entry.
    #[error(transparent)]
    Entry(#[from] ResidentError),
    /// The cache directory.
    #[error("cache directory: {0}")]
    Cache(#[from] DiskError),
    /// Sampling.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A request without a query.
    #[error("the prompt is empty: {0}")]
    EmptyPrompt(&'static str),
    /// A token id that the model does not have.
    #[error("token id {token} at position {at} of segment {segment}: the vocabulary has {vocab} ids")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Its index in the segment.
        at: usize,
        /// The segment.
        segment: usize,
        /// Ids in the vocabulary.
        vocab: u32,
    },
    /// Prompt and answer do not fit the model's context.
    #[error("{prompt} prompt tokens and up to {answer} answer tokens pass the context limit of {limit}")]
    TooLong {
        /// Prompt tokens.
        prompt: usize,
        /// Answer tokens.
        answer: usize,
        /// The limit.
        limit: u32,
    },
    /// A logit that is NaN or infinite: the request fails and nothing of it is cached.
    #[error("the model computed a non-finite logit (row {row}, token id {token})")]
    NonFinite {
        /// Row among those that wanted logits.
        row: usize,
        /// Index of the first one.
        token: usize,
    },
}
