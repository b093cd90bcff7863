//! What an entry can be wrong about.

use seam_device::DType;

use crate::key::EntryKey;
use crate::policy::Policy;
use crate::section::SectionKind;

/// A header or block that describes no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// A segment without tokens has no entry.
    #[error("an entry needs at least one token")]
    NoTokens,
    /// Nothing is left to store after the seam.
    #[error("a segment of {tokens} tokens has nothing to store beyond a seam of {seam}")]
    TooShort {
        /// Tokens of the segment.
        tokens: usize,
        /// Seam width.
        seam: u32,
    },
    /// A head entry with a seam or an operator.
    #[error("a head entry has seam 0 and an end state, not: {0}")]
    HeadPolicy(Policy),
    /// The key is not the hash of the fields.
    #[error("the key {stated} is not that of the entry's fields, {computed}")]
    Key {
        /// The key in the header.
        stated: EntryKey,
        /// The key of the header's fields.
        computed: EntryKey,
    },
    /// Layers out of order or twice.
    #[error("layer {0} does not follow the layers before it")]
    LayerOrder(u32),
    /// A kind of section twice in one layer.
    #[error("layer {layer}: two sections of {kind}")]
    Duplicate {
        /// The layer.
        layer: u32,
        /// The kind.
        kind: SectionKind,
    },
    /// A shape that its kind cannot have.
    #[error("layer {layer}: {kind} of shape {shape:?}: expected {expected}")]
    Shape {
        /// The layer.
        layer: u32,
        /// The kind.
        kind: SectionKind,
        /// The shape found.
        shape: Vec<u64>,
        /// What it should have been.
        expected: String,
    },
    /// Keys or values of another dtype than the header's.
    #[error("layer {layer}: {kind} are {found}, the entry's keys and values are {expected}")]
    KvDtype {
        /// The layer.
        layer: u32,
        /// Keys or values.
        kind: SectionKind,
        /// The section's dtype.
        found: DType,
        /// The header's.
        expected: DType,
    },
    /// A transition in an entry that holds end states only.
    #[error("layer {0}: an end-state entry holds no transition")]
    Transition(u32),
    /// A size beyond what this machine can address.
    #[error("layer {0}: its sections are larger than the address space")]
    TooLarge(u32),
    /// Another number of blocks, or of a layer's parts, than the header tells.
    #[error("{found} {what}, the header tells of {expected}")]
    Count {
        /// `blocks` or `parts`.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many the header tells of.
        expected: usize,
    },
    /// A block whose length is not that of its sections.
    #[error("layer {layer}: a block of {found} bytes, its sections take {expected}")]
    BlockLength {
        /// The layer.
        layer: u32,
        /// Bytes of the block.
        found: u64,
        /// Bytes of its sections with padding.
        expected: u64,
    },
    /// A part whose length is not that of its section.
    #[error("layer {layer}: {found} bytes for {kind}, its shape takes {expected}")]
    PartLength {
        /// The layer.
        layer: u32,
        /// The section.
        kind: SectionKind,
        /// Bytes given.
        found: u64,
        /// Bytes its shape takes.
        expected: u64,
    },
    /// Something other than zeros between sections.
    #[error("layer {0}: the gaps between sections are not zero")]
    Padding(u32),
    /// A value that is infinite or not a number: never stored, never read.
    #[error("layer {layer}: element {index} of {kind} is not finite")]
    NonFinite {
        /// The layer.
        layer: u32,
        /// The section.
        kind: SectionKind,
        /// The element's index, row-major.
        index: usize,
    },
}
