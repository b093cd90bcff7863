//! Entries on their way between device, host memory and a directory.

use std::fs;
use std::path::Path;

use seam_engine::{Answer, Engine, EngineOptions, Request};
use seam_pic::{Budgets, Mode, Tier};
use seam_tests::{cpu, devices, engine, fixture, options, request};

const MODEL: &str = "qwen3_5_dense_tied";
const LENGTHS: [usize; 4] = [11, 40, 23, 9];

fn ask(engine: &mut Engine, request: &Request) -> Answer {
    engine.answer(request, &mut |_| {}).expect("answer")
}

fn with_dir(dir: &Path) -> EngineOptions {
    EngineOptions { cache_dir: Some(dir.to_owned()), ..options() }
}

fn hits(answer: &Answer) -> Vec<Option<Tier>> {
    answer.segments[..answer.segments.len() - 1].iter().map(|s| s.hit).collect()
}

/// What was evicted from the device comes back from host memory with the same bits.
#[test]
fn evicted_entries_come_back_from_host_memory() {
    for device in devices() {
        let request = request(&LENGTHS, 320, Mode::Transition, 8, 1);
        let mut roomy = engine(&device, &fixture(MODEL), &options());
        let expected = roomy.score(&request, &[1, 2]).expect("score");
        let bytes = roomy.cache().device_tier().stats().bytes;
        // Room for these entries and not one more.
        let budgets = Budgets { device: bytes, host: 64 << 20, disk: None };
        let mut engine = engine(&device, &fixture(MODEL), &EngineOptions { budgets, ..options() });
        engine.score(&request, &[1, 2]).expect("cold");
        let other = seam_tests::request(&[12, 41, 24, 9], 320, Mode::Transition, 8, 2);
        ask(&mut engine, &other);
        assert!(engine.cache().host_tier().stats().entries >= 2, "evicted entries moved down");
        let answer = ask(&mut engine, &request);
        assert!(answer.work.cold_rows == 0 || hits(&answer).contains(&Some(Tier::Host)), "{:?}", answer.segments);
        assert!(hits(&answer).contains(&Some(Tier::Host)), "{:?}", answer.segments);
        assert!(answer.work.uploaded_bytes > 0);
        assert_eq!(engine.score(&request, &[1, 2]).expect("warm"), expected);
    }
}

/// A new process finds the entries of an old one in the directory.
#[test]
fn a_directory_outlives_the_engine() {
    for device in devices() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let request = request(&LENGTHS, 320, Mode::Transition, 8, 3);
        let expected = {
            let mut engine = engine(&device, &fixture(MODEL), &with_dir(dir.path()));
            engine.score(&request, &[1, 2]).expect("cold")
        };
        assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 3, "one file an entry");
        let mut engine = engine(&device, &fixture(MODEL), &with_dir(dir.path()));
        let answer = ask(&mut engine, &request);
        assert_eq!(hits(&answer), [Some(Tier::Disk); 3]);
        assert_eq!(answer.work.cold_rows, 0);
        assert_eq!(engine.score(&request, &[1, 2]).expect("warm"), expected, "the same bits");
    }
}

/// A damaged file, a foreign file, and one of another model are misses with a reason; the answer is right.
#[test]
fn damaged_and_foreign_files_are_misses() {
    let device = cpu();
    let dir = tempfile::tempdir().expect("temporary folder");
    let request = request(&LENGTHS, 320, Mode::Transition, 8, 4);
    let expected = engine(&device, &fixture(MODEL), &with_dir(dir.path())).score(&request, &[1]).expect("cold");
    let mut files: Vec<_> = fs::read_dir(dir.path()).expect("directory").map(|e| e.expect("entry").path()).collect();
    files.sort();
    let mut damaged = fs::read(&files[0]).expect("file");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&files[0], damaged).expect("write");
    fs::write(&files[1], b"not an entry at all").expect("write");
    let truncated = fs::read(&files[2]).expect("file");
    fs::write(&files[2], &truncated[..truncated.len() - 7]).expect("write");
    let mut engine = engine(&device, &fixture(MODEL), &with_dir(dir.path()));
    let answer = ask(&mut engine, &request);
    let mut misses: Vec<&str> = answer.segments[..3].iter().filter_map(|s| s.miss).collect();
    misses.sort_unstable();
    assert_eq!(misses, ["damaged", "damaged", "foreign"], "{:?}", answer.segments);
    assert_eq!(engine.score(&request, &[1]).expect("recomputed"), expected);
    // They were written again.
    let mut again = seam_tests::engine(&device, &fixture(MODEL), &with_dir(dir.path()));
    assert_eq!(hits(&ask(&mut again, &request)), [Some(Tier::Disk); 3]);
    // The same tokens under another model are other entries.
    let mut other = seam_tests::engine(&device, &fixture("qwen3_5_dense"), &with_dir(dir.path()));
    let narrow =
        Request { segments: request.segments.iter().map(|s| s.iter().map(|t| t % 256).collect()).collect(), ..request };
    assert!(hits(&ask(&mut other, &narrow)).iter().all(Option::is_none));
}

/// A directory that cannot be used is an error that names it; one that becomes unusable is a warning.
#[test]
fn an_unusable_directory() {
    let device = cpu();
    let dir = tempfile::tempdir().expect("temporary folder");
    let file = dir.path().join("file");
    fs::write(&file, b"x").expect("write");
    let error = Engine::load(device.clone(), &fixture(MODEL), with_dir(&file)).err().expect("a file is no directory");
    assert!(error.to_string().contains("file"), "{error}");
    let gone = dir.path().join("gone");
    let mut engine = engine(&device, &fixture(MODEL), &with_dir(&gone));
    fs::remove_dir_all(&gone).expect("remove");
    let request = request(&LENGTHS, 320, Mode::Transition, 8, 5);
    let answer = ask(&mut engine, &request);
    assert_eq!(answer.work.cold_rows, 11 + 40 + 23);
    let warnings = engine.warnings();
    assert!(warnings.iter().any(|w| w.tier == Tier::Disk), "{warnings:?}");
    assert_eq!(ask(&mut engine, &request).work.cold_rows, 0, "the device tier has them all the same");
}

/// Without room in the device tier segments are computed under their true prefix, and the report says so.
#[test]
fn a_device_tier_without_room() {
    let device = cpu();
    let request = request(&LENGTHS, 320, Mode::Transition, 8, 6);
    let budgets = Budgets { device: 1, host: 0, disk: None };
    let mut tiny = engine(&device, &fixture(MODEL), &EngineOptions { budgets, ..options() });
    let answer = ask(&mut tiny, &request);
    assert!(answer.segments[..3].iter().all(|s| s.miss == Some("no_room")), "{:?}", answer.segments);
    assert_eq!(answer.work.cold_rows, 0);
    assert_eq!(answer.work.prompt_rows, 83);
    let full = tiny.score(&Request { mode: Mode::Full, ..request.clone() }, &[1]).expect("full");
    let error = seam_tests::relative(&tiny.score(&request, &[1]).expect("score"), &full);
    assert!(error <= 1e-5, "nothing was spliced, so it is exact: {error:.1e}");
    let budgets = Budgets { device: 0, host: 0, disk: None };
    let mut off = engine(&device, &fixture(MODEL), &EngineOptions { budgets, ..options() });
    assert!(ask(&mut off, &request).segments[..3].iter().all(|s| s.miss == Some("disabled")));
}

/// The reason of a miss tells of an entry of the same tokens at another seam width.
#[test]
fn another_seam_width_is_another_entry() {
    let device = cpu();
    let mut engine = engine(&device, &fixture(MODEL), &options());
    let request = request(&LENGTHS, 320, Mode::Transition, 8, 7);
    ask(&mut engine, &request);
    let answer = ask(&mut engine, &Request { seam: 4, ..request.clone() });
    assert_eq!(hits(&answer), [Some(Tier::Device), None, None], "the head has no seam");
    assert_eq!(answer.segments[1].miss, Some("other_seam"));
    // Addition reads the same entries as transition; last-state needs others.
    assert_eq!(ask(&mut engine, &Request { mode: Mode::Addition, ..request.clone() }).work.cold_rows, 0);
    assert_eq!(ask(&mut engine, &Request { mode: Mode::LastState, ..request }).work.cold_rows, 63);
}
