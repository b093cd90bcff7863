//! Exhausted memory, in a process of its own: while memory is exhausted, others on the same GPU have none either.

#![allow(clippy::print_stdout, reason = "what happened and what was skipped is printed")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seam_device::{Buffer, BufferUse, Device, DeviceError};
use seam_engine::{Engine, Request};
use seam_pic::Mode;
use seam_tests::{cuda, fixture, options, request, said, works};

const MODEL: &str = "qwen3_5_dense_tied";

/// One test at a time: they share the GPU's memory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU's whole memory cannot be had, for its context takes some: a typed error, after which everything works.
#[test]
fn exhausted_memory_is_an_error() {
    let _alone = alone();
    let Some(device) = cuda() else { return };
    let error = device.alloc("all of it", device.caps().max_buffer, BufferUse::Storage).expect_err("too much");
    assert!(matches!(&error, DeviceError::OutOfMemory { label, .. } if label == "all of it"), "{error}");
    works(&device);
}

/// Takes all memory that the device gives, in ever smaller pieces.
fn fill(device: &Arc<dyn Device>) -> Vec<Buffer> {
    let mut taken = Vec::new();
    let mut size = 8u64 << 30;
    while size >= 4096 {
        match device.alloc("filling", size, BufferUse::Storage) {
            Ok(buffer) => taken.push(buffer),
            Err(DeviceError::OutOfMemory { .. }) => size /= 2,
            Err(DeviceError::TooLarge { .. }) => size /= 2,
            Err(other) => panic!("{other}"),
        }
    }
    taken
}

/// The card is full in the middle of things: loading a model and answering are typed errors or right answers, and after
/// memory is there again everything is right.
#[test]
fn requests_survive_exhausted_memory() {
    let _alone = alone();
    let Some(device) = cuda() else { return };
    let small = request(&[3, 8, 8, 2], 320, Mode::Transition, 4, 1);
    let large = Request { max_new: 8, ..request(&[40, 700, 900, 800, 30], 320, Mode::Transition, 8, 2) };
    let answer = |engine: &mut Engine, request: &Request| engine.answer(request, &mut |_| {}).map(|a| a.tokens);
    let load = || Engine::load(Arc::clone(&device), &fixture(MODEL), options());
    let mut reference = load().expect("engine");
    let expected = [&small, &large].map(|r| answer(&mut reference, r).expect("answer"));
    drop(reference);
    let mut engine = load().expect("engine");
    assert_eq!(answer(&mut engine, &small).expect("answer"), expected[0]);
    let taken = fill(&device);
    println!("{} pieces fill the memory", taken.len());
    let Err(error) = load() else { panic!("a model was loaded into no memory") };
    assert!(said(&error).contains("out of memory"), "{}", said(&error));
    match answer(&mut engine, &large) {
        Ok(tokens) => {
            println!("the engine had the memory that it needed");
            assert_eq!(tokens, expected[1]);
        }
        Err(error) => {
            println!("refused: {}", said(&error));
            assert!(said(&error).contains("out of memory"), "{}", said(&error));
        }
    }
    drop(taken);
    works(&device);
    for _ in 0..2 {
        assert_eq!(answer(&mut engine, &small).expect("answer"), expected[0]);
        assert_eq!(answer(&mut engine, &large).expect("answer"), expected[1]);
    }
    let mut anew = load().expect("engine");
    assert_eq!(answer(&mut anew, &large).expect("answer"), expected[1]);
}
