//! The tokenizer of a checkpoint: `tokenizer.json`, read strictly.
//!
//! The format allows settings that would silently change a prompt: truncation, padding, dropout of merges, ids that
//! the file claims but does not get. The first three are switched off, the last is an error.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{DecoderWrapper, ModelWrapper};

use super::decode::DecodeStream;
use super::error::TextError;

/// A tokenizer. Encoding and decoding need no exclusive access.
pub struct Tokenizer {
    /// Reads markers in a text as text.
    literal: tokenizers::Tokenizer,
    /// The same, reading markers as markers; made when it is first asked for.
    parsing: OnceLock<tokenizers::Tokenizer>,
    /// Marker text to id, for the tokens flagged special.
    specials: BTreeMap<String, u32>,
    /// Ids that the tokenizer puts in front of a text by itself.
    prefix: Vec<u32>,
    max_id: u32,
}

/// The parts of `tokenizer.json` that are checked here.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json` in `dir`, and `add_bos_token` and `bos_token` of `tokenizer_config.json` where it exists.
    ///
    /// # Errors
    /// [`TextError::Read`] for a missing or unreadable file, [`TextError::Broken`] for one that is no tokenizer.
    pub fn from_dir(dir: &Path) -> Result<Self, TextError> {
        let path = dir.join("tokenizer.json");
        let json = std::fs::read(&path).map_err(|source| TextError::Read { path: path.clone(), source })?;
        let mut out = Self::parse(&json, &path.display().to_string())?;
        let path = dir.join("tokenizer_config.json");
        match std::fs::read(&path) {
            Ok(config) => out.read_config(&config, &path)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(TextError::Read { path, source }),
        }
        Ok(out)
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`TextError::Broken`].
    pub fn from_bytes(json: &[u8]) -> Result<Self, TextError> {
        Self::parse(json, "tokenizer.json")
    }

    fn parse(json: &[u8], origin: &str) -> Result<Self, TextError> {
        let broken = |what: String| TextError::Broken { origin: origin.into(), what };
        let claims: Claims = serde_json::from_slice(json).map_err(|e| broken(e.to_string()))?;
        let load = || tokenizers::Tokenizer::from_bytes(json).map_err(|e| e.to_string());
        let mut literal = guarded(load).map_err(broken)?;
        literal.with_padding(None);
        literal.with_truncation(None).map_err(|e| broken(e.to_string()))?;
        if let ModelWrapper::BPE(bpe) = literal.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            literal.with_model(bpe);
        }
        literal.set_encode_special_tokens(true);

        let mut specials = BTreeMap::new();
        for token in claims.added_tokens {
            // The loader numbers tokens itself and only logs where the file disagrees.
            let got = literal.token_to_id(&token.content);
            if got != Some(token.id) {
                return Err(broken(format!(
                    "added token {:?} claims id {}, but its id is {got:?}",
                    token.content, token.id
                )));
            }
            if token.special {
                specials.insert(token.content, token.id);
            }
        }
        let vocab = literal.get_vocab(true);
        let max_id = vocab.values().copied().max().ok_or_else(|| broken("it has no tokens".into()))?;
        let prefix = automatic_prefix(&literal).map_err(broken)?;
        Ok(Self { literal, parsing: OnceLock::new(), specials, prefix, max_id })
    }

    /// Takes over a begin-of-sequence token that only `tokenizer_config.json` asks for.
    fn read_config(&mut self, json: &[u8], path: &Path) -> Result<(), TextError> {
        let broken = |what: String| TextError::Broken { origin: path.display().to_string(), what };
        let config: Value = serde_json::from_slice(json).map_err(|e| broken(e.to_string()))?;
        if config.get("add_bos_token").and_then(Value::as_bool) != Some(true) || !self.prefix.is_empty() {
            return Ok(());
        }
        // Either the text itself or an object that describes the token.
        let token = config.get("bos_token").map(|t| t.get("content").unwrap_or(t));
        if let Some(text) = token.and_then(Value::as_str) {
            let id =
                self.token_id(text).ok_or_else(|| broken(format!("bos_token {text:?} is not in the tokenizer")))?;
            self.prefix = vec![id];
        }
        Ok(())
    }

    /// The token ids of `text`. Nothing is added in front or behind.
    ///
    /// With `allow_special` a marker such as `<|end|>` in the text becomes its token. Without it the marker is text
    /// like any other: this is for everything that a user wrote. Only tokens that the file flags as special are
    /// markers in this sense.
    ///
    /// # Errors
    /// [`TextError::Encode`] if the tokenizer fails; [`TextError::MarkerInText`] if `allow_special` is false and the
    /// model of the tokenizer itself would produce a marker from its text.
    pub fn encode(&self, text: &str, allow_special: bool) -> Result<Vec<u32>, TextError> {
        let tokenizer = if allow_special { self.parsing.get_or_init(|| self.make_parsing()) } else { &self.literal };
        let run = || tokenizer.encode_fast(text, false).map_err(|e| e.to_string());
        let encoding = guarded(run).map_err(|what| TextError::Encode { bytes: text.len(), what })?;
        let ids = encoding.get_ids().to_vec();
        if !allow_special {
            // A marker that is also an entry of the model's own vocabulary can come out of ordinary merging. An
            // unknown-token id can stand for other text, so the marker must really be there.
            for (marker, id) in &self.specials {
                if ids.contains(id) && text.contains(marker.as_str()) {
                    return Err(TextError::MarkerInText { marker: marker.clone() });
                }
            }
        }
        Ok(ids)
    }

    fn make_parsing(&self) -> tokenizers::Tokenizer {
        let mut parsing = self.literal.clone();
        parsing.set_encode_special_tokens(false);
        parsing
    }

    /// The text of `ids`; bytes that are not UTF-8 become U+FFFD. With `skip_special`, special tokens leave no trace.
    ///
    /// # Errors
    /// [`TextError::UnknownId`], or [`TextError::Decode`] if the tokenizer fails.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        if let Some(&id) = ids.iter().find(|&&id| self.token(id).is_none()) {
            return Err(TextError::UnknownId { id });
        }
        let run = || self.literal.decode(ids, skip_special).map_err(|e| e.to_string());
        guarded(run).map_err(|what| TextError::Decode { tokens: ids.len(), what })
    }

    /// A decoder for tokens that come one by one.
    #[must_use]
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream::new(self, skip_special)
    }

    /// The id of a token flagged special, by its text.
    #[must_use]
    pub fn special_id(&self, text: &str) -> Option<u32> {
        self.specials.get(text).copied()
    }

    /// Whether `id` is a token flagged special.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.specials.values().any(|&s| s == id)
    }

    /// The id of any token, by its text in the vocabulary (byte-level vocabularies write a space as `Ġ`).
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.literal.token_to_id(token)
    }

    /// The text of a token in the vocabulary.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.literal.id_to_token(id)
    }

    /// The ids that the tokenizer by its own files puts in front of a text, such as a begin-of-sequence token.
    #[must_use]
    pub fn prefix(&self) -> &[u32] {
        &self.prefix
    }

    /// The largest token id.
    #[must_use]
    pub const fn max_id(&self) -> u32 {
        self.max_id
    }

    /// Checks that every token has a row among the `vocab` rows of an embedding. Fewer tokens than rows are usual.
    ///
    /// # Errors
    /// [`TextError::VocabTooSmall`].
    pub fn check_vocab(&self, vocab: usize) -> Result<(), TextError> {
        if (self.max_id as usize) < vocab {
            return Ok(());
        }
        Err(TextError::VocabTooSmall { id: self.max_id, vocab })
    }

    /// Whether tokens are strings of bytes, so that decoding is a plain concatenation.
    pub(super) fn is_byte_level(&self) -> bool {
        matches!(self.literal.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("max_id", &self.max_id).field("specials", &self.specials.len()).finish()
    }
}

/// What the post-processor puts in front of a text. A probe letter shows where the text itself begins.
fn automatic_prefix(tokenizer: &tokenizers::Tokenizer) -> Result<Vec<u32>, String> {
    let encode = |special| guarded(|| tokenizer.encode_fast("a", special).map_err(|e| e.to_string()));
    let (plain, full) = (encode(false)?, encode(true)?);
    let (plain, full) = (plain.get_ids(), full.get_ids());
    if plain.is_empty() {
        return Ok(Vec::new());
    }
    let at = full.windows(plain.len()).position(|w| w == plain).unwrap_or(0);
    Ok(full.get(..at).unwrap_or_default().to_vec())
}

/// Runs a call into the tokenizer library, which answers some damaged files and texts with a panic; that must not take
/// an engine down. Nothing of ours is left half-changed: the calls only read, or build a value that is dropped.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("the tokenizer library panicked: {}", text.unwrap_or("without a message")))
    })
}

#[cfg(test)]
pub(super) mod tests;
