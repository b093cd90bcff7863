//! The table family × law × subject, and what it says about each.

use super::Law;
use super::report::{LawReport, Options, run_law};
use super::subject::{OracleSubject, Subject};
use crate::families;
use crate::family::{DecayKind, Family};
use serde::Serialize;
use std::fmt;

/// Why a state of a diagonal decay cannot be moved.
const NOT_COMMUTING: &str = "the decays of a rotation pair differ, and no rotation commutes with them: recompute";

/// What can be said of a family (or of one law on it).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Composition is recomputation, up to rounding, under these conditions.
    Exact {
        /// First tokens of a segment that are recomputed behind the true tail, because a convolution reaches over them.
        warm_up: Option<usize>,
        /// Whether the operator is rotated to its position.
        rerotation: bool,
    },
    /// It cannot be exact; a typed error says so.
    Impossible {
        /// Why.
        because: String,
    },
    /// The law says nothing about this family.
    Silent {
        /// Why.
        because: String,
    },
    /// The subject breaks the law.
    Fails,
}

impl Verdict {
    /// Exact without conditions.
    pub const EXACT: Self = Self::Exact { warm_up: None, rerotation: false };
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { warm_up, rerotation } => {
                f.write_str("exact")?;
                if let Some(tokens) = warm_up {
                    write!(f, " with conv warm-up of {tokens} token{}", if *tokens == 1 { "" } else { "s" })?;
                }
                match (warm_up, rerotation) {
                    (_, false) => Ok(()),
                    (None, true) => f.write_str(" with re-rotation"),
                    (Some(_), true) => f.write_str(" and re-rotation"),
                }
            }
            Self::Impossible { because } => write!(f, "impossible, because {because}"),
            Self::Silent { because } => write!(f, "says nothing: {because}"),
            Self::Fails => f.write_str("FAILS"),
        }
    }
}

/// A row: one law on one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the family.
    pub family: String,
    /// What the law says of it.
    pub verdict: Verdict,
    /// The subject, the worst error, the case that gave it, and the failure if there was one.
    pub report: LawReport,
}

fn warm_up(family: &dyn Family) -> Option<usize> {
    family.conv_kernel().map(|kernel| kernel.saturating_sub(1)).filter(|&tokens| tokens > 0)
}

fn impossible() -> Verdict {
    Verdict::Impossible { because: NOT_COMMUTING.into() }
}

fn verdict(law: Law, family: &dyn Family, passed: bool) -> Verdict {
    match law {
        _ if !passed => Verdict::Fails,
        Law::Convolution => Verdict::Exact { warm_up: warm_up(family), rerotation: false },
        Law::Rerotation if family.decay() == DecayKind::Diagonal => impossible(),
        Law::Rerotation => Verdict::Exact { warm_up: None, rerotation: true },
        _ => Verdict::EXACT,
    }
}

/// All laws on all subjects, a row each, also for laws that say nothing about a subject's family. `progress` as in
/// [`run_laws`](super::run_laws).
pub fn table(subjects: &mut [&mut dyn Subject], options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Vec<Row> {
    let mut rows = Vec::new();
    for subject in subjects {
        rows.extend(Law::ALL.map(|law| row(law, &mut **subject, options, progress)));
    }
    rows
}

/// One law on one subject. `progress` as in [`run_laws`](super::run_laws).
pub fn row(law: Law, subject: &mut dyn Subject, options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Row {
    let family = subject.family();
    let report = run_law(law, subject, options, progress);
    let verdict = match law.silent_on(family) {
        Some(because) => Verdict::Silent { because: because.into() },
        None => verdict(law, family, report.passed),
    };
    Row { family: family.name().into(), verdict, report }
}

/// [`table`] of the oracles of all families.
pub fn oracle_table(options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Vec<Row> {
    let mut oracles: Vec<_> = families::all().iter().map(|&family| OracleSubject::new(family)).collect();
    let mut subjects: Vec<&mut dyn Subject> = oracles.iter_mut().map(|o| o as &mut dyn Subject).collect();
    table(&mut subjects, options, progress)
}

/// What the rows of a family together say of it as published: with its convolution, and moved where its keys are rotated.
/// It fails when a row does, or when there is none.
pub fn family_verdict(family: &dyn Family, rows: &[Row]) -> Verdict {
    let mut own = rows.iter().filter(|row| row.family == family.name()).peekable();
    if own.peek().is_none() || own.any(|row| !row.report.passed) {
        return Verdict::Fails;
    }
    if family.rotated_keys() && family.decay() == DecayKind::Diagonal {
        return impossible();
    }
    Verdict::Exact { warm_up: warm_up(family), rerotation: family.rotated_keys() }
}

/// The rows as text, columns aligned: family, law, subject, cases, worst error and its tolerance, verdict, worst case.
pub fn render(rows: &[Row]) -> String {
    let head = ["family", "law", "subject", "cases", "worst error", "tolerance", "verdict", "worst case"];
    let mut cells = vec![head.map(String::from)];
    for Row { family, verdict, report } in rows {
        let number = |x: f64| if report.cases == 0 { "-".into() } else { format!("{x:.1e}") };
        cells.push([
            family.clone(),
            report.law.clone(),
            report.subject.clone(),
            report.cases.to_string(),
            number(report.worst_error),
            number(report.tolerance),
            verdict.to_string(),
            report.worst_seed.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    cells.iter().map(line).collect()
}
