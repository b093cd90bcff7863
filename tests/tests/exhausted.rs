//! Exhausted memory and lost devices, in a process of its own: while memory is exhausted, others on the same GPU have none
//! either, and a device that is lost takes every other of its process along.

#![allow(clippy::print_stdout, reason = "what happened and what was skipped is printed")]

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seam_device::{Buffer, BufferUse, Device, DeviceError, DeviceKind, Dispatch, Lane};
use seam_engine::{Engine, Request};
use seam_kernels::gather::{GATHER_ROWS, GatherParams};
use seam_kernels::tables::{HEADER, LOGIT_TABLE, LOGITS};
use seam_pic::Mode;
use seam_tests::{cpu, cuda, devices, fixture, options, own_cuda, request};

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
    for device in devices().iter().filter(|d| d.caps().kind == DeviceKind::Cuda) {
        let error = device.alloc("all of it", device.caps().max_buffer, BufferUse::Storage).expect_err("too much");
        assert!(matches!(&error, DeviceError::OutOfMemory { label, .. } if label == "all of it"), "{error}");
        works(device);
    }
}

fn works(device: &Arc<dyn Device>) {
    let after = device.alloc("after", 1 << 16, BufferUse::Storage).expect("a little");
    let bytes = device.read(&after.all(), &[]).expect("read").wait().expect("wait");
    assert!(bytes.len() == 1 << 16 && bytes.iter().all(|&b| b == 0), "new memory reads as zero");
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

/// An error with all its causes.
fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source()).map(|cause| format!(": {cause}"));
    error.to_string() + &causes.collect::<String>()
}

/// Set for the process that loses its device.
const CHILD: &str = "SEAM_TEST_LOSES_ITS_DEVICE";

/// A kernel reads memory that does not exist. The driver then refuses every call of the process: each is answered by
/// [`DeviceError::Lost`], the process lives, its cpu device works, and so does this process, which is another.
#[test]
fn a_lost_device_takes_nothing_else_along() {
    let _alone = alone();
    let Some(device) = cuda() else { return };
    if std::env::var_os(CHILD).is_some() {
        return lose();
    }
    works(&device);
    let name = "a_lost_device_takes_nothing_else_along";
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().expect("child");
    let text = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(child.status.success(), "{text}");
    assert!(text.contains("the device was lost and the process lives"), "{text}");
    works(&device);
    let mut engine = Engine::load(Arc::clone(&device), &fixture(MODEL), options()).expect("engine");
    engine.answer(&request(&[3, 8, 2], 320, Mode::Full, 0, 1), &mut |_| {}).expect("answer");
}

fn lose() {
    let device: Arc<dyn Device> = own_cuda(&seam_cuda::Options::default()).expect("the parent has one");
    let mut engine = Engine::load(Arc::clone(&device), &fixture(MODEL), options()).expect("engine");
    let ask = request(&[3, 8, 2], 320, Mode::Full, 0, 1);
    let expected = engine.answer(&ask, &mut |_| {}).expect("answer").tokens;
    let alloc = |label| device.alloc(label, 4096, BufferUse::Storage).expect("alloc");
    let (tables, x, out) = (alloc("tables"), alloc("x"), alloc("out"));
    let mut words = vec![0u32; 1024];
    // One logit, of row 1: rows are as far apart as words can count.
    (words[LOGITS], words[LOGIT_TABLE], words[HEADER]) = (1, HEADER as u32, 1);
    device.write(&tables.all(), bytemuck::cast_slice(&words)).expect("write");
    let list = |width: u32| {
        let mut recorder = device.recorder();
        let dispatch = Dispatch {
            kernel: GATHER_ROWS.id,
            constants: Vec::new(),
            params: bytemuck::bytes_of(&GatherParams { width, pad: [0; 3] }).to_vec(),
            bindings: vec![tables.all(), x.all(), out.all()],
            grid: [1, 1, 1],
        };
        recorder.dispatch(dispatch).expect("dispatch");
        recorder.finish().expect("list")
    };
    let idle = device.recorder().finish().expect("list");
    let before = device.submit(&idle, Lane::Compute, &[]).expect("submit");
    device.wait(before).expect("wait");
    let reader = device.read(&x.all(), &[]).expect("read");
    let mut lost = None;
    for width in [u32::MAX - 63, 3 << 30, 2 << 30, 1 << 30] {
        let answer = device.submit(&list(width), Lane::Compute, &[]).and_then(|ticket| device.wait(ticket));
        if let Err(error) = answer {
            lost = Some(error);
            break;
        }
    }
    let error = lost.expect("memory that does not exist was read");
    println!("{error}");
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    let mut recorder = device.recorder();
    recorder.zero(&x.all()).expect("recording needs no driver");
    let calls = [
        ("alloc", device.alloc("more", 4096, BufferUse::Storage).err()),
        ("pinned", device.alloc("more", 4096, BufferUse::Readback).err()),
        ("write", device.write(&x.all(), &[0; 4]).err()),
        ("read", device.read(&x.all(), &[]).err()),
        ("submit", device.submit(&idle, Lane::Compute, &[]).err()),
        ("submit to the copy lane", device.submit(&idle, Lane::Copy, &[]).err()),
        ("poll", device.poll(before).err()),
        ("wait", device.wait(before).err()),
        ("finish", recorder.finish().err()),
        ("a read that was under way", reader.wait().err()),
    ];
    for (call, error) in calls {
        assert!(matches!(error, Some(DeviceError::Lost { .. })), "{call}: {error:?}");
    }
    assert_eq!(device.elapsed(before).map(|_| ()), None);
    let asked = engine.answer(&ask, &mut |_| {}).map(|a| a.tokens);
    let error = asked.expect_err("the engine's device is lost");
    assert!(said(&error).contains("was lost"), "{}", said(&error));
    // The context is the process's: another device cannot be opened, which is said.
    match seam_cuda::CudaDevice::open(&seam_cuda::Options::default()) {
        Err(DeviceError::Unavailable { .. } | DeviceError::Lost { .. }) => (),
        Ok(_) => println!("the driver gave the process another context"),
        Err(other) => panic!("{other}"),
    }
    let mut on_cpu = Engine::load(cpu(), &fixture(MODEL), options()).expect("engine");
    let tokens = on_cpu.answer(&ask, &mut |_| {}).expect("the cpu goes on").tokens;
    assert_eq!(tokens.len(), expected.len());
    drop((engine, tables, x, out, device));
    println!("the device was lost and the process lives");
}
