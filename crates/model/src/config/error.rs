//! What can be wrong with a configuration.

use std::path::PathBuf;

/// A configuration that cannot be used, and the field that says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is far larger than any configuration.
    #[error("{} has {bytes} bytes, more than the {max} that a configuration may have", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// The text is not JSON.
    #[error("{file} is not valid JSON: {source}")]
    Json {
        /// Which of the two files.
        file: &'static str,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// A field that the family needs is absent or null.
    #[error("{field} is missing")]
    Missing {
        /// The path of the field.
        field: String,
    },
    /// A field has another JSON type.
    #[error("{field} must be {expected}, but is {found}")]
    WrongType {
        /// The path of the field.
        field: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A number outside its limits.
    #[error("{field} is {value}, but must be {allowed}: {why}")]
    OutOfRange {
        /// The path of the field.
        field: String,
        /// The value found.
        value: String,
        /// The values allowed.
        allowed: String,
        /// The reason for the limit.
        why: &'static str,
    },
    /// Two fields that exclude each other.
    #[error("the config contradicts itself: {what}")]
    Contradiction {
        /// The fields and their values.
        what: String,
    },
    /// A setting that is known but not implemented.
    #[error("{field} = {value} is not supported: {reason}")]
    Unsupported {
        /// The path of the field.
        field: String,
        /// The value found.
        value: String,
        /// What is missing, or what is supported instead.
        reason: String,
    },
    /// No entry of `architectures` is known.
    #[error("unknown architecture {found}; known are {known}")]
    UnknownArchitecture {
        /// The entries found.
        found: String,
        /// The names that are known and supported.
        known: String,
    },
}
