//! Why bytes are no entry, and why an entry became no bytes.

use std::io;

use super::{FORMAT_VERSION, MAX_HEADER};
use crate::entry::EntryError;
use crate::key::EntryKey;

/// Why bytes are not the entry they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The bytes end too early.
    #[error("it ends {missing} bytes early, in {part}")]
    Truncated {
        /// Bytes that are missing at least.
        missing: u64,
        /// What was being read.
        part: &'static str,
    },
    /// It does not begin like an entry.
    #[error("it does not begin like an entry")]
    Magic,
    /// Another format version.
    #[error("format version {0}, this program reads {FORMAT_VERSION}")]
    Version(u32),
    /// A header length that no writer makes.
    #[error("a header of {0} bytes, more than {MAX_HEADER}")]
    HeaderLength(u64),
    /// The header's bytes have changed.
    #[error("the header's checksum does not match")]
    HeaderChecksum,
    /// The header is not what this version writes.
    #[error("the header cannot be read: {0}")]
    Header(String),
    /// The header or a block contradicts itself.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// It is another entry.
    #[error("it is the entry {found}")]
    OtherKey {
        /// The key it has.
        found: EntryKey,
    },
    /// It has the asked key but other token ids.
    #[error("its token ids differ from the asked ones")]
    TokensDiffer,
    /// A block's stated length is not that of its sections.
    #[error("layer {layer}: a block of {found} bytes, the header says {expected}")]
    BlockLength {
        /// The layer's number.
        layer: u32,
        /// Length stated before the block.
        found: u64,
        /// Length by the header's shapes.
        expected: u64,
    },
    /// A block's bytes have changed.
    #[error("layer {0}: the checksum does not match")]
    BlockChecksum(u32),
    /// Bytes after the last block.
    #[error("there are bytes after its end")]
    Trailing,
    /// No memory for it.
    #[error("no memory for {0} bytes")]
    Memory(u64),
}

/// Why an entry could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes were read, and they are wrong.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The bytes could not be read.
    #[error("reading an entry: {0}")]
    Io(#[from] io::Error),
}

impl From<EntryError> for ReadError {
    fn from(error: EntryError) -> Self {
        Self::Damage(error.into())
    }
}

/// Why an entry could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The writer failed.
    #[error("writing an entry: {0}")]
    Io(#[from] io::Error),
    /// Not an entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The header is longer than any reader takes.
    #[error("the header takes {0} bytes, more than {MAX_HEADER}")]
    HeaderTooLong(usize),
    /// More layers were given than the header has, or fewer.
    #[error("{found} layers were written, the header tells of {expected}")]
    LayerCount {
        /// Layers written, with the refused one.
        found: usize,
        /// Layers of the header.
        expected: usize,
    },
}
