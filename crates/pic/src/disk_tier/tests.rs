//! Tests of the disk tier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;
use crate::files::Sink;
use crate::testing::blob;

const TOKENS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// A directory that is removed when the test ends.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("seam-pic-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn path(&self, entry: &EntryBlob) -> PathBuf {
        self.0.join(format!("{}.seam", entry.key()))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn get(tier: &DiskTier, entry: &EntryBlob) -> Lookup<EntryBlob> {
    tier.get(&entry.key(), &entry.header().tokens)
}

fn miss(tier: &DiskTier, entry: &EntryBlob) -> MissReason {
    get(tier, entry).miss().expect("a miss").clone()
}

fn age(path: &Path, seconds: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

/// The bytes one of these entries takes on disk.
fn file_bytes() -> u64 {
    wire::encoded_len(&blob("a", &TOKENS)).unwrap()
}

#[test]
fn an_entry_outlives_the_tier() {
    let dir = TempDir::new();
    let entry = blob("a", &TOKENS);
    let tier = DiskTier::open(&dir.0, None).unwrap();
    assert_eq!(miss(&tier, &entry), MissReason::Absent);
    assert_eq!(tier.put(&entry).unwrap(), Put::Stored { bytes: file_bytes(), evicted: 0 });
    assert_eq!(tier.put(&entry).unwrap(), Put::Present);
    assert_eq!(get(&tier, &entry), Lookup::Hit(entry.clone()));
    let again = DiskTier::open(&dir.0, None).unwrap();
    assert_eq!((again.report().entries, again.report().bytes), (1, file_bytes()));
    assert_eq!(get(&again, &entry), Lookup::Hit(entry.clone()));
    assert_eq!(dir.names(), [format!("{}.seam", entry.key())]);
    assert!(again.remove(&entry.key()).unwrap());
    assert!(!again.remove(&entry.key()).unwrap());
    assert_eq!(again.stats().entries, 0);
    // The other tier learns of it when it looks.
    assert_eq!(miss(&tier, &entry), MissReason::Evicted);
    assert_eq!(tier.stats().entries, 0);
}

#[test]
fn a_damaged_file_is_a_reasoned_miss_and_is_written_anew() {
    let dir = TempDir::new();
    let (entry, other) = (blob("a", &TOKENS), blob("b", &TOKENS));
    let tier = DiskTier::open(&dir.0, None).unwrap();
    tier.put(&entry).unwrap();
    let good = fs::read(dir.path(&entry)).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let mut other_bytes = Vec::new();
    wire::encode(&other, &mut other_bytes).unwrap();
    type Expected = fn(&Damage) -> bool;
    let cases: [(Vec<u8>, Expected); 5] = [
        (flipped, |d| matches!(d, Damage::BlockChecksum(3))),
        (good[..good.len() - 1].to_vec(), |d| matches!(d, Damage::Truncated { .. })),
        (Vec::new(), |d| matches!(d, Damage::Truncated { .. })),
        ([&good[..], b"x"].concat(), |d| matches!(d, Damage::Trailing)),
        (other_bytes, |d| matches!(d, Damage::OtherKey { .. })),
    ];
    for (bytes, expected) in cases {
        fs::write(dir.path(&entry), bytes).unwrap();
        let reason = miss(&tier, &entry);
        assert!(matches!(&reason, MissReason::Damaged(d) if expected(d)), "{reason}");
        assert_eq!(dir.names(), Vec::<String>::new());
        assert_eq!(miss(&tier, &entry), MissReason::Absent);
        assert!(matches!(tier.put(&entry).unwrap(), Put::Stored { .. }));
        assert_eq!(get(&tier, &entry), Lookup::Hit(entry.clone()));
    }
    // A shorter file under the name is replaced without being asked for first.
    fs::write(dir.path(&entry), &good[..50]).unwrap();
    assert!(matches!(tier.put(&entry).unwrap(), Put::Stored { .. }));
    assert_eq!(fs::read(dir.path(&entry)).unwrap(), good);
}

#[test]
fn damage_in_a_later_layer_is_found_by_a_reader_too() {
    let dir = TempDir::new();
    let entry = blob("a", &TOKENS);
    let tier = DiskTier::open(&dir.0, None).unwrap();
    tier.put(&entry).unwrap();
    let mut bytes = fs::read(dir.path(&entry)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(dir.path(&entry), bytes).unwrap();
    let mut reader = tier.open_entry(&entry.key(), &TOKENS).hit().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().block, entry.blocks()[0].as_slice());
    let error = reader.next().unwrap().unwrap_err();
    let reason = tier.blame(&entry.key(), error);
    assert_eq!(reason, MissReason::Damaged(Damage::BlockChecksum(3)));
    assert!(dir.names().is_empty());
    assert_eq!(tier.stats(), TierStats { budget: u64::MAX, ..TierStats::default() });
}

#[test]
fn a_foreign_file_is_never_destroyed() {
    let dir = TempDir::new();
    let entry = blob("a", &TOKENS);
    fs::write(dir.path(&entry), b"somebody's notes").unwrap();
    fs::write(dir.0.join("README"), b"x").unwrap();
    fs::write(dir.0.join("short.seam"), b"x").unwrap();
    // The smallest budget: eviction would take whatever it may.
    let tier = DiskTier::open(&dir.0, Some(file_bytes())).unwrap();
    assert_eq!(tier.report(), OpenReport { skipped: 1, ..OpenReport::default() });
    assert_eq!(miss(&tier, &entry), MissReason::Foreign);
    assert!(!tier.remove(&entry.key()).unwrap());
    assert_eq!(fs::read(dir.path(&entry)).unwrap(), b"somebody's notes");
    assert!(matches!(tier.put(&entry).unwrap(), Put::Stored { evicted: 0, .. }));
    assert_eq!(get(&tier, &entry), Lookup::Hit(entry.clone()));
    let aside = dir.names().into_iter().find(|n| n.ends_with(".foreign")).unwrap();
    assert_eq!(fs::read(dir.0.join(aside)).unwrap(), b"somebody's notes");
    tier.put(&blob("b", &TOKENS)).unwrap();
    assert_eq!(dir.names().len(), 4, "{:?}", dir.names());
}

#[test]
fn a_directory_or_link_with_an_entrys_name_is_foreign() {
    let dir = TempDir::new();
    let (entry, other) = (blob("a", &TOKENS), blob("b", &TOKENS));
    fs::create_dir(dir.path(&entry)).unwrap();
    let tier = DiskTier::open(&dir.0, None).unwrap();
    assert_eq!(miss(&tier, &entry), MissReason::Foreign);
    tier.put(&entry).unwrap();
    assert_eq!(get(&tier, &entry), Lookup::Hit(entry.clone()));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(dir.path(&entry), dir.path(&other)).unwrap();
        assert_eq!(miss(&tier, &other), MissReason::Foreign);
    }
    tier.put(&other).unwrap();
    assert_eq!(get(&tier, &other), Lookup::Hit(other));
    assert_eq!(get(&tier, &entry), Lookup::Hit(entry));
}

#[test]
fn other_token_ids_are_a_miss_and_the_file_stays() {
    let dir = TempDir::new();
    let entry = blob("a", &TOKENS);
    let tier = DiskTier::open(&dir.0, None).unwrap();
    tier.put(&entry).unwrap();
    assert_eq!(tier.get(&entry.key(), &TOKENS[..9]), Lookup::Miss(MissReason::TokensDiffer));
    assert_eq!(get(&tier, &entry), Lookup::Hit(entry));
}

#[test]
fn leftovers_older_than_an_hour_are_cleaned_and_no_others() {
    let dir = TempDir::new();
    let key = blob("a", &TOKENS).key();
    let [old, young, future, unrelated] =
        [format!("{key}.1-7.tmp"), format!("{key}.1-8.tmp"), format!("{key}.1-9.tmp"), "mine.tmp".to_owned()];
    for name in [&old, &young, &future, &unrelated] {
        fs::write(dir.0.join(name), b"half an entry").unwrap();
    }
    age(&dir.0.join(&old), 3700);
    age(&dir.0.join(&young), 3500);
    age(&dir.0.join(&unrelated), 7200);
    let file = File::options().write(true).open(dir.0.join(&future)).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(7200)).unwrap();
    let tier = DiskTier::open(&dir.0, None).unwrap();
    assert_eq!(tier.report().leftovers, 1);
    let mut kept = [young, future, unrelated];
    kept.sort();
    assert_eq!(dir.names(), kept);
}

#[test]
fn the_file_modified_longest_ago_leaves_first_after_opening() {
    let dir = TempDir::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|tenant| blob(tenant, &TOKENS));
    let writer = DiskTier::open(&dir.0, None).unwrap();
    for entry in [&a, &b, &c] {
        writer.put(entry).unwrap();
    }
    age(&dir.path(&a), 20);
    age(&dir.path(&b), 30);
    age(&dir.path(&c), 10);
    // Room for two: `b` goes at once.
    let tier = DiskTier::open(&dir.0, Some(2 * file_bytes() + 1)).unwrap();
    assert_eq!((tier.report().entries, tier.report().evicted), (2, 1));
    assert!(!dir.path(&b).exists());
    // In use order from here on: `a` is read, so `c` goes next.
    assert!(get(&tier, &a).hit().is_some());
    assert_eq!(tier.put(&d).unwrap(), Put::Stored { bytes: file_bytes(), evicted: 1 });
    assert_eq!(miss(&tier, &c), MissReason::Evicted);
    assert_eq!(miss(&tier, &b), MissReason::Evicted);
    assert_eq!(tier.stats().bytes, 2 * file_bytes());
    // The read of `a` outlives the process as its time.
    let modified = |e: &EntryBlob| fs::metadata(dir.path(e)).unwrap().modified().unwrap();
    assert!(SystemTime::now().duration_since(modified(&a)).unwrap_or_default().as_secs() < 10);
}

#[test]
fn an_entry_beyond_the_budget_is_refused_and_evicts_nothing() {
    let dir = TempDir::new();
    let (small, large) = (blob("a", &TOKENS), blob("b", &[5; 500]));
    let tier = DiskTier::open(&dir.0, Some(file_bytes())).unwrap();
    tier.put(&small).unwrap();
    assert!(matches!(tier.put(&large), Err(DiskError::Full(full)) if full.larger_than_budget()));
    assert_eq!(get(&tier, &small), Lookup::Hit(small.clone()));
    let off = DiskTier::open(&dir.0, Some(0)).unwrap();
    assert_eq!(miss(&off, &small), MissReason::Disabled);
    assert!(matches!(off.put(&small), Err(DiskError::Full(_))));
}

#[test]
fn a_file_written_by_another_process_is_a_hit_and_counts() {
    let dir = TempDir::new();
    let (a, b) = (blob("a", &TOKENS), blob("b", &TOKENS));
    let ours = DiskTier::open(&dir.0, Some(file_bytes())).unwrap();
    let theirs = DiskTier::open(&dir.0, None).unwrap();
    ours.put(&a).unwrap();
    theirs.put(&b).unwrap();
    assert_eq!(get(&ours, &b), Lookup::Hit(b));
    assert_eq!(ours.stats().bytes, file_bytes());
    assert_eq!(miss(&ours, &a), MissReason::Evicted);
}

#[test]
fn writers_of_one_key_do_not_disturb_each_other() {
    let dir = TempDir::new();
    let entry = blob("a", &[9; 2000]);
    let tiers: Vec<_> = (0..2).map(|_| DiskTier::open(&dir.0, None).unwrap()).collect();
    let (hits, start) = (AtomicUsize::new(0), std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (tier, entry, hits, start) = (&tiers[i % 2], &entry, &hits, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..20 {
                    tier.put(entry).unwrap();
                    // Whole, or removed by the other thread a moment ago: never damaged.
                    match get(tier, entry) {
                        Lookup::Hit(got) => {
                            assert_eq!(&got, entry);
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                        Lookup::Miss(reason) => {
                            assert!(matches!(reason, MissReason::Absent | MissReason::Evicted), "{reason}");
                        }
                    }
                    if i == 0 {
                        let _ = fs::remove_file(tier.path(&entry.key()));
                    }
                }
            });
        }
    });
    assert!(hits.into_inner() > 0);
    tiers[0].put(&entry).unwrap();
    assert_eq!(dir.names(), [format!("{}.seam", entry.key())]);
}

#[test]
fn paths_that_are_no_directory_are_named() {
    let dir = TempDir::new();
    let file = dir.0.join("file");
    fs::write(&file, b"x").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = DiskTier::open(&path, None).unwrap_err();
        assert!(matches!(&error, DiskError::NotADirectory(p) if *p == path), "{error}");
    }
    let deep = dir.0.join("a/b/c");
    let tier = DiskTier::open(&deep, None).unwrap();
    tier.put(&blob("a", &TOKENS)).unwrap();
    assert!(tier.dir().is_dir());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&deep), 0o700);
        assert_eq!(mode(&tier.path(&blob("a", &TOKENS).key())), 0o600);
    }
}

/// A file system that fails on demand.
#[derive(Debug, Default)]
struct Faulty {
    /// Bytes that can be written until the disk is full.
    room: Arc<AtomicUsize>,
    full: Arc<AtomicBool>,
    sync: Option<io::ErrorKind>,
    create: Option<io::ErrorKind>,
    open: Option<io::ErrorKind>,
    list: Option<io::ErrorKind>,
}

struct FaultySink {
    file: Box<dyn Sink>,
    room: Option<Arc<AtomicUsize>>,
    sync: Option<io::ErrorKind>,
}

impl Write for FaultySink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Some(room) = &self.room else {
            return self.file.write(buf);
        };
        let n = buf.len().min(room.load(Ordering::Relaxed));
        if n == 0 && !buf.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = self.file.write(&buf[..n])?;
        room.fetch_sub(n, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for FaultySink {
    fn sync(&mut self) -> io::Result<()> {
        self.sync.map_or_else(|| self.file.sync(), |kind| Err(kind.into()))
    }
}

fn fail(kind: Option<io::ErrorKind>) -> io::Result<()> {
    kind.map_or(Ok(()), |kind| Err(kind.into()))
}

impl Files for Faulty {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        fail(self.create)?;
        let limited = self.full.load(Ordering::Relaxed);
        Ok(Box::new(FaultySink {
            file: SystemFiles.create(path)?,
            room: limited.then(|| Arc::clone(&self.room)),
            sync: self.sync.filter(|_| limited),
        }))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        fail(self.open)?;
        SystemFiles.open(path)
    }

    fn list(&self, dir: &Path) -> io::Result<fs::ReadDir> {
        fail(self.list)?;
        SystemFiles.list(dir)
    }
}

#[test]
fn a_full_disk_loses_nothing_that_is_stored() {
    let dir = TempDir::new();
    let (kept, entry) = (blob("a", &TOKENS), blob("b", &TOKENS));
    let faulty = Faulty::default();
    let (room, full) = (Arc::clone(&faulty.room), Arc::clone(&faulty.full));
    // Room for one: storing `entry` would evict `kept`.
    let tier = DiskTier::open_with(&dir.0, Some(file_bytes()), Box::new(faulty)).unwrap();
    tier.put(&kept).unwrap();
    full.store(true, Ordering::Relaxed);
    for bytes in [0, 1, 100, file_bytes() as usize - 1] {
        room.store(bytes, Ordering::Relaxed);
        let error = tier.put(&entry).unwrap_err();
        assert!(matches!(error, DiskError::NoSpace { .. }), "{error}");
        assert_eq!(dir.names(), [format!("{}.seam", kept.key())]);
        assert_eq!(get(&tier, &kept), Lookup::Hit(kept.clone()));
    }
    room.store(file_bytes() as usize, Ordering::Relaxed);
    assert!(matches!(tier.put(&entry).unwrap(), Put::Stored { evicted: 1, .. }));
    assert_eq!(get(&tier, &entry), Lookup::Hit(entry));
}

#[test]
fn a_failed_sync_publishes_nothing() {
    let dir = TempDir::new();
    let faulty = Faulty { sync: Some(io::ErrorKind::Other), ..Faulty::default() };
    let (room, full) = (Arc::clone(&faulty.room), Arc::clone(&faulty.full));
    let tier = DiskTier::open_with(&dir.0, None, Box::new(faulty)).unwrap();
    room.store(1 << 20, Ordering::Relaxed);
    full.store(true, Ordering::Relaxed);
    let entry = blob("a", &TOKENS);
    assert!(matches!(tier.put(&entry), Err(DiskError::Write { .. })));
    assert!(dir.names().is_empty());
    assert_eq!(miss(&tier, &entry), MissReason::Absent);
    assert_eq!(tier.stats().entries, 0);
}

#[test]
fn directories_that_cannot_be_used_are_told_apart() {
    let dir = TempDir::new();
    let open = |faulty| DiskTier::open_with(&dir.0, None, Box::new(faulty)).unwrap_err();
    for kind in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied] {
        let error = open(Faulty { create: Some(kind), ..Faulty::default() });
        assert!(matches!(&error, DiskError::NotWritable { source, .. } if source.kind() == kind));
    }
    let kind = io::ErrorKind::PermissionDenied;
    let error = open(Faulty { list: Some(kind), ..Faulty::default() });
    assert!(matches!(&error, DiskError::Unreadable { source, .. } if source.kind() == kind));
    assert!(error.to_string().contains(dir.0.to_str().unwrap()));
    let full = Faulty { full: Arc::new(AtomicBool::new(true)), ..Faulty::default() };
    assert!(matches!(open(full), DiskError::NoSpace { .. }));
    assert!(dir.names().is_empty());
}

#[test]
fn a_file_that_cannot_be_read_is_a_miss_and_stays() {
    let dir = TempDir::new();
    let entry = blob("a", &TOKENS);
    DiskTier::open(&dir.0, None).unwrap().put(&entry).unwrap();
    let faulty = Faulty { open: Some(io::ErrorKind::PermissionDenied), ..Faulty::default() };
    let tier = DiskTier::open_with(&dir.0, None, Box::new(faulty)).unwrap();
    assert_eq!(tier.report().skipped, 1);
    assert_eq!(miss(&tier, &entry), MissReason::Unreadable(io::ErrorKind::PermissionDenied));
    assert!(dir.path(&entry).exists());
}
