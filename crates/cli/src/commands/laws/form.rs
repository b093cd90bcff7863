//! Which forms of a device's kernels: the option `--form`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What `--form` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FormChoice {
    /// Every form.
    #[default]
    All,
    /// Token by token.
    Recurrent,
    /// By chunks of tokens.
    Chunk,
}

const NAMED: [(&str, FormChoice); 3] =
    [("all", FormChoice::All), ("recurrent", FormChoice::Recurrent), ("chunk", FormChoice::Chunk)];

/// No such form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParseFormError(String);

impl fmt::Display for ParseFormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown form {:?}: expected recurrent, chunk or all", self.0)
    }
}

impl std::error::Error for ParseFormError {}

impl FromStr for FormChoice {
    type Err = ParseFormError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let found = NAMED.iter().find(|(name, _)| *name == s);
        found.map(|(_, form)| *form).ok_or_else(|| ParseFormError(s.to_owned()))
    }
}

impl fmt::Display for FormChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMED.iter().find(|(_, form)| form == self).map_or("", |(name, _)| name))
    }
}

impl FormChoice {
    /// Whether a subject of this name is asked for. Device subjects are called `device (name)/form`.
    pub(super) fn takes(self, subject: &str) -> bool {
        self == Self::All || subject.rsplit_once('/').is_some_and(|(_, form)| form == self.to_string())
    }

    /// `recurrent kernel`, or `kernel` where any form would do.
    pub(super) fn kernel(self) -> String {
        if self == Self::All { "kernel".to_owned() } else { format!("{self} kernel") }
    }
}

/// What a subject is called in tables: `float64 oracle`, `cpu/chunk`. Names of devices are long, and the heading has them.
pub(super) fn label(subject: &str) -> String {
    if subject.starts_with("oracle/") {
        return "float64 oracle".to_owned();
    }
    let device = subject.split([' ', '/']).next().unwrap_or_default();
    match subject.rsplit_once('/') {
        Some((_, form)) if NAMED.iter().any(|(name, _)| *name == form) => format!("{device}/{form}"),
        _ => subject.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_chosen_by_name() {
        for (name, form) in NAMED {
            assert_eq!(name.parse(), Ok(form));
            assert_eq!(form.to_string(), name);
        }
        let error = "Chunk".parse::<FormChoice>().unwrap_err().to_string();
        assert_eq!(error, "unknown form \"Chunk\": expected recurrent, chunk or all");
        assert!(FormChoice::Chunk.takes("cpu (a/b)/chunk") && !FormChoice::Chunk.takes("cpu (chunk)/recurrent"));
        assert!(FormChoice::All.takes("any") && !FormChoice::Recurrent.takes("any"));
        assert_eq!((FormChoice::All.kernel(), FormChoice::Chunk.kernel()), ("kernel".into(), "chunk kernel".into()));
    }

    #[test]
    fn labels_leave_out_the_name_of_the_device() {
        let labels = ["oracle/kda", "wgpu (llvmpipe (LLVM 15, 256 bits))/chunk", "cpu (8 threads)"].map(label);
        assert_eq!(labels, ["float64 oracle", "wgpu/chunk", "cpu (8 threads)"]);
    }
}
