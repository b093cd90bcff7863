//! A device that is lost takes every other of its process along: so this is a process of its own, which has no device while
//! another one loses its.

#![allow(clippy::print_stdout, reason = "what happened and what was skipped is printed")]

use std::process::Command;
use std::sync::Arc;

use seam_device::{BufferUse, Device, DeviceError, Dispatch, Lane};
use seam_engine::Engine;
use seam_kernels::gather::{GATHER_ROWS, GatherParams};
use seam_kernels::tables::{HEADER, LOGIT_TABLE, LOGITS};
use seam_pic::Mode;
use seam_tests::{cpu, cuda, fixture, options, own_cuda, request, said, works};

const MODEL: &str = "qwen3_5_dense_tied";

/// Set for the process that loses its device.
const CHILD: &str = "SEAM_TEST_LOSES_ITS_DEVICE";

/// A kernel reads memory that does not exist. The driver then refuses every call of the process: each is answered by
/// [`DeviceError::Lost`], the process lives, its cpu device works, and so does this process, which is another.
#[test]
fn a_lost_device_takes_nothing_else_along() {
    if std::env::var_os(CHILD).is_some() {
        return lose();
    }
    let name = "a_lost_device_takes_nothing_else_along";
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().expect("child");
    let text = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(child.status.success(), "{text}");
    // Says why it was skipped, where there is no GPU.
    let Some(device) = cuda() else { return };
    assert!(text.contains("the device was lost and the process lives"), "{text}");
    works(&device);
    let mut engine = Engine::load(Arc::clone(&device), &fixture(MODEL), options()).expect("engine");
    engine.answer(&request(&[3, 8, 2], 320, Mode::Full, 0, 1), &mut |_| {}).expect("answer");
}

fn lose() {
    let Some(device) = own_cuda(&seam_cuda::Options::default()) else { return };
    let device: Arc<dyn Device> = device;
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
