//! The disk form of an entry, which is also its wire form.
//!
//! ```text
//! magic            8 bytes   "SeamPIC\n"
//! format version   u32       FORMAT_VERSION
//! header length    u32       at most MAX_HEADER
//! header           JSON of `EntryHeader`
//! checksum         32 bytes  blake3 of everything before it
//! then for each layer of the header:
//!   block length   u64       what the header's shapes say
//!   block          the layer's sections, each padded to 16 bytes
//!   checksum       32 bytes  blake3, keyed with the header's checksum, of layer index (u64), block length, block
//! ```
//!
//! Numbers are little-endian. The header's checksum keys those of the blocks, so a block cannot be taken from another
//! entry or another layer. Checksums find damage; they are no signature. A reader takes one layer after the other, so
//! that the first can be used before the last has arrived, and it reserves memory only for bytes that it knows to be
//! there or, where it does not know, a mebibyte ahead.

mod error;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};

pub use error::{Damage, ReadError, WriteError};

use crate::entry::{EntryBlob, EntryError, EntryHeader, LayerHeader};
use crate::key::EntryKey;

/// The first bytes of every entry.
pub const MAGIC: [u8; 8] = *b"SeamPIC\n";

/// Version of this layout. [`EntryKey`] depends on it too.
pub const FORMAT_VERSION: u32 = 1;

/// The longest header in bytes: over a million tokens.
pub const MAX_HEADER: usize = 16 << 20;

/// The most memory reserved ahead of bytes that may never come.
const PIECE: usize = 1 << 20;

const PREFIX: usize = 16;
const CHECKSUM: usize = blake3::OUT_LEN;

/// Writes an entry layer by layer, so that a receiver can start before the last layer is computed.
#[derive(Debug)]
pub struct EntryWriter<W> {
    out: W,
    header: EntryHeader,
    header_sum: [u8; CHECKSUM],
    written: usize,
    bytes: u64,
}

impl<W: Write> EntryWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If the header is invalid or too long, or if `out` fails.
    pub fn new(mut out: W, header: EntryHeader) -> Result<Self, WriteError> {
        header.validate()?;
        let head = head_bytes(&header)?;
        let sum = *blake3::hash(&head).as_bytes();
        out.write_all(&head)?;
        out.write_all(&sum)?;
        Ok(Self { out, header, header_sum: sum, written: 0, bytes: (head.len() + CHECKSUM) as u64 })
    }

    /// Writes the block of the next layer.
    ///
    /// # Errors
    /// If the block is not one of that layer, if there is no further layer, or if the writer fails.
    pub fn layer(&mut self, block: &[u8]) -> Result<(), WriteError> {
        let layer = self.header.layers.get(self.written).ok_or(WriteError::LayerCount {
            found: self.written.saturating_add(1),
            expected: self.header.layers.len(),
        })?;
        layer.check_block(block)?;
        let length = block.len() as u64;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(block)?;
        self.out.write_all(&block_sum(&self.header_sum, self.written, block))?;
        self.bytes += 8 + length + CHECKSUM as u64;
        self.written += 1;
        Ok(())
    }

    /// Ends the entry; returns the writer and the number of bytes written to it. It is not flushed.
    ///
    /// # Errors
    /// [`WriteError::LayerCount`] if layers are missing.
    pub fn finish(self) -> Result<(W, u64), WriteError> {
        if self.written != self.header.layers.len() {
            return Err(WriteError::LayerCount { found: self.written, expected: self.header.layers.len() });
        }
        Ok((self.out, self.bytes))
    }
}

/// Prefix and header.
fn head_bytes(header: &EntryHeader) -> Result<Vec<u8>, WriteError> {
    let mut head = Vec::new();
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut head, header).map_err(io::Error::from)?;
    let length = head.len() - PREFIX;
    let stated =
        u32::try_from(length).ok().filter(|_| length <= MAX_HEADER).ok_or(WriteError::HeaderTooLong(length))?;
    if let Some(field) = head.get_mut(12..PREFIX) {
        field.copy_from_slice(&stated.to_le_bytes());
    }
    Ok(head)
}

fn block_sum(header_sum: &[u8; CHECKSUM], index: usize, block: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = blake3::Hasher::new_keyed(header_sum);
    hasher.update(&(index as u64).to_le_bytes());
    hasher.update(&(block.len() as u64).to_le_bytes());
    hasher.update(block);
    *hasher.finalize().as_bytes()
}

/// Writes a whole entry; returns the number of bytes.
///
/// # Errors
/// [`WriteError::Io`] and [`WriteError::HeaderTooLong`].
pub fn encode(entry: &EntryBlob, out: impl Write) -> Result<u64, WriteError> {
    let mut writer = EntryWriter::new(out, entry.header().clone())?;
    for block in entry.blocks() {
        writer.layer(block.as_slice())?;
    }
    writer.finish().map(|(_, bytes)| bytes)
}

/// The number of bytes [`encode`] writes.
///
/// # Errors
/// [`WriteError::HeaderTooLong`].
pub fn encoded_len(entry: &EntryBlob) -> Result<u64, WriteError> {
    let head = head_bytes(entry.header())?.len() + CHECKSUM;
    let blocks: usize = entry.blocks().iter().map(|block| 8 + block.len() + CHECKSUM).sum();
    Ok((head + blocks) as u64)
}

/// One layer of an entry as it comes from an [`EntryReader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBlock {
    /// Its index in the header's `layers`.
    pub index: usize,
    /// Its checked block.
    pub block: Vec<u8>,
}

/// Reads an entry layer by layer.
///
/// As an iterator it yields the layers in order and ends after the last one or after the first fault. It does not
/// read beyond the last layer, so that it can work on a connection that stays open.
#[derive(Debug)]
pub struct EntryReader<R> {
    input: R,
    left: Option<u64>,
    header: EntryHeader,
    header_sum: [u8; CHECKSUM],
    next: usize,
    failed: bool,
}

impl<R: Read> EntryReader<R> {
    /// Reads and checks the header. `limit` is the number of bytes `input` holds, if that is known: lengths that
    /// reach beyond it are then refused before anything is read.
    ///
    /// # Errors
    /// Any [`Damage`] of the header, or a failure of `input`.
    pub fn new(mut input: R, limit: Option<u64>) -> Result<Self, ReadError> {
        let mut head = Vec::new();
        input.by_ref().take(PREFIX as u64).read_to_end(&mut head)?;
        // A file that ends early but begins like an entry is a damaged entry; any other is not ours.
        let known = head.len().min(MAGIC.len());
        if head.get(..known) != MAGIC.get(..known) {
            return Err(Damage::Magic.into());
        }
        if head.len() < PREFIX {
            return Err(Damage::Truncated { missing: (PREFIX - head.len()) as u64, part: "the prefix" }.into());
        }
        let mut left = limit.map(|limit| limit.saturating_sub(PREFIX as u64));
        let version = u32_at(&head, 8);
        if version != FORMAT_VERSION {
            return Err(Damage::Version(version).into());
        }
        let length = u32_at(&head, 12);
        if length as usize > MAX_HEADER {
            return Err(Damage::HeaderLength(length.into()).into());
        }
        let json = take(&mut input, &mut left, length.into(), "the header")?;
        let stated = take(&mut input, &mut left, CHECKSUM as u64, "the header's checksum")?;
        head.extend_from_slice(&json);
        let sum = *blake3::hash(&head).as_bytes();
        if stated != sum {
            return Err(Damage::HeaderChecksum.into());
        }
        let header: EntryHeader = serde_json::from_slice(&json).map_err(|e| Damage::Header(e.to_string()))?;
        header.validate()?;
        if let Some(left) = left {
            let rest = rest_bytes(&header)?;
            if left < rest {
                return Err(Damage::Truncated { missing: rest - left, part: "the blocks" }.into());
            }
        }
        Ok(Self { input, left, header, header_sum: sum, next: 0, failed: false })
    }

    /// What the entry is. Its layers may not have arrived.
    #[must_use]
    pub const fn header(&self) -> &EntryHeader {
        &self.header
    }

    /// Checks that this is the entry `key` of the token ids `tokens`.
    ///
    /// # Errors
    /// [`Damage::OtherKey`], [`Damage::TokensDiffer`].
    pub fn expect(&self, key: &EntryKey, tokens: &[u32]) -> Result<(), Damage> {
        if self.header.key != *key {
            return Err(Damage::OtherKey { found: self.header.key });
        }
        if self.header.tokens != tokens {
            return Err(Damage::TokensDiffer);
        }
        Ok(())
    }

    /// The next layer; `None` after the last.
    ///
    /// # Errors
    /// Any [`Damage`] of that layer, or a failure of the input. Nothing can be read after an error.
    pub fn next_layer(&mut self) -> Result<Option<LayerBlock>, ReadError> {
        if self.failed {
            return Ok(None);
        }
        let result = self.read_layer();
        self.failed = result.is_err();
        result
    }

    fn read_layer(&mut self) -> Result<Option<LayerBlock>, ReadError> {
        let index = self.next;
        let Some(layer) = self.header.layers.get(index) else {
            return Ok(None);
        };
        let block = read_block(&mut self.input, &mut self.left, &self.header_sum, index, layer)?;
        self.next += 1;
        Ok(Some(LayerBlock { index, block }))
    }

    /// Reads the remaining layers and the end. `blocks` are those already taken from this reader, in order.
    ///
    /// # Errors
    /// Any [`Damage`], [`Damage::Trailing`] among them, or a failure of the input.
    pub fn finish(mut self, mut blocks: Vec<Vec<u8>>) -> Result<EntryBlob, ReadError> {
        if self.failed || blocks.len() != self.next {
            return Err(EntryError::Count { what: "blocks", found: blocks.len(), expected: self.next }.into());
        }
        // Blocks given back may have been changed.
        for (layer, block) in self.header.layers.iter().zip(&blocks) {
            layer.check_block(block)?;
        }
        while let Some(layer) = self.next_layer()? {
            blocks.push(layer.block);
        }
        let mut more = Vec::new();
        self.input.by_ref().take(1).read_to_end(&mut more)?;
        if !more.is_empty() {
            return Err(Damage::Trailing.into());
        }
        Ok(EntryBlob::from_checked(self.header, blocks))
    }
}

impl<R: Read> Iterator for EntryReader<R> {
    type Item = Result<LayerBlock, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_layer().transpose()
    }
}

/// Reads the entry `key` of `tokens` from `bytes`, which hold nothing else.
///
/// # Errors
/// The first damage found.
pub fn decode(bytes: &[u8], key: &EntryKey, tokens: &[u32]) -> Result<EntryBlob, Damage> {
    let length = bytes.len() as u64;
    // Reading from memory fails only when there is no memory to copy to.
    let damage = |error| match error {
        ReadError::Damage(damage) => damage,
        ReadError::Io(_) => Damage::Memory(length),
    };
    let reader = EntryReader::new(bytes, Some(length)).map_err(damage)?;
    reader.expect(key, tokens)?;
    reader.finish(Vec::new()).map_err(damage)
}

/// `length` bytes of `input`, of which it holds `left` if that is known.
fn take(input: &mut impl Read, left: &mut Option<u64>, length: u64, part: &'static str) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    if let Some(left) = left {
        if *left < length {
            let missing = length - *left;
            return Err(Damage::Truncated { missing, part }.into());
        }
        *left -= length;
        reserve(&mut bytes, length)?;
    }
    loop {
        let missing = length.saturating_sub(bytes.len() as u64);
        if missing == 0 {
            return Ok(bytes);
        }
        let piece = missing.min(PIECE as u64);
        reserve(&mut bytes, piece)?;
        if input.by_ref().take(piece).read_to_end(&mut bytes)? == 0 {
            return Err(Damage::Truncated { missing, part }.into());
        }
    }
}

fn reserve(bytes: &mut Vec<u8>, more: u64) -> Result<(), Damage> {
    usize::try_from(more).ok().and_then(|more| bytes.try_reserve(more).ok()).ok_or(Damage::Memory(more))
}

fn read_block(
    input: &mut impl Read,
    left: &mut Option<u64>,
    header_sum: &[u8; CHECKSUM],
    index: usize,
    layer: &LayerHeader,
) -> Result<Vec<u8>, ReadError> {
    let stated = take(input, left, 8, "a block's length")?;
    let found = stated.as_array().map_or(0, |b| u64::from_le_bytes(*b));
    let expected = layer.block_bytes()?;
    if found != expected {
        return Err(Damage::BlockLength { layer: layer.layer, found, expected }.into());
    }
    let block = take(input, left, expected, "a block")?;
    let sum = take(input, left, CHECKSUM as u64, "a block's checksum")?;
    if sum != block_sum(header_sum, index, &block) {
        return Err(Damage::BlockChecksum(layer.layer).into());
    }
    layer.check_block(&block)?;
    Ok(block)
}

/// Bytes after the header's checksum.
fn rest_bytes(header: &EntryHeader) -> Result<u64, EntryError> {
    let frames = (header.layers.len() as u64).saturating_mul(8 + CHECKSUM as u64);
    Ok(header.block_bytes()?.saturating_add(frames))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}
