//! What can be wrong with a tokenizer or a text.

use std::path::PathBuf;

/// A tokenizer that cannot be used, or a text or token that it cannot convert.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is no tokenizer.
    #[error("{origin} is not a sound tokenizer: {what}")]
    Broken {
        /// The file, or what stands for it.
        origin: String,
        /// What is wrong.
        what: String,
    },
    /// The tokenizer numbers tokens beyond the rows of the embedding.
    #[error("the tokenizer has token id {id}, but the model has {vocab} rows of embedding")]
    VocabTooSmall {
        /// The largest id.
        id: u32,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// A text cannot be cut into tokens.
    #[error("cannot tokenise a text of {bytes} bytes: {what}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// The reason.
        what: String,
    },
    /// User text would be read as a marker, and the tokenizer has no way to spell it otherwise.
    #[error("the text contains {marker:?}, which this tokenizer can only read as a marker")]
    MarkerInText {
        /// The marker.
        marker: String,
    },
    /// A token id that the tokenizer does not know.
    #[error("token id {id} is not in the tokenizer")]
    UnknownId {
        /// The id.
        id: u32,
    },
    /// Tokens cannot be turned into text.
    #[error("cannot decode {tokens} tokens: {what}")]
    Decode {
        /// How many tokens.
        tokens: usize,
        /// The reason.
        what: String,
    },
    /// A segment of a prompt has no tokens.
    #[error("segment {index} of the prompt has no tokens")]
    EmptySegment {
        /// Index in the list of texts: 0 the system text, then the documents, then the question.
        index: usize,
    },
}
