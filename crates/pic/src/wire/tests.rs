//! Tests of the wire form.

use super::*;
use crate::testing::{blob, header};

const TOKENS: [u32; 10] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];

fn encoded(entry: &EntryBlob) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(encode(entry, &mut bytes).unwrap(), bytes.len() as u64);
    assert_eq!(encoded_len(entry).unwrap(), bytes.len() as u64);
    bytes
}

fn read(bytes: &[u8], entry: &EntryBlob) -> Result<EntryBlob, Damage> {
    decode(bytes, &entry.key(), &entry.header().tokens)
}

/// The same bytes as a stream of unknown length that gives one byte at a time.
fn read_stream(bytes: &[u8]) -> Result<EntryBlob, ReadError> {
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(1);
            self.0.read(buf.get_mut(..n).unwrap_or_default())
        }
    }
    EntryReader::new(Drip(bytes), None)?.finish(Vec::new())
}

/// Rewrites the header's JSON and everything that depends on it, but not the blocks.
fn with_header(bytes: &[u8], change: impl FnOnce(String) -> String) -> Vec<u8> {
    let length = u32_at(bytes, 12) as usize;
    let json = change(String::from_utf8(bytes[16..16 + length].to_vec()).unwrap());
    let mut out = bytes[..12].to_vec();
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(json.as_bytes());
    let sum = blake3::hash(&out);
    out.extend_from_slice(sum.as_bytes());
    out.extend_from_slice(&bytes[16 + length + 32..]);
    out
}

#[test]
fn an_entry_survives_the_journey() {
    let entry = blob("tenant \u{e9}", &TOKENS);
    let bytes = encoded(&entry);
    assert_eq!(read(&bytes, &entry), Ok(entry.clone()));
    assert_eq!(read_stream(&bytes).unwrap(), entry);
    assert_eq!(encoded(&entry), bytes);
}

#[test]
fn an_entry_without_layers_is_an_entry() {
    let mut header = header("", &TOKENS);
    header.layers.clear();
    let entry = EntryBlob::new(header, Vec::new()).unwrap();
    assert_eq!(read(&encoded(&entry), &entry), Ok(entry));
}

#[test]
fn every_flipped_bit_is_found() {
    let entry = blob("t", &TOKENS);
    let bytes = encoded(&entry);
    for at in 0..bytes.len() {
        for mask in [1, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= mask;
            assert!(read(&bad, &entry).is_err(), "byte {at} xor {mask:#x}");
            assert!(read_stream(&bad).is_err(), "byte {at} xor {mask:#x}, streamed");
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let entry = blob("t", &TOKENS);
    let bytes = encoded(&entry);
    for length in 0..bytes.len() {
        let error = read(&bytes[..length], &entry).unwrap_err();
        assert!(matches!(error, Damage::Truncated { .. }), "{length}: {error}");
        let error = read_stream(&bytes[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Damage(Damage::Truncated { .. })), "{length}: {error}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(read(&longer, &entry), Err(Damage::Trailing));
}

#[test]
fn foreign_bytes_and_other_versions_are_told_apart() {
    let entry = blob("t", &TOKENS);
    let mut bytes = encoded(&entry);
    assert_eq!(read(b"PNG", &entry), Err(Damage::Magic));
    assert_eq!(read(&[0; 64], &entry), Err(Damage::Magic));
    bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
    assert_eq!(read(&bytes, &entry), Err(Damage::Version(2)));
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(read(&bytes, &entry), Err(Damage::HeaderLength(u32::MAX.into())));
    // The longest header a reader takes, but not there: nothing is reserved for it.
    bytes[12..16].copy_from_slice(&(MAX_HEADER as u32).to_le_bytes());
    assert!(matches!(read(&bytes, &entry), Err(Damage::Truncated { part: "the header", .. })));
    assert!(matches!(read_stream(&bytes), Err(ReadError::Damage(Damage::Truncated { part: "the header", .. }))));
}

#[test]
fn another_entry_is_not_taken_for_the_asked_one() {
    let (entry, other) = (blob("t", &TOKENS), blob("u", &TOKENS));
    let bytes = encoded(&entry);
    assert_eq!(read(&bytes, &other), Err(Damage::OtherKey { found: entry.key() }));
    assert_eq!(decode(&bytes, &entry.key(), &TOKENS[1..]), Err(Damage::TokensDiffer));
    // A renamed tenant with a valid checksum: the key no longer belongs to the fields.
    let forged = with_header(&bytes, |json| json.replace(r#""tenant":"t""#, r#""tenant":"u""#));
    assert!(matches!(read(&forged, &entry), Err(Damage::Entry(EntryError::Key { .. }))));
}

#[test]
fn a_lying_header_is_refused_before_memory_is_asked_for() {
    let entry = blob("t", &TOKENS);
    let bytes = encoded(&entry);
    let change = |from: &'static str, to: &'static str| {
        let bad = with_header(&bytes, |json| {
            assert!(json.contains(from), "{json}");
            json.replacen(from, to, 1)
        });
        (read(&bad, &entry).unwrap_err(), read_stream(&bad).unwrap_err())
    };
    // 2^42 bytes of state: stated by the header, not there.
    let (known, streamed) = change("[2,2,3]", "[1048576,1024,1024]");
    assert!(matches!(known, Damage::Truncated { .. }), "{known}");
    assert!(matches!(streamed, ReadError::Damage(Damage::BlockLength { layer: 1, .. })));
    let (known, _) = change("[2,2,3]", "[18446744073709551615,2,2]");
    assert_eq!(known, Damage::Entry(EntryError::TooLarge(1)));
    let (known, _) = change("[2,2,3]", "[2,2,-3]");
    assert!(matches!(known, Damage::Header(_)), "{known}");
    let (known, _) = change(r#""kind":3"#, r#""kind":99"#);
    assert!(known.to_string().contains("unknown section kind 99"), "{known}");
    let (known, _) = change(r#""layers":"#, r#""unknown":1,"layers":"#);
    assert!(matches!(known, Damage::Header(_)), "{known}");
    // Less than there is: the block is longer than the shape.
    let (known, _) = change("[2,2,3]", "[1,1,1]");
    assert!(matches!(known, Damage::BlockLength { layer: 1, .. }), "{known}");
    let deep = with_header(&bytes, |_| "[".repeat(100_000));
    assert!(matches!(read(&deep, &entry), Err(Damage::Header(_))));
}

#[test]
fn blocks_belong_to_their_header_and_place() {
    // Two entries of the same shapes: their blocks differ only in values and checksums.
    let (a, b) = (blob("t", &TOKENS), blob("u", &TOKENS));
    let (a_bytes, b_bytes) = (encoded(&a), encoded(&b));
    let rest = rest_bytes(a.header()).unwrap() as usize;
    let mut mixed = a_bytes[..a_bytes.len() - rest].to_vec();
    mixed.extend_from_slice(&b_bytes[b_bytes.len() - rest..]);
    assert_eq!(read(&mixed, &a), Err(Damage::BlockChecksum(1)));
}

#[test]
fn a_block_with_a_valid_checksum_and_a_nan_is_refused() {
    let entry = blob("t", &TOKENS);
    let bytes = encoded(&entry);
    let start = bytes.len() - rest_bytes(entry.header()).unwrap() as usize;
    let header_sum: [u8; 32] = bytes[start - 32..start].try_into().unwrap();
    let length = entry.blocks()[0].len();
    let mut bad = bytes.clone();
    bad[start + 8..start + 12].copy_from_slice(&f32::NAN.to_le_bytes());
    let sum = block_sum(&header_sum, 0, &bad[start + 8..start + 8 + length]);
    bad[start + 8 + length..start + 40 + length].copy_from_slice(&sum);
    assert!(matches!(read(&bad, &entry), Err(Damage::Entry(EntryError::NonFinite { layer: 1, index: 0, .. }))));
}

#[test]
fn the_first_layer_can_be_used_before_the_second_has_arrived() {
    let entry = blob("t", &TOKENS);
    let bytes = encoded(&entry);
    let last = 40 + entry.blocks()[1].len();
    let mut reader = EntryReader::new(&bytes[..bytes.len() - last], None).unwrap();
    reader.expect(&entry.key(), &TOKENS).unwrap();
    let first = reader.next().unwrap().unwrap();
    assert_eq!(first.index, 0);
    assert_eq!(first.block, entry.blocks()[0].as_slice());
    assert!(matches!(reader.next(), Some(Err(ReadError::Damage(Damage::Truncated { .. })))));
    assert!(reader.next().is_none());
    assert!(reader.finish(vec![first.block]).is_err());
    // Layers taken one by one can be put back together.
    let mut reader = EntryReader::new(&bytes[..], None).unwrap();
    let first = reader.next_layer().unwrap().unwrap().block;
    assert_eq!(reader.finish(vec![first]).unwrap(), entry);
}

#[test]
fn a_reader_stops_at_the_end_of_its_entry() {
    let (a, b) = (blob("a", &TOKENS), blob("b", &TOKENS));
    let stream = [encoded(&a), encoded(&b)].concat();
    let mut rest = &stream[..];
    for entry in [&a, &b] {
        let blocks: Vec<_> = EntryReader::new(&mut rest, None).unwrap().map(|layer| layer.unwrap().block).collect();
        assert_eq!(EntryBlob::new(entry.header().clone(), blocks).as_ref(), Ok(entry));
    }
    assert!(rest.is_empty());
}

#[test]
fn a_writer_takes_exactly_the_layers_of_its_header() {
    let entry = blob("t", &TOKENS);
    let blocks: Vec<&[u8]> = entry.blocks().iter().map(|b| b.as_slice()).collect();
    let mut writer = EntryWriter::new(Vec::new(), entry.header().clone()).unwrap();
    assert!(matches!(writer.layer(blocks[1]), Err(WriteError::Entry(_))));
    writer.layer(blocks[0]).unwrap();
    assert!(matches!(
        EntryWriter::new(Vec::new(), entry.header().clone()).unwrap().finish(),
        Err(WriteError::LayerCount { found: 0, expected: 2 })
    ));
    writer.layer(blocks[1]).unwrap();
    assert!(matches!(writer.layer(blocks[1]), Err(WriteError::LayerCount { found: 3, .. })));
    assert_eq!(writer.finish().unwrap().0, encoded(&entry));
}

#[test]
fn failures_of_input_and_output_keep_their_cause() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let entry = blob("t", &TOKENS);
    assert!(matches!(
        EntryReader::new(Broken, None),
        Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::TimedOut
    ));
    assert!(matches!(
        encode(&entry, Broken),
        Err(WriteError::Io(e)) if e.kind() == io::ErrorKind::StorageFull
    ));
}
