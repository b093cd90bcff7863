//! Colours, on a terminal only; no meaning rests on them.

use std::io::{IsTerminal, stdout};

/// Whether standard output takes colours.
fn coloured() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn paint(code: &str, text: &str) -> String {
    if coloured() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// A heading: a line of its own.
pub(crate) fn heading(text: &str) -> String {
    paint("1", text)
}

/// A line of outcome, green or red.
pub(crate) fn verdict(passed: bool, text: &str) -> String {
    paint(if passed { "32" } else { "31;1" }, text)
}

/// A line of a table that says something failed.
pub(super) fn failed_line(line: &str) -> String {
    paint("31", line)
}
