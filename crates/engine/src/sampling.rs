//! Choosing the next token from logits: the host's sampler, and what a device needs to choose as it does.
//!
//! The order is that of the transformers library: repetition penalty, temperature, top-k, top-p, min-p, draw.
//! Everything after the logits is f64, so that no legal parameter overflows. A draw depends only on the logits, the
//! parameters, the seed and the step: not on other requests, and not on how often a step was tried.

#[cfg(test)]
mod tests;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use seam_ops::Choice;
use serde::{Deserialize, Serialize};

/// How a request chooses its tokens. The default is greedy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    /// The logits' divisor; 0 is greedy: the most probable token, and the filters below have no effect.
    pub temperature: f32,
    /// Keep the `top_k` most probable tokens, and those that tie with the last of them; 0 keeps all.
    pub top_k: u32,
    /// Keep the most probable tokens until their probabilities sum up to `top_p`, in (0, 1]; 1 keeps all. Of equally
    /// probable tokens the one with the smaller id counts as more probable.
    pub top_p: f32,
    /// Keep tokens at least `min_p` times as probable as the most probable one, in [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// Logits of tokens in the history are divided by this if positive and multiplied by it otherwise; 1 is off.
    pub repetition_penalty: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl SamplingParams {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first parameter out of its range, with its value.
    pub fn validate(&self) -> Result<(), SamplingError> {
        // Written so that NaN fails each of them.
        let checks = [
            (self.temperature >= 0.0 && self.temperature.is_finite(), SamplingError::Temperature(self.temperature)),
            (self.top_p > 0.0 && self.top_p <= 1.0, SamplingError::TopP(self.top_p)),
            ((0.0..=1.0).contains(&self.min_p), SamplingError::MinP(self.min_p)),
            (
                self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite(),
                SamplingError::RepetitionPenalty(self.repetition_penalty),
            ),
        ];
        checks.into_iter().find(|(ok, _)| !ok).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// What a device needs to choose the token of step number `step`; `None` where only the host can, for it knows the
    /// history that the repetition penalty looks at.
    ///
    /// The random number is the host's. Device and host choose alike but where their sums differ by a rounding; of the
    /// highest logits both take the first.
    #[must_use]
    pub fn choice(&self, step: u64) -> Option<Choice> {
        let draw = draw(self.seed, step) << 11;
        let choice = || Choice::new(self.temperature, self.top_k, self.top_p, self.min_p, draw);
        (self.repetition_penalty == 1.0).then(choice)
    }
}

/// Why no token could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The temperature is negative or not finite.
    #[error("temperature {0}: expected a finite number, at least 0")]
    Temperature(f32),
    /// `top_p` is out of range.
    #[error("top_p {0}: expected more than 0 and at most 1")]
    TopP(f32),
    /// `min_p` is out of range.
    #[error("min_p {0}: expected at least 0 and at most 1")]
    MinP(f32),
    /// The repetition penalty is out of range.
    #[error("repetition_penalty {0}: expected a finite number above 0")]
    RepetitionPenalty(f32),
    /// There are no logits.
    #[error("no logits")]
    NoLogits,
    /// More logits than token ids.
    #[error("{0} logits: token ids have 32 bits")]
    TooManyLogits(usize),
    /// A logit that is not a number, or +infinity. −infinity is legal and excludes a token.
    #[error("the logit of token {token} is {value}")]
    NotFinite {
        /// The token.
        token: u32,
        /// Its logit.
        value: f32,
    },
    /// Every token is excluded.
    #[error("all {0} logits are -inf")]
    AllExcluded(usize),
    /// A token of the history that has no logit.
    #[error("token {token} of the history is out of the vocabulary of {vocab}")]
    History {
        /// The token.
        token: u32,
        /// Number of logits.
        vocab: usize,
    },
}

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// Natural logarithm of its probability under the unmodified logits: no penalty, temperature 1, no filter.
    pub logprob: f32,
    /// Probability of the most probable token minus that of the next, under the unmodified logits. Small where the
    /// model is unsure; 0 for a tie, 1 if only one token is possible.
    pub top_gap: f32,
}

/// Chooses tokens for one request. Keeps its scratch memory from step to step.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    /// Scores by token.
    scores: Vec<f64>,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    score: f64,
    /// `exp(score − the highest score)`.
    weight: f64,
}

/// What the unmodified logits say.
struct Raw {
    best: u32,
    max: f64,
    /// `Σ exp(logit − max)`.
    sum: f64,
    top_gap: f64,
}

impl Sampler {
    /// A sampler.
    ///
    /// # Errors
    /// [`SamplingParams::validate`].
    pub fn new(params: SamplingParams) -> Result<Self, SamplingError> {
        params.validate()?;
        Ok(Self { params, scores: Vec::new(), candidates: Vec::new() })
    }

    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Chooses the token of step number `step` of the request. `logits` has one value for each token of the
    /// vocabulary; `history` are the token ids that the repetition penalty applies to, in any order, repeats
    /// allowed.
    ///
    /// # Errors
    /// Logits that are empty, not numbers or all −infinity; a token of the history out of the vocabulary.
    pub fn sample(&mut self, logits: &[f32], history: &[u32], step: u64) -> Result<Sampled, SamplingError> {
        let raw = survey(logits)?;
        let penalised = self.score(logits, history)?;
        let token = if self.params.temperature > 0.0 {
            self.draw(step)
        } else if penalised {
            first_max(self.scores.iter().copied())
        } else {
            raw.best
        };
        let logit = logits.get(token as usize).map_or(f64::NEG_INFINITY, |&x| f64::from(x));
        Ok(Sampled { token, logprob: (logit - raw.max - raw.sum.ln()) as f32, top_gap: raw.top_gap as f32 })
    }

    /// Writes the penalised logits to `scores`; `false` if the penalty changed nothing.
    fn score(&mut self, logits: &[f32], history: &[u32]) -> Result<bool, SamplingError> {
        let penalty = f64::from(self.params.repetition_penalty);
        self.scores.clear();
        self.scores.extend(logits.iter().map(|&x| f64::from(x)));
        for &token in history {
            // From the logit, not from the score: a token that occurs twice is penalised once.
            let (Some(&logit), Some(score)) = (logits.get(token as usize), self.scores.get_mut(token as usize)) else {
                return Err(SamplingError::History { token, vocab: logits.len() });
            };
            let logit = f64::from(logit);
            *score = if logit > 0.0 { logit / penalty } else { logit * penalty };
        }
        Ok(penalty != 1.0 && !history.is_empty())
    }

    /// Temperature, filters and the draw, over `scores`.
    fn draw(&mut self, step: u64) -> u32 {
        let temperature = f64::from(self.params.temperature);
        let max = self.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.candidates.clear();
        self.candidates.extend((0u32..).zip(&self.scores).filter(|(_, score)| score.is_finite()).map(
            |(token, &score)| {
                let score = (score - max) / temperature;
                Candidate { token, score, weight: score.exp() }
            },
        ));
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
        // By token id, so that the draw does not depend on how the filters left them.
        self.candidates.sort_unstable_by_key(|c| c.token);
        let total: f64 = self.candidates.iter().map(|c| c.weight).sum();
        let target = uniform(self.params.seed, step) * total;
        let mut sum = 0.0;
        let mut last = 0;
        for candidate in &self.candidates {
            sum += candidate.weight;
            if candidate.weight > 0.0 {
                last = candidate.token;
                if sum > target {
                    break;
                }
            }
        }
        last
    }

    fn keep_top_k(&mut self) {
        let k = self.params.top_k as usize;
        if k == 0 || k >= self.candidates.len() {
            return;
        }
        let (_, kth, _) = self.candidates.select_nth_unstable_by(k - 1, by_rank);
        let least = kth.score;
        self.candidates.retain(|c| c.score >= least);
    }

    /// Keeps a token if those more probable than it sum up to less than `top_p`.
    fn keep_top_p(&mut self) {
        let top_p = f64::from(self.params.top_p);
        if top_p >= 1.0 {
            return;
        }
        let total: f64 = self.candidates.iter().map(|c| c.weight).sum();
        let mut sorted = 0;
        let mut kept = 0;
        let mut sum = 0.0;
        // Only as much is sorted as is needed: few tokens carry most of the probability.
        while kept == sorted && sorted < self.candidates.len() {
            let rest = self.candidates.get_mut(sorted..).unwrap_or_default();
            let more = rest.len().min(256.max(7 * sorted));
            if more < rest.len() {
                rest.select_nth_unstable_by(more, by_rank);
            }
            let head = rest.get_mut(..more).unwrap_or_default();
            head.sort_unstable_by(by_rank);
            for candidate in head {
                // The first is always kept, since `top_p` is above 0.
                if sum >= top_p * total {
                    break;
                }
                sum += candidate.weight;
                kept += 1;
            }
            sorted += more;
        }
        self.candidates.truncate(kept);
    }

    fn keep_min_p(&mut self) {
        let min_p = f64::from(self.params.min_p);
        if min_p > 0.0 {
            // The most probable token has the weight 1, and no filter before this one drops it.
            self.candidates.retain(|c| c.weight >= min_p);
        }
    }
}

/// More probable first; of equals, the smaller token id.
fn by_rank(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.score.total_cmp(&a.score).then(a.token.cmp(&b.token))
}

/// The index of the first of the highest values; 0 if there is none above −infinity.
fn first_max(values: impl Iterator<Item = f64>) -> u32 {
    let mut best = (0, f64::NEG_INFINITY);
    for (token, value) in (0u32..).zip(values) {
        if value > best.1 {
            best = (token, value);
        }
    }
    best.0
}

fn survey(logits: &[f32]) -> Result<Raw, SamplingError> {
    if logits.is_empty() {
        return Err(SamplingError::NoLogits);
    }
    if u32::try_from(logits.len()).is_err() {
        return Err(SamplingError::TooManyLogits(logits.len()));
    }
    let mut second = f32::NEG_INFINITY;
    let mut best = (0, f32::NEG_INFINITY);
    for (token, &value) in (0u32..).zip(logits) {
        if value.is_nan() || value == f32::INFINITY {
            return Err(SamplingError::NotFinite { token, value });
        }
        if value > best.1 {
            second = best.1;
            best = (token, value);
        } else if value > second {
            second = value;
        }
    }
    if best.1 == f32::NEG_INFINITY {
        return Err(SamplingError::AllExcluded(logits.len()));
    }
    let max = f64::from(best.1);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    Ok(Raw { best: best.0, max, sum, top_gap: (1.0 - (f64::from(second) - max).exp()) / sum })
}

/// Uniform in [0, 1).
fn uniform(seed: u64, step: u64) -> f64 {
    draw(seed, step) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// 53 bits: a function of seed and step alone. Every step has a block of the key stream to itself (16 words of 32 bits).
fn draw(seed: u64, step: u64) -> u64 {
    let mut key = [0; 32];
    if let Some(start) = key.first_chunk_mut() {
        *start = seed.to_le_bytes();
    }
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_word_pos(u128::from(step) * 16);
    rng.next_u64() >> 11
}
