//! Reading evaluation sets: one JSON object a line, plain or gzipped.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use seam_engine::quality::EvalPrompt;

/// The largest set that is read, unpacked: far more than any sensible one, and it protects against gzip bombs.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a set.
///
/// # Errors
/// A message that names the file, and the line where one is no prompt.
pub(crate) fn read(path: &Path) -> Result<Vec<EvalPrompt>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the evaluation set {}", path.display()))?;
    parse(&bytes, MAX_BYTES).with_context(|| format!("the evaluation set {}", path.display()))
}

fn parse(bytes: &[u8], max: u64) -> Result<Vec<EvalPrompt>> {
    let mut text = String::new();
    let plain: &mut dyn Read =
        if bytes.starts_with(&[0x1f, 0x8b]) { &mut MultiGzDecoder::new(bytes) } else { &mut &*bytes };
    plain.take(max + 1).read_to_string(&mut text).context("is neither text nor gzipped text")?;
    if text.len() as u64 > max {
        bail!("has more than {max} bytes");
    }
    let mut prompts = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        prompts.push(serde_json::from_str(line).with_context(|| format!("line {} is not a prompt", i + 1))?);
    }
    if prompts.is_empty() {
        bail!("holds no prompts");
    }
    Ok(prompts)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINE: &str = r#"{"type":"single","system":"s","docs":["a","b"],"question":"q","answer":" x","tokens":7}"#;

    #[test]
    fn plain_and_gzipped_sets_read_the_same() {
        let text = format!("{LINE}\n\n{}\n", LINE.replace(",\"tokens\":7", ""));
        let plain = parse(text.as_bytes(), 1000).unwrap();
        assert_eq!((plain.len(), plain[0].kind.as_str(), plain[0].tokens, plain[1].tokens), (2, "single", 7, 0));
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        assert_eq!(parse(&gz.finish().unwrap(), 1000).unwrap(), plain);
    }

    #[test]
    fn broken_sets_are_refused_by_line() {
        let error = |bytes: &[u8], max| format!("{:#}", parse(bytes, max).unwrap_err());
        assert!(error(format!("{LINE}\n{{\n").as_bytes(), 1000).contains("line 2"));
        assert!(error(b"\n", 1000).contains("no prompts"));
        assert!(error(LINE.as_bytes(), 10).contains("more than 10 bytes"));
        assert!(error(&[0xff, 0xfe, 0x00], 1000).contains("neither text"));
        assert!(error(&[0x1f, 0x8b, 0x08, 0x00], 1000).contains("neither text"));
    }
}
