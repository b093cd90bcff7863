//! A reference quality table (`pic_table.json`) beside an evaluation of the same prompts.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use seam_engine::quality::{EvalPrompt, Evaluation, Setting, Totals};
use serde::{Deserialize, Serialize};

/// What the columns of the totals must be.
const COLUMNS: [&str; 5] = ["prompts", "exact", "same as full", "sum KL(full||mode)", "sum NLL of gold"];

/// Points of exact match of the full recomputation: it is the same computation in another order of summation.
const EXACT_FULL: f64 = 1.0;
/// Points of exact match of a mode, whose answers may hang on ties that the splice makes closer.
const EXACT: f64 = 1.5;
/// Points of agreement with the full recomputation.
const AGREE: f64 = 2.0;
/// Relative difference of the mean KL, which a few prompts dominate.
const KL: f64 = 0.15;
/// Absolute difference of the mean KL that is always accepted: the table's values are rounded to five digits.
const KL_ROUNDING: f64 = 1e-5;

/// The table as stored.
#[derive(Debug, Deserialize)]
pub(crate) struct Reference {
    columns: Vec<String>,
    totals: BTreeMap<String, BTreeMap<String, [f64; 5]>>,
    prompts: Vec<Prompt>,
}

/// A prompt's line: exact, same as full, KL, NLL of each setting.
#[derive(Debug, Deserialize)]
struct Prompt {
    #[serde(rename = "type")]
    kind: String,
    tokens: usize,
    docs: usize,
    #[serde(flatten)]
    settings: BTreeMap<String, [f64; 4]>,
}

/// One setting beside its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// The setting.
    pub(crate) setting: String,
    /// Exact match in percent: found, reference.
    pub(crate) exact: [f64; 2],
    /// Agreement with full in percent: found, reference.
    pub(crate) agree: [f64; 2],
    /// Mean KL: found, reference.
    pub(crate) kl: [f64; 2],
    /// Mean negative log-likelihood: found, reference.
    pub(crate) nll: [f64; 2],
    /// What is out of its bound; empty if all is well.
    pub(crate) misses: Vec<String>,
}

/// The comparison of all settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// Whether no setting misses and there was one to compare.
    pub(crate) passed: bool,
    /// Settings that both have.
    pub(crate) differences: Vec<Difference>,
    /// Settings that the reference does not have.
    pub(crate) without_reference: Vec<String>,
}

impl Reference {
    /// Reads a table.
    ///
    /// # Errors
    /// A message that names the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let what = || format!("the reference {}", path.display());
        let text = std::fs::read_to_string(path).with_context(what)?;
        let out: Self = serde_json::from_str(&text).context("is not a quality table").with_context(what)?;
        ensure!(out.columns == COLUMNS, "{} has the columns {:?}, expected {COLUMNS:?}", what(), out.columns);
        Ok(out)
    }

    /// For each prompt of `set` that the table has, the index of its line. Tables made by several processes list the
    /// prompts 0, k, 2k, …, 1, k + 1, …; the stride k is found from types and sizes of the prompts.
    fn lines(&self, set: &[EvalPrompt]) -> Option<Vec<usize>> {
        let n = self.prompts.len();
        let set = set.get(..n)?;
        let fits = |line: &Prompt, p: &EvalPrompt| {
            line.kind == p.kind && line.docs == p.docs.len() && (p.tokens == 0 || line.tokens == p.tokens)
        };
        (1..=n).find_map(|stride| {
            let order = (0..stride).flat_map(|start| (start..n).step_by(stride));
            let mut lines = vec![0; n];
            for (line, (prompt, index)) in self.prompts.iter().zip(order).enumerate() {
                if !fits(prompt, &set[index]) {
                    return None;
                }
                lines[index] = line;
            }
            Some(lines)
        })
    }

    /// Compares an evaluation of prompts of `set` with the table, over the prompts that were evaluated.
    ///
    /// # Errors
    /// The table is of other prompts.
    pub(crate) fn compare(&self, set: &[EvalPrompt], found: &Evaluation) -> Result<Comparison> {
        let Some(lines) = self.lines(set) else {
            bail!("the reference is of other prompts than the evaluation set: types, documents or tokens differ");
        };
        let mut selected = Vec::new();
        for prompt in &found.prompts {
            let line = lines.get(prompt.index).and_then(|&line| self.prompts.get(line));
            let Some(line) = line else { bail!("the reference does not have prompt {}", prompt.index) };
            ensure!(
                line.tokens == prompt.tokens,
                "prompt {} has {} tokens, in the reference {}: another tokenizer",
                prompt.index,
                prompt.tokens,
                line.tokens
            );
            selected.push(line);
        }
        let whole = selected.len() == self.prompts.len();
        let mut out = Comparison { passed: true, differences: Vec::new(), without_reference: Vec::new() };
        for row in &found.rows {
            let name = row.setting.to_string();
            match self.totals(&name, whole, &selected) {
                Some(reference) => out.differences.push(Difference::of(row.setting, &row.all, &reference)),
                None => out.without_reference.push(name),
            }
        }
        out.passed = !out.differences.is_empty() && out.differences.iter().all(|d| d.misses.is_empty());
        Ok(out)
    }

    fn totals(&self, name: &str, whole: bool, selected: &[&Prompt]) -> Option<Totals> {
        if whole {
            // Not rounded, unlike the lines.
            let [prompts, exact, agree, kl, nll] = *self.totals.get(name)?.get("all")?;
            return Some(Totals { prompts: prompts as u64, exact: exact as u64, agree: agree as u64, kl, nll });
        }
        let mut out = Totals::default();
        for line in selected {
            let [exact, agree, kl, nll] = *line.settings.get(name)?;
            out.prompts += 1;
            out.exact += exact as u64;
            out.agree += agree as u64;
            out.kl += kl;
            out.nll += nll;
        }
        Some(out)
    }
}

impl Difference {
    fn of(setting: Setting, found: &Totals, reference: &Totals) -> Self {
        let pair = |f: fn(&Totals) -> f64| [f(found), f(reference)];
        let exact = pair(Totals::exact_percent);
        let agree = pair(Totals::agree_percent);
        let kl = pair(Totals::mean_kl);
        let nll = pair(Totals::mean_nll);
        // Of few prompts one alone is more points than the bound: one is always accepted.
        let one = 100.0 / found.prompts.max(1) as f64;
        let points = if setting == Setting::FULL { EXACT_FULL } else { EXACT };
        let off = |[a, b]: [f64; 2]| (a - b).abs();
        let mut misses = Vec::new();
        let out_of = |pair: [f64; 2], bound: f64| off(pair).is_nan() || off(pair) > bound;
        // Percents are quotients: 1e-9 covers their rounding.
        for (what, pair, bound) in [("exact match", exact, points), ("agreement", agree, AGREE)] {
            let bound = bound.max(one) + 1e-9;
            if out_of(pair, bound) {
                misses.push(format!("{what} differs by {:.1} points, {bound:.1} are accepted", off(pair)));
            }
        }
        if out_of(kl, (KL * kl[1]).max(KL_ROUNDING)) {
            misses.push(format!("KL {:.5} against {:.5}, {:.0} % are accepted", kl[0], kl[1], 100.0 * KL));
        }
        Self { setting: setting.to_string(), exact, agree, kl, nll, misses }
    }
}

#[cfg(test)]
mod tests;
