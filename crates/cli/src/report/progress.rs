//! Progress on standard error; silent when that is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with the time that is left, or a spinner where the end is not known.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `len` steps.
    pub(crate) fn bar(len: usize, what: &str) -> Self {
        let bar = ProgressBar::new(len as u64);
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}, {eta} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// A spinner.
    pub(crate) fn spinner(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style.tick_chars("|/-\\ "));
        }
        bar.enable_steady_tick(std::time::Duration::from_millis(120));
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// One step further.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// What is being done now.
    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    /// The bar leaves no trace: what matters is in the report.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
