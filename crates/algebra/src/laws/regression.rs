//! Cases that are kept as lines of text and replayed.

use super::measure::Measured;
use super::properties::check;
use super::subject::{Subject, SubjectError};
use super::{Law, LawReport};
use crate::error::AlgebraError;
use crate::strategy::Case;
use std::fmt;

/// A line of a file of cases: a family, a law and a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regression {
    /// Name of the family.
    pub family: String,
    /// The law.
    pub law: Law,
    /// The case.
    pub case: Case,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family, self.law.name(), self.case)
    }
}

impl Regression {
    /// The line to keep for a law that failed: its smallest failing case.
    pub fn of_failure(family: &str, report: &LawReport) -> Option<Self> {
        let (call, _) = report.failure.as_ref()?.split_once(" // ")?;
        let case = call.split_once(", &Case ")?.1.strip_suffix(')')?;
        Some(Self {
            family: family.into(),
            law: Law::by_name(&report.law)?,
            case: format!("Case {case}").parse().ok()?,
        })
    }

    /// Runs the case on `subject`.
    ///
    /// # Errors
    /// As [`check`]; [`SubjectError::NotApplicable`] when the subject is of another family.
    pub fn check(&self, subject: &mut dyn Subject) -> Result<Measured, SubjectError> {
        let name = subject.family().name();
        if name != self.family {
            let why = format!("the case is of {}, the subject of {name}", self.family);
            return Err(SubjectError::NotApplicable { why });
        }
        check(self.law, subject, &self.case)
    }
}

/// Reads a file of cases: a line each, as [`Regression`] prints it; blank lines and what follows a `#` are passed over.
///
/// # Errors
/// [`AlgebraError::Parse`] with the number of the line.
///
/// ```
/// use seam_algebra::laws::{OracleSubject, regressions};
/// let text = "kda chain Case { seed: 0x7, kind: Kind::ZeroKeys, tokens: 9, key_heads: 1, ratio: 1, key_dim: 4, value_dim: 4 } # why";
/// for case in regressions(text)? {
///     let family = seam_algebra::families::by_name(&case.family).ok_or("no such family")?;
///     assert!(case.check(&mut OracleSubject::new(family))?.holds(), "{case}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn regressions(text: &str) -> Result<Vec<Regression>, AlgebraError> {
    let mut cases = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |why: String| AlgebraError::Parse { line: number + 1, why };
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.splitn(3, ' ');
        let (Some(family), Some(law), Some(case)) = (words.next(), words.next(), words.next()) else {
            return Err(wrong("not of the form `family law Case { … }`".into()));
        };
        let case = case.parse().map_err(|error| match error {
            AlgebraError::Parse { why, .. } => wrong(why),
            other => other,
        })?;
        let law = Law::by_name(law).ok_or_else(|| wrong(format!("no law is called `{law}`")))?;
        cases.push(Regression { family: family.into(), law, case });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::laws::OracleSubject;

    /// Cases that were the worst of a long run or that once failed.
    const COMMITTED: &str = include_str!("../../regressions.txt");

    #[test]
    fn committed_cases_hold() {
        let cases = regressions(COMMITTED).unwrap();
        assert!(cases.len() >= 16);
        for case in &cases {
            let family = families::by_name(&case.family).unwrap_or_else(|| panic!("{case}"));
            let measured = case.check(&mut OracleSubject::new(family)).unwrap();
            assert!(measured.holds(), "{case}: {measured:?}");
            assert!(COMMITTED.contains(&case.to_string()), "{case} does not print as it was written");
        }
        let named = |name: &str| cases.iter().any(|case| case.family == name);
        assert!(families::all().iter().all(|f| named(f.name())), "a family without a case");
    }

    #[test]
    fn what_is_no_case_is_an_error_with_its_line() {
        let good = "gla chain Case { seed: 0x1, kind: Kind::Typical, tokens: 1, key_heads: 1, ratio: 1, key_dim: 4, value_dim: 4 }";
        assert_eq!(regressions(&format!("# a file\n\n{good} # why\n")).unwrap().len(), 1);
        for (from, to) in [("chain", "chains"), ("Typical", "Odd"), ("gla chain ", ""), (" Case", "")] {
            let text = format!("{good}\n{}", good.replace(from, to));
            assert!(matches!(regressions(&text), Err(AlgebraError::Parse { line: 2, .. })), "{text}");
        }
        let other = &regressions(good).unwrap()[0];
        let measured = other.check(&mut OracleSubject::default());
        assert!(matches!(measured, Err(SubjectError::NotApplicable { .. })));
    }
}
