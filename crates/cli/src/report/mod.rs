//! What all commands print with: text and JSON on standard output, notes on standard error, numbers, tables, plots.

mod curves;
mod format;
mod gauge;
mod plot;
mod progress;
mod style;
mod table;

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;

pub(crate) use curves::{Curve, CurvePanel, Legend, curves};
pub(crate) use format::{bytes, clean, count, duration, millis, ratio, short};
pub(crate) use gauge::{Gauge, GaugePanel, GaugeRow, gauges, stacked};
pub(crate) use plot::{COLOURS, FONT, Panel, Scale, Series, plot_error, svg};
pub(crate) use progress::Progress;
pub(crate) use style::{heading, verdict};
pub(crate) use table::{Column, Table};

/// The option every reporting command has.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

impl OutputArgs {
    /// Prints the document, or the text.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn emit<T: Serialize>(self, document: &T, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            let mut json = serde_json::to_string_pretty(document)?;
            json.push('\n');
            print(&json)
        } else {
            print(&text())
        }
    }
}

/// Writes to standard output at once.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a line to standard error. If that fails there is nowhere left to say so.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// `error: …: caused by …`, in one line.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    format!("error: {}", causes(error))
}

/// The error and its causes. Many errors print their cause themselves; it is then not said twice.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": caused by ");
            text.push_str(&cause);
        }
    }
    text
}

/// Whether standard output was closed by its reader.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_is_one_chain_that_says_nothing_twice() {
        let io = io::Error::other("disk on fire");
        let error = Err::<(), _>(io).context("cannot read a.txt").context("document 1").unwrap_err();
        assert_eq!(chain(&error), "error: document 1: caused by cannot read a.txt: caused by disk on fire");
        let io = io::Error::other("disk on fire");
        let error = Err::<(), _>(io).context("cannot read a.txt: disk on fire").unwrap_err();
        assert_eq!(chain(&error), "error: cannot read a.txt: disk on fire");
    }

    #[test]
    fn a_closed_pipe_is_recognised_through_the_chain() {
        let error = |kind| Err::<(), _>(io::Error::from(kind)).context("printing").unwrap_err();
        assert!(is_broken_pipe(&error(io::ErrorKind::BrokenPipe)));
        assert!(!is_broken_pipe(&error(io::ErrorKind::NotFound)));
    }
}
