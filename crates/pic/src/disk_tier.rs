//! Entries in a directory, one file each.
//!
//! A file `<key>.seam` is an entry in its [wire form](crate::wire). It is written under a temporary name in the same
//! directory, synced, renamed, and the directory is synced, so that a file with that name is whole, whatever happens.
//! Several processes may share a directory: temporary names are unique, and two that write one key write the same
//! bytes. A byte budget, if there is one, is kept by each process for the files it knows of: those found when it
//! opened the directory, and those it wrote or read since.
//!
//! What happens to a file that is no good:
//! * **Damaged** (ends early, a checksum or a length is wrong, another entry's key): a miss with the reason, and the
//!   file is removed. It would miss forever, it can be computed again from its tokens, and a copy moved aside would
//!   hold users' text outside of every budget and every deletion.
//! * **Foreign** (does not begin like an entry, or is no regular file): a miss, and a look-up leaves it alone, since
//!   nothing proves that this program made it. It is never counted, never evicted. Storing an entry of that name
//!   first moves it aside to `<key>.<n>.foreign`.
//! * **Other token ids under the right key**: a miss; the file is left alone, since it is right for its own tokens.
//! * **Unreadable** (permission, input/output error, no memory): a miss; the file is left alone.

mod error;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

pub use error::DiskError;

use crate::entry::EntryBlob;
use crate::files::{Files, SystemFiles, create_dir, sync_dir};
use crate::host_tier::TierStats;
use crate::key::EntryKey;
use crate::lru::Lru;
use crate::miss::{Lookup, MissReason};
use crate::wire::{self, Damage, EntryReader, MAGIC, ReadError, WriteError};

/// Temporary files older than this were left by a process that died. Younger ones may be being written.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// Makes temporary names unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// What storing an entry did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was written.
    Stored {
        /// Bytes of its file.
        bytes: u64,
        /// How many entries left for it.
        evicted: usize,
    },
    /// It was there, whoever wrote it.
    Present,
}

/// What was found when a directory was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Entries found and kept.
    pub entries: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries removed because the budget is smaller than what was found.
    pub evicted: usize,
    /// Leftover temporary files removed.
    pub leftovers: usize,
    /// Things with an entry's name that are foreign or could not be looked at; they were left alone.
    pub skipped: usize,
}

/// Entries in a directory. Shared by reference between threads.
#[derive(Debug)]
pub struct DiskTier {
    dir: PathBuf,
    files: Box<dyn Files>,
    report: OpenReport,
    index: Mutex<Lru>,
}

/// What lies where an entry's file belongs.
enum Existing {
    Nothing,
    /// It begins like an entry, or is too short to tell.
    Ours(u64),
    Foreign,
}

impl DiskTier {
    /// Opens the directory `dir`, which is made if it does not exist, with a budget in bytes or without.
    ///
    /// Removes temporary files that are older than an hour and, if there is a budget, the files modified longest ago
    /// until the rest fits. Entries are not read here: a damaged one is found when it is asked for.
    ///
    /// # Errors
    /// [`DiskError::NotADirectory`], [`DiskError::Unreadable`], [`DiskError::NotWritable`], [`DiskError::NoSpace`],
    /// [`DiskError::Write`].
    pub fn open(dir: impl AsRef<Path>, budget: Option<u64>) -> Result<Self, DiskError> {
        Self::open_with(dir.as_ref(), budget, Box::new(SystemFiles))
    }

    fn open_with(dir: &Path, budget: Option<u64>, files: Box<dyn Files>) -> Result<Self, DiskError> {
        let unreadable = |source| DiskError::Unreadable { dir: dir.to_owned(), source };
        match fs::metadata(dir) {
            Ok(meta) if !meta.is_dir() => return Err(DiskError::NotADirectory(dir.to_owned())),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => create_dir(dir).map_err(unreadable)?,
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(DiskError::NotADirectory(dir.to_owned()));
            }
            Err(e) => return Err(unreadable(e)),
        }
        let mut tier = Self {
            dir: dir.to_owned(),
            files,
            report: OpenReport::default(),
            index: Mutex::new(Lru::new(budget.unwrap_or(u64::MAX))),
        };
        tier.probe()?;
        tier.scan().map_err(unreadable)?;
        Ok(tier)
    }

    /// Writes, syncs and removes a small file: a tier that cannot store says so at once, not at the first entry.
    fn probe(&self) -> Result<(), DiskError> {
        let path = self.temporary(&EntryKey([0; 32]), "tmp");
        let result = self.files.create(&path).and_then(|mut file| {
            file.write_all(&MAGIC)?;
            file.sync()
        });
        let removed = fs::remove_file(&path);
        result.and(removed).map_err(|e| DiskError::write(&path, e))
    }

    fn scan(&mut self) -> io::Result<()> {
        let now = SystemTime::now();
        let mut found = Vec::new();
        for item in self.files.list(&self.dir)? {
            let item = item?;
            let name = item.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = item.path();
            if is_temporary(name) {
                // A time in the future, or none, is no proof of age.
                let age = fs::symlink_metadata(&path)
                    .and_then(|meta| meta.modified())
                    .ok()
                    .and_then(|time| now.duration_since(time).ok());
                if age.is_some_and(|age| age > LEFTOVER_AGE) && fs::remove_file(&path).is_ok() {
                    self.report.leftovers += 1;
                }
            } else if let Some(key) = key_of(name) {
                let modified = item.metadata().and_then(|meta| meta.modified());
                match (self.existing(&path), modified) {
                    (Ok(Existing::Ours(bytes)), Ok(time)) => found.push((time, key, bytes)),
                    (Ok(Existing::Nothing), _) => {}
                    _ => self.report.skipped += 1,
                }
            }
        }
        found.sort_unstable();
        let mut index = self.lock();
        let mut leaving = Vec::new();
        for (_, key, bytes) in found {
            match index.insert(key, bytes) {
                Ok(evicted) => leaving.extend(evicted),
                // Larger than the whole budget.
                Err(_) => leaving.push(key),
            }
        }
        for key in &leaving {
            // One that cannot be removed now is not counted; the next opening tries again.
            let _ = fs::remove_file(self.path(key));
        }
        let (entries, bytes) = (index.len(), index.used());
        drop(index);
        self.report.entries = entries;
        self.report.bytes = bytes;
        self.report.evicted = leaving.len();
        Ok(())
    }

    /// What was found when the directory was opened.
    #[must_use]
    pub const fn report(&self) -> OpenReport {
        self.report
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the tier holds, as far as this process knows. Without a budget, `budget` is [`u64::MAX`].
    #[must_use]
    pub fn stats(&self) -> TierStats {
        TierStats::from(&*self.lock())
    }

    /// The entry `key` of exactly the token ids `tokens`. A hit counts as use.
    #[must_use]
    pub fn get(&self, key: &EntryKey, tokens: &[u32]) -> Lookup<EntryBlob> {
        match self.open_entry(key, tokens) {
            Lookup::Hit(reader) => match reader.finish(Vec::new()) {
                Ok(entry) => Lookup::Hit(entry),
                Err(error) => Lookup::Miss(self.blame(key, error)),
            },
            Lookup::Miss(reason) => Lookup::Miss(reason),
        }
    }

    /// As [`DiskTier::get`], for a caller that takes the layers one by one. Such a caller passes an error of the
    /// reader to [`DiskTier::blame`].
    #[must_use]
    pub fn open_entry(&self, key: &EntryKey, tokens: &[u32]) -> Lookup<EntryReader<BufReader<File>>> {
        if self.lock().budget() == 0 {
            return Lookup::Miss(MissReason::Disabled);
        }
        let path = self.path(key);
        match self.existing(&path) {
            Ok(Existing::Ours(_)) => {}
            Ok(Existing::Foreign) => return Lookup::Miss(MissReason::Foreign),
            Ok(Existing::Nothing) => return Lookup::Miss(self.gone(key)),
            Err(error) => return Lookup::Miss(MissReason::Unreadable(error.kind())),
        }
        match self.read_header(&path, key, tokens) {
            Ok((reader, bytes)) => {
                self.count(key, bytes);
                Lookup::Hit(reader)
            }
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => Lookup::Miss(self.gone(key)),
            Err(error) => Lookup::Miss(self.blame(key, error)),
        }
    }

    fn read_header(
        &self,
        path: &Path,
        key: &EntryKey,
        tokens: &[u32],
    ) -> Result<(EntryReader<BufReader<File>>, u64), ReadError> {
        let file = self.files.open(path)?;
        let bytes = file.metadata()?.len();
        // The order of use outlives the process as the files' times; without permission it does not, no harm done.
        let _ = file.set_modified(SystemTime::now());
        let reader = EntryReader::new(BufReader::new(file), Some(bytes))?;
        reader.expect(key, tokens)?;
        Ok((reader, bytes))
    }

    /// Notes a file that was read; it may be one that another process wrote.
    fn count(&self, key: &EntryKey, bytes: u64) {
        let mut index = self.lock();
        if let Ok(evicted) = index.insert(*key, bytes) {
            self.remove_files(&evicted);
        }
    }

    /// There is no file: was there one?
    fn gone(&self, key: &EntryKey) -> MissReason {
        let mut index = self.lock();
        let known = index.remove(key).is_ok_and(|bytes| bytes > 0);
        if known || index.was_evicted(key) { MissReason::Evicted } else { MissReason::Absent }
    }

    /// The reason for a miss after `error` while reading entry `key`. Removes the file if it is damaged.
    ///
    /// If another process has just replaced the file, the good one goes with it: one entry to compute again.
    pub fn blame(&self, key: &EntryKey, error: ReadError) -> MissReason {
        match error {
            ReadError::Io(error) => MissReason::Unreadable(error.kind()),
            ReadError::Damage(Damage::Magic) => MissReason::Foreign,
            ReadError::Damage(Damage::TokensDiffer) => MissReason::TokensDiffer,
            ReadError::Damage(Damage::Memory(_)) => MissReason::Unreadable(io::ErrorKind::OutOfMemory),
            ReadError::Damage(damage) => {
                let mut index = self.lock();
                // Nothing is ever pinned here.
                let _ = index.remove(key);
                self.remove_files(&[*key]);
                MissReason::Damaged(damage)
            }
        }
    }

    /// Stores an entry. With a budget, those used longest ago leave; they do so only when the new file is safely
    /// written, so that for a moment the directory holds more than the budget by that file.
    ///
    /// # Errors
    /// Any [`DiskError`] but those of the directory. No temporary file remains.
    pub fn put(&self, entry: &EntryBlob) -> Result<Put, DiskError> {
        let key = entry.key();
        let path = self.path(&key);
        let bytes = wire::encoded_len(entry).map_err(DiskError::Entry)?;
        self.lock().check(bytes)?;
        let failed = |e| DiskError::write(&path, e);
        match self.existing(&path).map_err(failed)? {
            // Whole or not, it is the same length; a look-up finds out.
            Existing::Ours(found) if found == bytes => {
                self.count(&key, bytes);
                return Ok(Put::Present);
            }
            Existing::Ours(_) | Existing::Nothing => {}
            Existing::Foreign => {
                fs::rename(&path, self.temporary(&key, "foreign")).map_err(failed)?;
            }
        }
        let temporary = self.write_temporary(entry)?;
        let evicted = self.publish(&key, bytes, &temporary, &path).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
        sync_dir(&self.dir).map_err(failed)?;
        Ok(Put::Stored { bytes, evicted })
    }

    fn write_temporary(&self, entry: &EntryBlob) -> Result<PathBuf, DiskError> {
        let (path, sink) = loop {
            let path = self.temporary(&entry.key(), "tmp");
            match self.files.create(&path) {
                Ok(sink) => break (path, sink),
                // A process of the same number, on another machine or in another container. The counter moves on.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(DiskError::write(&path, e)),
            }
        };
        let written = (|| {
            let mut out = BufWriter::with_capacity(1 << 20, sink);
            wire::encode(entry, &mut out)?;
            out.flush()?;
            out.get_mut().sync()?;
            Ok(())
        })();
        match written {
            Ok(()) => Ok(path),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(match error {
                    WriteError::Io(e) => DiskError::write(&path, e),
                    other => DiskError::Entry(other),
                })
            }
        }
    }

    /// Gives a finished file its name. Under the lock, so that no other thread evicts it between the two steps.
    fn publish(&self, key: &EntryKey, bytes: u64, temporary: &Path, path: &Path) -> Result<usize, DiskError> {
        let mut index = self.lock();
        fs::rename(temporary, path).map_err(|e| DiskError::write(path, e))?;
        // It fits, as `put` has checked: nothing is ever pinned here.
        let evicted = index.insert(*key, bytes)?;
        self.remove_files(&evicted);
        Ok(evicted.len())
    }

    /// Removes an entry on request; `false` if it is not there. A foreign file is left alone.
    ///
    /// # Errors
    /// [`DiskError::NotWritable`], [`DiskError::Write`].
    pub fn remove(&self, key: &EntryKey) -> Result<bool, DiskError> {
        let path = self.path(key);
        let failed = |e| DiskError::write(&path, e);
        let mut index = self.lock();
        match self.existing(&path).map_err(failed)? {
            Existing::Ours(_) => fs::remove_file(&path).map_err(failed)?,
            Existing::Nothing | Existing::Foreign => return Ok(false),
        }
        let _ = index.remove(key);
        sync_dir(&self.dir).map_err(failed)?;
        Ok(true)
    }

    /// Best effort: a file that cannot be removed is found again at the next opening.
    fn remove_files(&self, keys: &[EntryKey]) {
        for key in keys {
            let _ = fs::remove_file(self.path(key));
        }
    }

    fn existing(&self, path: &Path) -> io::Result<Existing> {
        // Not following links: a file of this tier is never one, and opening a pipe would block.
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(e) => return Err(e),
        };
        if !meta.is_file() {
            return Ok(Existing::Foreign);
        }
        let mut start = Vec::new();
        match self.files.open(path) {
            Ok(file) => file.take(MAGIC.len() as u64).read_to_end(&mut start)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(e) => return Err(e),
        };
        Ok(if MAGIC.starts_with(&start) { Existing::Ours(meta.len()) } else { Existing::Foreign })
    }

    fn path(&self, key: &EntryKey) -> PathBuf {
        self.dir.join(format!("{key}.seam"))
    }

    fn temporary(&self, key: &EntryKey, extension: &str) -> PathBuf {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        self.dir.join(format!("{key}.{process}-{count}.{extension}"))
    }

    /// A panic under the lock can leave files that the index does not know, which the next opening finds.
    fn lock(&self) -> MutexGuard<'_, Lru> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a file named `<key>.seam`.
fn key_of(name: &str) -> Option<EntryKey> {
    name.strip_suffix(".seam")?.parse().ok()
}

/// Whether a name is one that [`DiskTier::temporary`] makes for files being written.
fn is_temporary(name: &str) -> bool {
    name.split_once('.').is_some_and(|(key, rest)| key.parse::<EntryKey>().is_ok() && rest.ends_with(".tmp"))
}
