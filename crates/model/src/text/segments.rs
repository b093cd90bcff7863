//! Segments of a prompt: the head, the documents and the query, tokenised one by one.
//!
//! A cached segment is keyed by its token ids, so its tokens must not depend on its neighbours: every text is
//! tokenised alone and the ids are concatenated. Markers are put between segments as ids; marker text inside a text
//! stays text and cannot cut the prompt anew.

use super::error::TextError;
use super::tokenizer::Tokenizer;

/// How the segments of a prompt are marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentFormat {
    /// `bos` before the system text, `seg` before every document and before the question.
    Marked {
        /// Begin of sequence.
        bos: u32,
        /// Begin of a segment.
        seg: u32,
    },
    /// The texts alone, after what the tokenizer puts in front of any text (often nothing).
    Plain {
        /// Ids before the first text.
        prefix: Vec<u32>,
    },
}

/// The marker texts of the marked format.
const BOS: &str = "<|bos|>";
const SEG: &str = "<|seg|>";

impl SegmentFormat {
    /// The marked format if the tokenizer has both markers as special tokens, else the plain one.
    #[must_use]
    pub fn detect(tokenizer: &Tokenizer) -> Self {
        match (tokenizer.special_id(BOS), tokenizer.special_id(SEG)) {
            (Some(bos), Some(seg)) => Self::Marked { bos, seg },
            _ => Self::plain(tokenizer),
        }
    }

    /// The plain format.
    #[must_use]
    pub fn plain(tokenizer: &Tokenizer) -> Self {
        Self::Plain { prefix: tokenizer.prefix().to_vec() }
    }

    /// The head segment: what opens a prompt, and the system text. May be empty in the plain format.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn head(&self, tokenizer: &Tokenizer, system: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = match self {
            Self::Marked { bos, .. } => vec![*bos],
            Self::Plain { prefix } => prefix.clone(),
        };
        ids.extend(tokenizer.encode(system, false)?);
        Ok(ids)
    }

    /// A segment after the head: a document or the question. May be empty in the plain format.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn segment(&self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = match self {
            Self::Marked { seg, .. } => vec![*seg],
            Self::Plain { .. } => Vec::new(),
        };
        ids.extend(tokenizer.encode(text, false)?);
        Ok(ids)
    }

    /// All segments of a prompt: the head first, then one per document, the question last.
    ///
    /// In the plain format an empty system text leaves no head where the tokenizer adds no prefix either; the first
    /// document is then segment 0.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`], and [`TextError::EmptySegment`] for a document or question without tokens.
    pub fn build(
        &self,
        tokenizer: &Tokenizer,
        system: &str,
        documents: &[&str],
        question: &str,
    ) -> Result<Vec<Vec<u32>>, TextError> {
        let mut segments = Vec::with_capacity(documents.len() + 2);
        let head = self.head(tokenizer, system)?;
        if !head.is_empty() {
            segments.push(head);
        }
        for (i, text) in documents.iter().chain([&question]).enumerate() {
            let ids = self.segment(tokenizer, text)?;
            if ids.is_empty() {
                return Err(TextError::EmptySegment { index: i + 1 });
            }
            segments.push(ids);
        }
        Ok(segments)
    }
}

#[cfg(test)]
mod tests;
