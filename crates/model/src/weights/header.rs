//! The header of a safetensors file: parsed strictly, every lie named.
//!
//! Layout: 8 bytes little-endian length `n`, `n` bytes of JSON, then the data. The JSON maps a tensor name to its
//! dtype, shape and byte range in the data; the ranges must tile the data without holes, overlaps or a rest.
//!
//! The `safetensors` crate keeps the last of two equal names and does not say which tensor breaks a rule; so the
//! header is read here first, and the crate is asked afterwards as a second opinion.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::error::WeightsError;

/// The largest JSON part, the limit of the format's reference reader. It keeps a lying length from costing memory.
pub(super) const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the length field.
pub(super) const LENGTH_BYTES: usize = 8;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Byte range in the file (not in the data part).
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A verified header.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) metadata: BTreeMap<String, String>,
    /// Where the data begins in the file.
    pub(super) data_start: usize,
}

/// An entry as written.
#[derive(Deserialize)]
struct RawEntry {
    dtype: Dtype,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The JSON object with its names in file order, so that a repeated name is seen.
#[derive(Default)]
struct RawHeader {
    entries: Vec<(String, RawEntry)>,
    metadata: Option<BTreeMap<String, String>>,
    repeated: Option<String>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut out = RawHeader::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        let value = map.next_value().map_err(|e| de::Error::custom(format!("{name}: {e}")))?;
                        if out.metadata.replace(value).is_some() {
                            out.repeated.get_or_insert(name);
                        }
                    } else {
                        let value = map.next_value().map_err(|e| de::Error::custom(format!("tensor {name}: {e}")))?;
                        out.entries.push((name, value));
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Names)
    }
}

impl Header {
    /// Reads and verifies the header at the front of `bytes`, the whole file at `path`.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, WeightsError> {
        let header = |what: String| WeightsError::Header { path: path.to_owned(), what };
        let (json, data_start) = json_part(bytes).map_err(header)?;
        let raw: RawHeader = serde_json::from_slice(json).map_err(|e| header(format!("its header: {e}")))?;
        if let Some(name) = raw.repeated {
            return Err(header(format!("{name} appears twice")));
        }
        let data_len = bytes.len() - data_start;
        let mut ranges = Vec::with_capacity(raw.entries.len());
        let mut entries = BTreeMap::new();
        for (name, entry) in raw.entries {
            let (start, end) = entry.data_offsets;
            let checked = check_entry(&entry, data_len).map(|()| Entry {
                dtype: entry.dtype,
                shape: entry.shape,
                start: data_start + start,
                end: data_start + end,
            });
            let found = match checked {
                Ok(found) => found,
                Err(what) => return Err(WeightsError::Entry { path: path.to_owned(), tensor: name, what }),
            };
            ranges.push((start, end, name.clone()));
            if entries.insert(name.clone(), found).is_some() {
                let what = "the name appears twice".into();
                return Err(WeightsError::Entry { path: path.to_owned(), tensor: name, what });
            }
        }
        check_tiling(ranges, data_len, path)?;
        SafeTensors::read_metadata(bytes).map_err(|source| WeightsError::Refused { path: path.to_owned(), source })?;
        Ok(Self { entries, metadata: raw.metadata.unwrap_or_default(), data_start })
    }
}

/// The JSON part and where the data begins.
fn json_part(bytes: &[u8]) -> Result<(&[u8], usize), String> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!("it has {} bytes, fewer than its length field", bytes.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(format!("its header claims {length} bytes, more than the limit of {MAX_HEADER}"));
    }
    let json = usize::try_from(length).ok().and_then(|n| rest.get(..n));
    let Some(json) = json else {
        return Err(format!("its header claims {length} bytes, but only {} follow", rest.len()));
    };
    if json.first() != Some(&b'{') {
        return Err("its header does not begin with {".into());
    }
    Ok((json, LENGTH_BYTES + json.len()))
}

/// Shape, dtype and byte range of one tensor agree and lie inside the data.
fn check_entry(entry: &RawEntry, data_len: usize) -> Result<(), String> {
    let (start, end) = entry.data_offsets;
    if start > end {
        return Err(format!("its byte range {start}..{end} runs backwards"));
    }
    if end > data_len {
        return Err(format!("its byte range {start}..{end} reaches past the {data_len} bytes of data"));
    }
    let elements = entry.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bits = elements.and_then(|n| n.checked_mul(entry.dtype.bitsize()));
    match bits {
        Some(bits) if bits % 8 == 0 && bits / 8 == end - start => Ok(()),
        Some(bits) => Err(format!(
            "shape {:?} of {} takes {} bytes, but its byte range has {}",
            entry.shape,
            entry.dtype,
            bits.div_ceil(8),
            end - start
        )),
        None => Err(format!("shape {:?} of {} overflows", entry.shape, entry.dtype)),
    }
}

/// The byte ranges cover the data exactly once.
fn check_tiling(mut ranges: Vec<(usize, usize, String)>, data_len: usize, path: &Path) -> Result<(), WeightsError> {
    ranges.sort();
    let mut covered = 0;
    for (start, end, tensor) in ranges {
        if start != covered {
            let what = if start < covered {
                format!("its byte range {start}..{end} overlaps its neighbour, which ends at {covered}")
            } else {
                format!("a hole of {} bytes lies before its byte range {start}..{end}", start - covered)
            };
            return Err(WeightsError::Entry { path: path.to_owned(), tensor, what });
        }
        covered = end;
    }
    if covered != data_len {
        let what = format!("{} bytes follow the last tensor", data_len - covered);
        return Err(WeightsError::Header { path: path.to_owned(), what });
    }
    Ok(())
}
