//! How good spliced answers are: metrics over logits, sums of them, and the evaluation of a set of prompts.
//!
//! Everything is teacher-forced: the logits before each token of the known answer, given the answer so far. That makes
//! exact match the same as exact match of greedy decoding, and lets modes be compared token by token even where they
//! would have gone different ways. Sums are f64.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use seam_model::text::{SegmentFormat, TextError, Tokenizer};
use seam_pic::Mode;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::request::Request;

/// A question over documents with its answer: one line of an evaluation set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalPrompt {
    /// The type of the question, by which results are grouped.
    #[serde(rename = "type")]
    pub kind: String,
    /// The system text.
    pub system: String,
    /// The documents, in prompt order.
    pub docs: Vec<String>,
    /// The question, as it stands in the prompt.
    pub question: String,
    /// The answer, with the space that separates it from the question.
    pub answer: String,
    /// Tokens of the prompt, as the set's own tokenizer counted them; 0 if not known.
    #[serde(default)]
    pub tokens: usize,
}

/// An evaluation prompt as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalCase {
    /// The type of the question.
    pub kind: String,
    /// System text, documents, question.
    pub segments: Vec<Vec<u32>>,
    /// The answer and the token that ends it.
    pub gold: Vec<u32>,
}

impl EvalPrompt {
    /// The prompt cut into segments, and the answer followed by `end`.
    ///
    /// # Errors
    /// [`TextError`] for a text that the tokenizer does not take, or an empty one.
    pub fn case(&self, tokenizer: &Tokenizer, format: &SegmentFormat, end: u32) -> Result<EvalCase, TextError> {
        let docs: Vec<&str> = self.docs.iter().map(String::as_str).collect();
        let segments = format.build(tokenizer, &self.system, &docs, &self.question)?;
        let mut gold = tokenizer.encode(&self.answer, false)?;
        gold.push(end);
        Ok(EvalCase { kind: self.kind.clone(), segments, gold })
    }
}

impl EvalCase {
    /// Tokens of the prompt.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }
}

/// Logits that do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{full} and {mode} logits for {tokens} answer tokens: expected as many rows, all of one length")]
pub struct ShapeError {
    /// Logits of the full recomputation.
    pub full: usize,
    /// Logits of the mode.
    pub mode: usize,
    /// Answer tokens.
    pub tokens: usize,
}

/// One prompt in one mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Whether every token of the answer is the most probable one.
    pub exact: bool,
    /// Whether the most probable token is that of the full recomputation, at every token of the answer.
    pub agree: bool,
    /// KL(full‖mode) in nats, mean over the tokens of the answer.
    pub kl: f64,
    /// Negative log-likelihood of the answer in nats, mean over its tokens.
    pub nll: f64,
}

impl Scores {
    /// Compares the logits of a mode, `[answer, vocab]`, with those of the full recomputation and with the answer
    /// `gold`. Of equal logits the first counts as the most probable.
    ///
    /// # Errors
    /// [`ShapeError`], also for an empty answer and for an answer token that has no logit.
    pub fn of(full: &[f32], mode: &[f32], gold: &[u32]) -> Result<Self, ShapeError> {
        let tokens = gold.len();
        let error = ShapeError { full: full.len(), mode: mode.len(), tokens };
        if tokens == 0 || full.len() != mode.len() || full.is_empty() || !full.len().is_multiple_of(tokens) {
            return Err(error);
        }
        let vocab = full.len() / tokens;
        let mut out = Self { exact: true, agree: true, kl: 0.0, nll: 0.0 };
        for ((f, m), &token) in full.chunks(vocab).zip(mode.chunks(vocab)).zip(gold) {
            let best = arg_max(m);
            out.exact &= best == token as usize;
            out.agree &= best == arg_max(f);
            let (lf, lm) = (log_softmax(f), log_softmax(m));
            out.kl += lf
                .iter()
                .zip(&lm)
                .map(|(f, m)| if *f == f64::NEG_INFINITY { 0.0 } else { f.exp() * (f - m) })
                .sum::<f64>();
            out.nll -= lm.get(token as usize).ok_or(error)?;
        }
        out.kl /= tokens as f64;
        out.nll /= tokens as f64;
        Ok(out)
    }
}

/// Index of the first of the largest values; 0 of an empty slice.
#[must_use]
pub fn arg_max(values: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &v) in values.iter().enumerate() {
        if v > best.1 {
            best = (i, v);
        }
    }
    best.0
}

/// Log-probabilities of a row of logits.
#[must_use]
pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = |l: &f32| f64::from(*l) - f64::from(max);
    let log_sum = logits.iter().map(|l| shifted(l).exp()).sum::<f64>().ln();
    logits.iter().map(|l| shifted(l) - log_sum).collect()
}

/// Sums over prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Prompts.
    pub prompts: u64,
    /// Those with an exact answer.
    pub exact: u64,
    /// Those whose answer is that of the full recomputation.
    pub agree: u64,
    /// Sum of [`Scores::kl`].
    pub kl: f64,
    /// Sum of [`Scores::nll`].
    pub nll: f64,
}

impl Totals {
    /// Counts one prompt.
    pub fn add(&mut self, scores: &Scores) {
        self.prompts += 1;
        self.exact += u64::from(scores.exact);
        self.agree += u64::from(scores.agree);
        self.kl += scores.kl;
        self.nll += scores.nll;
    }

    /// Exact answers in percent.
    #[must_use]
    pub fn exact_percent(&self) -> f64 {
        100.0 * self.exact as f64 / self.count()
    }

    /// Answers like those of the full recomputation in percent.
    #[must_use]
    pub fn agree_percent(&self) -> f64 {
        100.0 * self.agree as f64 / self.count()
    }

    /// Mean KL(full‖mode) in nats.
    #[must_use]
    pub fn mean_kl(&self) -> f64 {
        self.kl / self.count()
    }

    /// Mean negative log-likelihood in nats.
    #[must_use]
    pub fn mean_nll(&self) -> f64 {
        self.nll / self.count()
    }

    fn count(&self) -> f64 {
        self.prompts.max(1) as f64
    }
}

/// A way to answer: a mode with a seam width. The width is 0 for `full`, which has no seams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Setting {
    /// The mode.
    pub mode: Mode,
    /// The seam width in tokens.
    pub seam: u32,
}

impl Setting {
    /// The reference.
    pub const FULL: Self = Self { mode: Mode::Full, seam: 0 };

    /// `full`, then each other mode with each seam width; repeats and a `full` among `modes` are dropped.
    #[must_use]
    pub fn grid(modes: &[Mode], seams: &[u32]) -> Vec<Self> {
        let mut out = vec![Self::FULL];
        for &mode in modes.iter().filter(|m| **m != Mode::Full) {
            for &seam in seams {
                let setting = Self { mode, seam };
                if !out.contains(&setting) {
                    out.push(setting);
                }
            }
        }
        out
    }
}

impl std::fmt::Display for Setting {
    /// `full`, or `transition w=8`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.mode {
            Mode::Full => f.pad("full"),
            mode => f.pad(&format!("{mode} w={}", self.seam)),
        }
    }
}

/// One setting over all prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// All prompts.
    pub all: Totals,
    /// Prompts by type of question.
    pub by_type: BTreeMap<String, Totals>,
}

/// One prompt in every setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptScores {
    /// Its index in the list that was evaluated.
    pub index: usize,
    /// The type of its question.
    #[serde(rename = "type")]
    pub kind: String,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Documents: segments between the first and the last.
    pub docs: usize,
    /// In the order of [`Evaluation::rows`].
    pub scores: Vec<Scores>,
}

/// What an evaluation gives. The first row is `full`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The settings.
    pub rows: Vec<Row>,
    /// The prompts.
    pub prompts: Vec<PromptScores>,
}

impl Evaluation {
    /// An evaluation of no prompts.
    #[must_use]
    pub fn new(settings: &[Setting]) -> Self {
        let row = |&setting| Row { setting, all: Totals::default(), by_type: BTreeMap::new() };
        Self { rows: settings.iter().map(row).collect(), prompts: Vec::new() }
    }

    /// The row of a setting.
    #[must_use]
    pub fn row(&self, setting: Setting) -> Option<&Row> {
        self.rows.iter().find(|r| r.setting == setting)
    }

    /// Counts a prompt whose scores are in the order of the rows.
    pub fn add(&mut self, prompt: PromptScores) {
        for (row, scores) in self.rows.iter_mut().zip(&prompt.scores) {
            row.all.add(scores);
            row.by_type.entry(prompt.kind.clone()).or_default().add(scores);
        }
        self.prompts.push(prompt);
    }
}

/// Why an evaluation ended early.
#[derive(Debug, thiserror::Error)]
#[error("prompt {index}, {setting}")]
pub struct EvalError {
    /// The prompt.
    pub index: usize,
    /// The setting.
    pub setting: Setting,
    /// What went wrong.
    pub source: EvalCause,
}

/// What went wrong with one prompt in one setting.
#[derive(Debug, thiserror::Error)]
pub enum EvalCause {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The logits.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// Scores every prompt in `full` and in every mode with every seam width; `progress` sees each prompt when it is done.
///
/// The device's entries are dropped between prompts: each prompt has its own documents, and a full cache would only be
/// moved about. Give the engine a host budget of 0.
///
/// # Errors
/// [`EvalError`] naming the prompt.
pub fn evaluate(
    engine: &mut Engine,
    cases: &[EvalCase],
    modes: &[Mode],
    seams: &[u32],
    progress: &mut dyn FnMut(&PromptScores),
) -> Result<Evaluation, EvalError> {
    let settings = Setting::grid(modes, seams);
    let mut out = Evaluation::new(&settings);
    for (index, case) in cases.iter().enumerate() {
        let mut full = Vec::new();
        let mut scores = Vec::with_capacity(settings.len());
        for &setting in &settings {
            let fail = |source| EvalError { index, setting, source };
            let request = Request { mode: setting.mode, seam: setting.seam, ..Request::new(case.segments.clone()) };
            let logits = engine.score(&request, &case.gold).map_err(|e| fail(e.into()))?;
            if setting == Setting::FULL {
                full.clone_from(&logits);
            }
            scores.push(Scores::of(&full, &logits, &case.gold).map_err(|e| fail(e.into()))?);
        }
        engine.forget_device_entries();
        let docs = case.segments.len().saturating_sub(2);
        let prompt = PromptScores { index, kind: case.kind.clone(), tokens: case.tokens(), docs, scores };
        progress(&prompt);
        out.add(prompt);
    }
    Ok(out)
}
