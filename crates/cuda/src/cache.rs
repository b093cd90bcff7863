//! Compiled kernels on disk. A file is the checksum of its cubin, then the cubin; anything else is compiled again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a checksum.
const SUM: usize = blake3::OUT_LEN;

/// A folder of compiled kernels, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    dir: Option<PathBuf>,
}

/// `seam/cuda` in the user's folder for caches, if there is one.
pub(crate) fn default_dir() -> Option<PathBuf> {
    let var = |key: &str| std::env::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("seam").join("cuda"))
}

/// Names a compilation: everything its result depends on.
pub(crate) fn key(source: &str, options: &[String], version: (u32, u32)) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{}.{}\0{}\0", version.0, version.1, options.join("\0")).as_bytes());
    hasher.update(source.as_bytes());
    hasher.finalize().to_hex().to_string()
}

impl Cache {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// The cubin under `key`, if a whole one is there.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut bytes = std::fs::read(self.dir.as_ref()?.join(format!("{key}.cubin"))).ok()?;
        if bytes.len() <= SUM {
            return None;
        }
        let cubin = bytes.split_off(SUM);
        (*blake3::hash(&cubin).as_bytes() == bytes[..]).then_some(cubin)
    }

    /// Keeps a cubin. A folder that cannot be written keeps nothing: that costs time, no result.
    pub(crate) fn put(&self, key: &str, cubin: &[u8]) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(dir) = &self.dir else { return };
        let mut bytes = blake3::hash(cubin).as_bytes().to_vec();
        bytes.extend_from_slice(cubin);
        // Written aside and renamed, so that another process sees a whole file or none.
        let own = format!(".{key}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let aside = dir.join(own);
        let written = std::fs::create_dir_all(dir)
            .and_then(|()| std::fs::write(&aside, bytes))
            .and_then(|()| std::fs::rename(&aside, dir.join(format!("{key}.cubin"))));
        if written.is_err() {
            let _ = std::fs::remove_file(&aside);
        }
    }

    /// The cubin under `key`, from disk or from `compile`.
    ///
    /// # Errors
    /// What `compile` says.
    pub(crate) fn get_or<E>(&self, key: &str, compile: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        if let Some(cubin) = self.get(key) {
            return Ok(cubin);
        }
        let cubin = compile()?;
        self.put(key, &cubin);
        Ok(cubin)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::path::Path;

    use super::*;

    /// A compiler that counts how often it is asked.
    struct Fake(Cell<u32>);

    impl Fake {
        fn ask(&self, cache: &Cache, key: &str) -> Vec<u8> {
            let compile = || {
                self.0.set(self.0.get() + 1);
                Ok::<_, Infallible>(format!("code of {key}").into_bytes())
            };
            let Ok(cubin) = cache.get_or(key, compile);
            assert_eq!(cubin, format!("code of {key}").into_bytes());
            cubin
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn keys_tell_everything_apart() {
        let options = |o: &[&str]| o.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let keys = [
            key("a", &options(&["x", "y"]), (13, 0)),
            key("b", &options(&["x", "y"]), (13, 0)),
            key("a", &options(&["xy"]), (13, 0)),
            key("a", &options(&["x", "y"]), (13, 1)),
            key("a", &options(&["x"]), (13, 0)),
        ];
        let all: std::collections::HashSet<&String> = keys.iter().collect();
        assert_eq!(all.len(), keys.len());
        assert_eq!(key("a", &options(&["x"]), (13, 0)), keys[4]);
    }

    #[test]
    fn a_kernel_is_compiled_once_and_broken_files_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made/when/needed");
        let (cache, fake) = (Cache::new(Some(folder.clone())), Fake(Cell::new(0)));
        fake.ask(&cache, "k");
        fake.ask(&cache, "k");
        fake.ask(&Cache::new(Some(folder.clone())), "k");
        assert_eq!(fake.0.get(), 1);
        assert_eq!(names(&folder), ["k.cubin"], "nothing is left aside");
        let file = folder.join("k.cubin");
        let whole = std::fs::read(&file).unwrap();
        let flipped: Vec<u8> = whole.iter().enumerate().map(|(i, b)| if i == 40 { b ^ 1 } else { *b }).collect();
        let broken: [&[u8]; 5] = [b"", &whole[..20], &whole[..32], &whole[..whole.len() - 1], &flipped];
        for (i, bytes) in broken.iter().enumerate() {
            std::fs::write(&file, bytes).unwrap();
            fake.ask(&cache, "k");
            assert_eq!(fake.0.get(), 2 + i as u32, "file {i} is broken");
            assert_eq!(std::fs::read(&file).unwrap(), whole, "and written again");
        }
    }

    /// A folder that cannot be one stands for every folder that cannot be written, also where tests run as root.
    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let fake = Fake(Cell::new(0));
        for cache in [Cache::new(Some(file.join("below"))), Cache::new(None)] {
            fake.ask(&cache, "k");
            fake.ask(&cache, "k");
        }
        assert_eq!(fake.0.get(), 4);
        assert_eq!(names(dir.path()), ["file"]);
    }

    /// Writers of one key at once: readers see whole files only, and no remains.
    #[test]
    fn writers_at_once_leave_whole_files() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().to_path_buf()));
        let cubin = vec![7u8; 1 << 20];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        cache.put("k", &cubin);
                        assert_eq!(cache.get("k").as_ref(), Some(&cubin), "a file is whole once it is there");
                    }
                });
            }
        });
        assert_eq!(names(dir.path()), ["k.cubin"]);
    }

    #[test]
    fn a_compiler_error_is_passed_on_and_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().to_path_buf()));
        assert_eq!(cache.get_or("k", || Err::<Vec<u8>, _>("line 3")), Err("line 3"));
        assert_eq!(names(dir.path()), [""; 0]);
    }
}
