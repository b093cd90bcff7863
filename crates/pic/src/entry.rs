//! The host form of an entry. An [`EntryBlob`] exists only if every size, every shape and every value was checked.

mod error;
#[cfg(test)]
mod tests;

use std::ops::Range;

use seam_device::{DType, HostBytes};
use serde::{Deserialize, Serialize};

pub use error::EntryError;

use crate::key::{EntryKey, KeyParts, hex32};
use crate::policy::{Policy, Role, StorageForm};
use crate::section::{SECTION_ALIGN, Section, SectionKind, first_non_finite};

/// What an entry is and where its tensors lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryHeader {
    /// The entry's name: the hash of the fields below up to and with `tokens`.
    pub key: EntryKey,
    /// Version of the layout of the sections.
    pub layout_version: u32,
    /// Version of the kernels that computed the entry.
    pub kernel_version: u32,
    /// The activations' dtype.
    pub compute: DType,
    /// The dtype of keys and values.
    pub kv: DType,
    /// The model's fingerprint.
    #[serde(with = "hex32")]
    pub model: [u8; 32],
    /// What the entry is made for.
    pub policy: Policy,
    /// The segment's role.
    pub role: Role,
    /// Whose entry it is.
    pub tenant: String,
    /// The segment's token ids, all `L` of them.
    pub tokens: Vec<u32>,
    /// The layers that store something, by ascending layer number.
    pub layers: Vec<LayerHeader>,
}

/// The sections of one layer, in the order in which they lie in its block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerHeader {
    /// The layer's number in the model, from 0.
    pub layer: u32,
    /// Its sections, each kind at most once.
    pub sections: Vec<Section>,
}

impl LayerHeader {
    /// The length of the layer's block in bytes: its sections, each padded to [`SECTION_ALIGN`].
    ///
    /// # Errors
    /// [`EntryError::TooLarge`].
    pub fn block_bytes(&self) -> Result<u64, EntryError> {
        let mut end = 0;
        self.place(|_, _, padded| end = padded)?;
        Ok(end)
    }

    /// Where the section of `kind` lies in the layer's block, without padding.
    #[must_use]
    pub fn range(&self, kind: SectionKind) -> Option<Range<usize>> {
        let mut found = None;
        self.place(|section, range, _| {
            if section.kind == kind {
                found = Some(range);
            }
        })
        .ok()?;
        found
    }

    /// The section of `kind`.
    #[must_use]
    pub fn section(&self, kind: SectionKind) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    /// Puts a layer's block together from the bytes of its sections, given in the order of `sections`.
    ///
    /// # Errors
    /// [`EntryError::Count`], [`EntryError::PartLength`] and [`EntryError::TooLarge`]. Values are not looked at here:
    /// [`EntryBlob::new`] does that.
    pub fn pack(&self, parts: &[&[u8]]) -> Result<Vec<u8>, EntryError> {
        if parts.len() != self.sections.len() {
            return Err(EntryError::Count { what: "parts", found: parts.len(), expected: self.sections.len() });
        }
        let total = self.block_bytes()?;
        for (section, part) in self.sections.iter().zip(parts) {
            let expected = section.bytes().ok_or(EntryError::TooLarge(self.layer))?;
            if part.len() as u64 != expected {
                return Err(EntryError::PartLength {
                    layer: self.layer,
                    kind: section.kind,
                    found: part.len() as u64,
                    expected,
                });
            }
        }
        // The parts are in memory and the padding is small, so this capacity is no lie.
        let mut block = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
        for part in parts {
            block.extend_from_slice(part);
            block.resize(block.len().next_multiple_of(SECTION_ALIGN as usize), 0);
        }
        Ok(block)
    }

    /// Calls `each` with every section, its range, and the end of its padding.
    fn place(&self, mut each: impl FnMut(&Section, Range<usize>, u64)) -> Result<(), EntryError> {
        let too_large = || EntryError::TooLarge(self.layer);
        let mut start = 0u64;
        for section in &self.sections {
            let end = section.bytes().and_then(|bytes| start.checked_add(bytes)).ok_or_else(too_large)?;
            let padded = end
                .checked_next_multiple_of(SECTION_ALIGN)
                // A vector holds at most isize::MAX bytes.
                .filter(|&padded| isize::try_from(padded).is_ok())
                .ok_or_else(too_large)?;
            // Both fit, since `padded` does.
            let range =
                usize::try_from(start).map_err(|_| too_large())?..usize::try_from(end).map_err(|_| too_large())?;
            each(section, range, padded);
            start = padded;
        }
        Ok(())
    }

    /// Checks the length, the padding and the values of this layer's block.
    ///
    /// # Errors
    /// [`EntryError::BlockLength`], [`EntryError::Padding`], [`EntryError::NonFinite`], [`EntryError::TooLarge`].
    pub fn check_block(&self, block: &[u8]) -> Result<(), EntryError> {
        let expected = self.block_bytes()?;
        if block.len() as u64 != expected {
            return Err(EntryError::BlockLength { layer: self.layer, found: block.len() as u64, expected });
        }
        let mut result = Ok(());
        self.place(|section, range, padded| {
            if result.is_err() {
                return;
            }
            let gap = range.end..usize::try_from(padded).unwrap_or(usize::MAX);
            let bytes = block.get(range).unwrap_or_default();
            if let Some(index) = first_non_finite(section.dtype, bytes) {
                result = Err(EntryError::NonFinite { layer: self.layer, kind: section.kind, index });
            } else if block.get(gap).unwrap_or_default().iter().any(|&b| b != 0) {
                result = Err(EntryError::Padding(self.layer));
            }
        })?;
        result
    }
}

impl EntryHeader {
    /// A header for the entry of `parts`, its key computed.
    #[must_use]
    pub fn new(parts: &KeyParts<'_>, layers: Vec<LayerHeader>) -> Self {
        Self {
            key: parts.key(),
            layout_version: parts.layout_version,
            kernel_version: parts.kernel_version,
            compute: parts.compute,
            kv: parts.kv,
            model: parts.model,
            policy: parts.policy,
            role: parts.role,
            tenant: parts.tenant.to_owned(),
            tokens: parts.tokens.to_vec(),
            layers,
        }
    }

    /// What the entry's key is made from.
    #[must_use]
    pub fn key_parts(&self) -> KeyParts<'_> {
        KeyParts {
            model: self.model,
            layout_version: self.layout_version,
            kernel_version: self.kernel_version,
            compute: self.compute,
            kv: self.kv,
            policy: self.policy,
            role: self.role,
            tenant: &self.tenant,
            tokens: &self.tokens,
        }
    }

    /// Number of tokens whose keys and values are stored: `L − w`.
    #[must_use]
    pub fn stored_tokens(&self) -> u64 {
        (self.tokens.len() as u64).saturating_sub(u64::from(self.policy.seam))
    }

    /// Bytes of all blocks.
    ///
    /// # Errors
    /// [`EntryError::TooLarge`].
    pub fn block_bytes(&self) -> Result<u64, EntryError> {
        self.layers
            .iter()
            .try_fold(0u64, |sum, layer| sum.checked_add(layer.block_bytes()?).ok_or(EntryError::TooLarge(layer.layer)))
    }

    /// Checks everything a header can be wrong about: the key, the policy, layers, kinds, shapes and sizes.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(&self) -> Result<(), EntryError> {
        if self.tokens.is_empty() {
            return Err(EntryError::NoTokens);
        }
        if self.policy.for_role(self.role) != self.policy {
            return Err(EntryError::HeadPolicy(self.policy));
        }
        if !self.policy.stores(self.tokens.len()) {
            return Err(EntryError::TooShort { tokens: self.tokens.len(), seam: self.policy.seam });
        }
        let computed = self.key_parts().key();
        if computed != self.key {
            return Err(EntryError::Key { stated: self.key, computed });
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| self.layers.get(i));
            if before.is_some_and(|before| before.layer >= layer.layer) {
                return Err(EntryError::LayerOrder(layer.layer));
            }
            for (j, section) in layer.sections.iter().enumerate() {
                self.check_section(layer, j, section)?;
            }
        }
        self.block_bytes().map(drop)
    }

    fn check_section(&self, header: &LayerHeader, index: usize, section: &Section) -> Result<(), EntryError> {
        let (layer, kind) = (header.layer, section.kind);
        if header.sections.iter().take(index).any(|s| s.kind == kind) {
            return Err(EntryError::Duplicate { layer, kind });
        }
        let shape_error = |expected: String| EntryError::Shape { layer, kind, shape: section.shape.clone(), expected };
        if section.shape.len() != kind.rank() {
            return Err(shape_error(format!("{} dimensions", kind.rank())));
        }
        match kind {
            SectionKind::Keys | SectionKind::Values => {
                let n = self.stored_tokens();
                if section.shape.get(1) != Some(&n) {
                    return Err(shape_error(format!("[kv_heads, {n}, head_dim]")));
                }
                if section.dtype != self.kv {
                    return Err(EntryError::KvDtype { layer, kind, found: section.dtype, expected: self.kv });
                }
            }
            SectionKind::Transition | SectionKind::LogDecay | SectionKind::LogDecays
                if self.policy.form == StorageForm::EndState =>
            {
                return Err(EntryError::Transition(layer));
            }
            SectionKind::Transition if section.shape.get(1) != section.shape.get(2) => {
                return Err(shape_error("[HV, K, K]".to_owned()));
            }
            _ => {}
        }
        section.bytes().map(drop).ok_or(EntryError::TooLarge(layer))
    }
}

/// A whole entry in host memory: a checked header and one checked block for each of its layers.
#[derive(Clone, Debug)]
pub struct EntryBlob {
    header: EntryHeader,
    layers: Vec<HostBytes>,
}

impl EntryBlob {
    /// An entry of `header` with one block for each of its layers ([`LayerHeader::pack`]).
    ///
    /// # Errors
    /// Any [`EntryError`]; among them [`EntryError::NonFinite`], so that no such value can be stored.
    pub fn new(header: EntryHeader, layers: Vec<Vec<u8>>) -> Result<Self, EntryError> {
        header.validate()?;
        if layers.len() != header.layers.len() {
            return Err(EntryError::Count { what: "blocks", found: layers.len(), expected: header.layers.len() });
        }
        for (layer, block) in header.layers.iter().zip(&layers) {
            layer.check_block(block)?;
        }
        Ok(Self::from_checked(header, layers))
    }

    /// For callers that have validated the header and checked each block.
    pub(crate) fn from_checked(header: EntryHeader, layers: Vec<Vec<u8>>) -> Self {
        Self { header, layers: layers.into_iter().map(HostBytes::from_vec).collect() }
    }

    /// What the entry is.
    #[must_use]
    pub const fn header(&self) -> &EntryHeader {
        &self.header
    }

    /// The entry's name.
    #[must_use]
    pub const fn key(&self) -> EntryKey {
        self.header.key
    }

    /// The blocks, in the order of the header's layers.
    #[must_use]
    pub fn blocks(&self) -> &[HostBytes] {
        &self.layers
    }

    /// The bytes of one section of the model's layer number `layer`; `None` if the entry does not hold it.
    #[must_use]
    pub fn section(&self, layer: u32, kind: SectionKind) -> Option<&[u8]> {
        let (block, range) = self.locate(layer, kind)?;
        block.as_slice().get(range)
    }

    /// As [`EntryBlob::section`], sharing the memory.
    #[must_use]
    pub fn section_host(&self, layer: u32, kind: SectionKind) -> Option<HostBytes> {
        let (block, range) = self.locate(layer, kind)?;
        block.slice(range)
    }

    fn locate(&self, layer: u32, kind: SectionKind) -> Option<(&HostBytes, Range<usize>)> {
        let at = self.header.layers.binary_search_by_key(&layer, |header| header.layer).ok()?;
        let range = self.header.layers.get(at)?.range(kind)?;
        Some((self.layers.get(at)?, range))
    }

    /// Host memory the entry holds in bytes: its blocks, its token ids and its tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let header = &self.header;
        let tables: usize = header
            .layers
            .iter()
            .flat_map(|layer| &layer.sections)
            .map(|section| size_of::<Section>() + section.shape.len() * size_of::<u64>())
            .sum();
        let blocks: usize = self.layers.iter().map(HostBytes::len).sum();
        let layers = self.layers.len() * (size_of::<LayerHeader>() + size_of::<HostBytes>());
        let text = header.tenant.len() + header.tokens.len() * size_of::<u32>();
        (size_of::<Self>() + tables + blocks + layers + text) as u64
    }
}

impl PartialEq for EntryBlob {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
            && self.layers.len() == other.layers.len()
            && self.layers.iter().zip(&other.layers).all(|(a, b)| a.as_slice() == b.as_slice())
    }
}

impl Eq for EntryBlob {}
