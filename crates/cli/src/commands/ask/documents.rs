//! Reading documents.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The largest document that is read. A token has about four bytes, so no context holds more.
const MAX_BYTES: u64 = 64 << 20;

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// The file, as the user named it.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
}

/// Reads the documents.
///
/// # Errors
/// A message that names the file: unreadable, no file, empty, not UTF-8, or too large.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>> {
    paths.iter().map(|path| read(path, MAX_BYTES)).collect()
}

fn read(path: &Path, max: u64) -> Result<Document> {
    let name = path.display().to_string();
    let meta = std::fs::metadata(path).with_context(|| format!("cannot read the document {name}"))?;
    if meta.is_dir() {
        bail!("the document {name} is a folder");
    }
    if meta.len() > max {
        bail!("the document {name} has {} bytes, at most {max} are read", meta.len());
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the document {name}"))?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => bail!("the document {name} is not UTF-8: byte {} cannot be read", e.utf8_error().valid_up_to()),
    };
    // A byte order mark is no text; it would only make other tokens of the same document.
    let text = text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned);
    if text.trim().is_empty() {
        bail!("the document {name} is empty");
    }
    Ok(Document { name, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("seam-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn bad_files_are_named_with_what_is_wrong() {
        let dir = Folder::new("documents");
        let cases = [
            (dir.file("empty.txt", b""), "is empty"),
            (dir.file("blank.txt", b" \n\t"), "is empty"),
            (dir.file("latin1.txt", b"caf\xe9 au lait"), "not UTF-8: byte 3"),
            (dir.file("huge.txt", &[b'a'; 101]), "has 101 bytes, at most 100"),
            (dir.0.join("absent.txt"), "cannot read"),
            (dir.0.clone(), "is a folder"),
        ];
        for (path, what) in &cases {
            let error = read(path, 100).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_dropped_and_nothing_else() {
        let dir = Folder::new("bom");
        let document = read(&dir.file("a.txt", "\u{feff} text \n".as_bytes()), 100).unwrap();
        assert_eq!(document.text, " text \n");
    }
}
