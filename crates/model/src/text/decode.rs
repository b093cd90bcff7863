//! Incremental decoding: text from tokens as they come, cut only between characters.

use super::tokenizer::Tokenizer;

/// Turns tokens into text one by one. The concatenation of all pieces is the text of all tokens.
///
/// A token may end inside a UTF-8 sequence; such bytes are held back until the sequence is complete or cannot become
/// valid any more. Byte-level tokenizers are decoded exactly, byte by byte. For the others, whose decoders look at
/// neighbouring tokens, the text of a short window of tokens is compared before and after.
///
/// An id that the tokenizer does not know gives U+FFFD, so that it is seen.
#[derive(Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// Bytes of an incomplete sequence, three at most.
    Bytes(Vec<u8>),
    Window(Window),
}

/// Tokens whose text may still change, after the tokens that the last piece came from.
#[derive(Debug, Default)]
struct Window {
    ids: Vec<u32>,
    /// How many of `ids` have been given out.
    read: usize,
}

/// Tokens that may be held back. An incomplete UTF-8 sequence takes three tokens at most; what is not complete after
/// that many is not going to be.
const MAX_HELD: usize = 8;

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        let mode = if tokenizer.is_byte_level() { Mode::Bytes(Vec::new()) } else { Mode::Window(Window::default()) };
        Self { tokenizer, skip_special, mode }
    }

    /// Takes the next token; gives the text that is complete now, never an empty one.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let Some(token) = self.tokenizer.token(id) else {
            let mut text = self.flush().unwrap_or_default();
            text.push(char::REPLACEMENT_CHARACTER);
            return Some(text);
        };
        if self.skip_special && self.tokenizer.is_special(id) {
            return None;
        }
        let text = match &mut self.mode {
            Mode::Bytes(held) => {
                push_bytes(held, &token);
                take_complete(held)
            }
            Mode::Window(window) => {
                window.ids.push(id);
                window.take(self.tokenizer, false)
            }
        };
        Some(text).filter(|t| !t.is_empty())
    }

    /// Ends the text: gives what was held back, with U+FFFD for an incomplete sequence. The stream can be used again.
    pub fn flush(&mut self) -> Option<String> {
        let text = match &mut self.mode {
            Mode::Bytes(held) => String::from_utf8_lossy(&std::mem::take(held)).into_owned(),
            Mode::Window(window) => {
                let text = window.take(self.tokenizer, true);
                *window = Window::default();
                text
            }
        };
        Some(text).filter(|t| !t.is_empty())
    }
}

/// Appends the bytes of a byte-level token. A token with a character outside the byte alphabet stands for itself.
fn push_bytes(held: &mut Vec<u8>, token: &str) {
    let start = held.len();
    for c in token.chars() {
        match byte_of(c) {
            Some(b) => held.push(b),
            None => {
                held.truncate(start);
                held.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// The byte that a character of a byte-level vocabulary stands for: printable Latin-1 characters stand for themselves,
/// the other 68 bytes, in rising order, for the characters from U+0100 (the alphabet of GPT-2's `bytes_to_unicode`).
fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        // 0x00..=0x20 is 33 bytes, 0x7f..=0xa0 is 34, and 0xad is the last one.
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Removes and gives the front part of `held` that later bytes cannot change; invalid sequences become U+FFFD, as
/// [`String::from_utf8_lossy`] would replace them.
fn take_complete(held: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = held.as_slice();
    let incomplete = loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                break 0;
            }
            Err(e) => {
                let (valid, after) = rest.split_at(e.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                match e.error_len() {
                    None => break after.len(),
                    Some(bad) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = after.get(bad..).unwrap_or_default();
                    }
                }
            }
        }
    };
    held.drain(..held.len() - incomplete);
    text
}

impl Window {
    /// The text of the tokens that have not been given out, if it is complete (or `force`).
    fn take(&mut self, tokenizer: &Tokenizer, force: bool) -> String {
        let force = force || self.ids.len() - self.read > MAX_HELD;
        let text_of = |ids: &[u32]| tokenizer.decode(ids, false).unwrap_or_default();
        let before = text_of(self.ids.get(..self.read).unwrap_or_default());
        let after = text_of(&self.ids);
        if after.ends_with(char::REPLACEMENT_CHARACTER) && !force {
            return String::new();
        }
        let Some(new) = after.strip_prefix(&before) else {
            // The new tokens changed earlier text, which cannot be taken back: wait, or give what differs.
            if !force {
                return String::new();
            }
            let same = before.char_indices().zip(after.chars()).find(|((_, a), b)| a != b);
            let at = same.map_or(before.len().min(after.len()), |((i, _), _)| i);
            let new = after.get(at..).unwrap_or_default().to_owned();
            self.advance();
            return new;
        };
        let new = new.to_owned();
        if !new.is_empty() || force {
            self.advance();
        }
        new
    }

    /// Keeps the tokens just given out as the context of the next ones.
    fn advance(&mut self) {
        self.ids.drain(..self.read);
        self.read = self.ids.len();
    }
}

#[cfg(test)]
mod tests;
