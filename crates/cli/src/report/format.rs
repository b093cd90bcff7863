//! Numbers and texts for people.

use std::time::Duration;

/// `12,345`.
pub(crate) fn count(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().unwrap_or(u64::MAX).to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `312 B`, `1.5 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        // What would be printed as 1024.0 belongs to the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") }
}

/// `640 µs`, `12.3 ms`, `1.24 s`.
pub(crate) fn duration(d: Duration) -> String {
    let s = d.as_secs_f64();
    match s {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Milliseconds, for JSON.
pub(crate) fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// `3.2e-5`; `-` for nothing to say.
pub(crate) fn ratio(x: Option<f64>) -> String {
    match x {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(x) if x.is_finite() => format!("{x:.1e}"),
        Some(_) => "not finite".to_owned(),
    }
}

/// Text that cannot move a terminal's cursor: control characters other than line feed and tab become U+FFFD.
pub(crate) fn clean(text: &str) -> String {
    let visible = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(visible).collect()
}

/// The text in one line of at most `width` characters; what is cut shows as `…`.
pub(crate) fn short(text: &str, width: usize) -> String {
    let line: Vec<char> = clean(text).split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    if line.len() <= width {
        return line.into_iter().collect();
    }
    line.into_iter().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!([0u64, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1023, 1024, 1 << 20, (1 << 20) - 1].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB"]
        );
        let times = [320_000, 12_340_000, 1_240_000_000].map(Duration::from_nanos);
        assert_eq!(times.map(duration), ["320 µs", "12.3 ms", "1.24 s"]);
        assert_eq!(
            [None, Some(0.0), Some(3.21e-5), Some(f64::INFINITY)].map(ratio),
            ["-", "0", "3.2e-5", "not finite"]
        );
    }

    #[test]
    fn texts_cannot_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\tc\n"), "a\u{fffd}[31mb\tc\n");
        assert_eq!(short("one two\nthree", 8), "one two…");
        assert_eq!(short(" é ", 1), "é");
    }
}
