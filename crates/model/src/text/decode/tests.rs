//! Streams: pieces add up to the whole text and never split a character.

use super::*;
use crate::testing::fixture;
use crate::text::tokenizer::tests::sentencepiece;

fn byte_level() -> Tokenizer {
    Tokenizer::from_dir(&fixture("tiny_qwen35")).unwrap()
}

fn byte_fallback() -> Tokenizer {
    Tokenizer::from_bytes(sentencepiece().to_string().as_bytes()).unwrap()
}

/// The pieces of a stream, the flushed rest last.
fn pieces(t: &Tokenizer, ids: &[u32]) -> Vec<Option<String>> {
    let mut stream = t.decode_stream(true);
    let mut out: Vec<_> = ids.iter().map(|&id| stream.push(id)).collect();
    out.push(stream.flush());
    out
}

fn joined(t: &Tokenizer, ids: &[u32]) -> String {
    pieces(t, ids).into_iter().flatten().collect()
}

#[test]
fn the_byte_alphabet_is_complete() {
    // Every byte has one character, and the fixture's vocabulary agrees for all 256 of them.
    let mut seen: Vec<_> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of('a'), byte_of('▁')), (Some(b' '), Some(b'\n'), Some(b'a'), None));
}

#[test]
fn characters_are_never_split() {
    for t in [byte_level(), byte_fallback()] {
        let text = "a🦀b日本 é";
        let ids = t.encode(text, false).unwrap();
        assert!(ids.len() > text.chars().count(), "the fixture must spell these characters in bytes");
        let pieces = pieces(&t, &ids);
        assert!(pieces.iter().flatten().all(|p| !p.is_empty() && !p.contains('\u{fffd}')), "{pieces:?}");
        assert!(pieces.iter().filter(|p| p.is_none()).count() > 3, "bytes of one character are held back");
        assert_eq!(pieces.into_iter().flatten().collect::<String>(), text);
    }
}

#[test]
fn byte_level_streams_equal_decoding_at_once_for_any_bytes() {
    let t = byte_level();
    let of = |byte: u8| (0..0x200).filter_map(char::from_u32).find(|&c| byte_of(c) == Some(byte)).unwrap();
    let id = |byte: u8| t.token_id(&of(byte).to_string());
    // A fixed walk over all bytes makes valid, invalid and cut sequences.
    let mut state = 1u32;
    let mut step = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    for _ in 0..500 {
        let ids: Vec<u32> = (0..12)
            .filter_map(|_| match step() >> 29 {
                0 | 1 => id(0x80 | (step() >> 26) as u8),
                2 => id(0xe0 | (step() >> 28) as u8),
                3 => id(0xf0 | (step() >> 29) as u8),
                4 => Some(step() >> 21),
                5 => id(0xc0 | (step() >> 27) as u8),
                6 => Some(3),
                _ => id((step() >> 25) as u8),
            })
            .collect();
        assert_eq!(joined(&t, &ids), t.decode(&ids, true).unwrap(), "{ids:?}");
    }
}

#[test]
fn cut_sequences_come_out_at_the_end() {
    for t in [byte_level(), byte_fallback()] {
        let mut ids = t.encode("a🦀", false).unwrap();
        ids.pop();
        let pieces = pieces(&t, &ids);
        let (last, rest) = pieces.split_last().unwrap();
        assert_eq!(rest.iter().flatten().map(String::as_str).collect::<String>(), "a");
        assert!(last.as_ref().is_some_and(|l| l.chars().all(|c| c == '\u{fffd}')), "{last:?}");
    }
}

#[test]
fn leading_spaces_of_later_pieces_stay() {
    let t = byte_fallback();
    let ids = t.encode("a a b a", false).unwrap();
    assert_eq!(joined(&t, &ids), "a a b a");
    // A stream that is used again starts a new text.
    let mut stream = t.decode_stream(true);
    assert_eq!(stream.push(t.token_id("▁a").unwrap()).as_deref(), Some("a"));
    assert_eq!(stream.push(t.token_id("▁a").unwrap()).as_deref(), Some(" a"));
    assert_eq!(stream.flush(), None);
    assert_eq!(stream.push(t.token_id("▁a").unwrap()).as_deref(), Some("a"));
}

#[test]
fn endless_bad_bytes_are_not_held_for_ever() {
    for t in [byte_level(), byte_fallback()] {
        let bad = t.token_id("<0xFF>").or_else(|| t.token_id("ÿ")).or_else(|| t.token_id("¿")).unwrap();
        let mut stream = t.decode_stream(true);
        let given: usize = (0..100).filter_map(|_| stream.push(bad)).map(|s| s.chars().count()).sum();
        assert!((100 - MAX_HELD - 1..=100).contains(&given), "{given}");
    }
}

#[test]
fn special_and_unknown_ids() {
    let t = byte_level();
    let mut stream = t.decode_stream(true);
    assert_eq!(stream.push(2), None);
    let mut shown = t.decode_stream(false);
    assert_eq!(shown.push(2).as_deref(), Some("<|seg|>"));
    for id in [2048, u32::MAX] {
        assert_eq!(stream.push(id).as_deref(), Some("\u{fffd}"));
    }
}
