//! What is asked of an engine.

use seam_pic::Mode;

use crate::error::EngineError;
use crate::sampling::SamplingParams;

/// One prompt, cut into segments, and how to answer it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids of each segment. The first is the head, the last the query, which is never cached.
    pub segments: Vec<Vec<u32>>,
    /// How entries are used.
    pub mode: Mode,
    /// Seam width: the first tokens of an interior segment, computed under the true prefix.
    pub seam: u32,
    /// Whose entries these are.
    pub tenant: String,
    /// How the answer's tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens of the answer at most.
    pub max_new: usize,
    /// Token ids that end the answer; they are not part of it.
    pub stop: Vec<u32>,
}

impl Request {
    /// A greedy request with the default mode and seam.
    #[must_use]
    pub fn new(segments: Vec<Vec<u32>>) -> Self {
        Self {
            segments,
            mode: Mode::default(),
            seam: seam_pic::Policy::DEFAULT_SEAM,
            tenant: String::new(),
            sampling: SamplingParams::default(),
            max_new: 32,
            stop: Vec::new(),
        }
    }

    /// Tokens of all segments.
    #[must_use]
    pub fn prompt_tokens(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }

    /// The segments that may be cached, and the query.
    ///
    /// # Errors
    /// [`EngineError::EmptyPrompt`], [`EngineError::TokenOutOfRange`], [`EngineError::TooLong`] or
    /// [`EngineError::Sampling`].
    pub(crate) fn check(&self, vocab: u32, context: u32) -> Result<(&[Vec<u32>], &[u32]), EngineError> {
        let Some((query, parts)) = self.segments.split_last() else {
            return Err(EngineError::EmptyPrompt("there are no segments"));
        };
        if query.is_empty() {
            return Err(EngineError::EmptyPrompt("the last segment, the query, has no tokens"));
        }
        for (segment, tokens) in self.segments.iter().enumerate() {
            if let Some(at) = tokens.iter().position(|&t| t >= vocab) {
                return Err(EngineError::TokenOutOfRange { token: tokens[at], at, segment, vocab });
            }
        }
        let prompt = self.prompt_tokens();
        if prompt.saturating_add(self.max_new) > context as usize {
            return Err(EngineError::TooLong { prompt, answer: self.max_new, limit: context });
        }
        self.sampling.validate()?;
        Ok((parts, query))
    }
}
