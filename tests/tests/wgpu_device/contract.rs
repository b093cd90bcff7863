//! The contract of the backend on wgpu: errors, copies, replay, tickets, counters, two devices of one adapter, loss.

use std::sync::Arc;
use std::time::Duration;

use bytemuck::bytes_of;
use seam_device::{
    Buffer, BufferRange, BufferUse, DType, Device, DeviceError, Dispatch, Gemm, HostBytes, Lane, Recorder, Stats,
};
use seam_kernels::elementwise::{ElementParams, SWIGLU};
use seam_kernels::embed::{EMBED, EmbedParams};
use seam_kernels::manifest::MANIFEST;
use seam_kernels::tables::ROWS;
use seam_wgpu::{AdapterChoice, Options, WgpuDevice, adapters};

use crate::harness::{Random, Tables, download, floats, gpus, to_words, upload, words};

/// A device of this test's own, for counters and for losing it.
fn own(options: &Options) -> Option<Arc<WgpuDevice>> {
    gpus()?;
    Some(WgpuDevice::open(options).unwrap())
}

fn swiglu(tables: BufferRange, up: BufferRange, x: BufferRange, width: u32, rows: u32) -> Dispatch {
    let params = ElementParams { width, head: 0, pad: [0; 2] };
    Dispatch {
        kernel: SWIGLU.id,
        constants: vec![],
        params: bytes_of(&params).to_vec(),
        bindings: vec![tables, up, x],
        grid: [width.div_ceil(64), rows, 1],
    }
}

/// Whether an error is of a kind.
macro_rules! refused {
    ($result:expr, $pattern:pat) => {{
        let error = $result.err().expect("it must be refused");
        assert!(matches!(error, $pattern), "{error}");
        error.to_string()
    }};
}

#[test]
fn every_adapter_is_reported() {
    let Some(devices) = gpus() else { return };
    let all = adapters();
    let best = devices[0].caps();
    let report = all.iter().find(|a| a.name == best.name).expect("the opened adapter is listed");
    assert_eq!(report.usable, Ok(()));
    assert_eq!(report.limits.max_binding, best.max_binding);
    assert!(best.max_binding.is_multiple_of(256) && best.max_binding >= 128 << 20, "{}", best.max_binding);
    assert!(MANIFEST.iter().all(|k| best.kernels.contains(k.id) == k.wgsl.is_some()), "what has WGSL");
    let open = |adapter| WgpuDevice::open(&Options { adapter: Some(adapter), ..Options::default() });
    let reason = refused!(open(AdapterChoice::Name("no such card".into())), DeviceError::Unavailable { .. });
    assert!(reason.contains(&best.name), "{reason} names what there is");
    refused!(open(AdapterChoice::Index(all.len())), DeviceError::Unavailable { .. });
    let part = best.name.chars().take(6).collect::<String>().to_uppercase();
    assert_eq!(open(AdapterChoice::Name(part)).unwrap().caps().name, best.name);
}

#[test]
fn bad_dispatches_are_refused_and_leave_the_recorder_as_it_was() {
    let Some(devices) = gpus() else { return };
    let device = &devices[0];
    let tables = upload(device, &Tables::new(2, 0).0);
    let [up, x] = [1.0, 2.0].map(|v| upload(device, &words(&[v; 512])));
    let good = || swiglu(tables.all(), up.all(), x.all(), 4, 2);
    let mut recorder = device.recorder();

    let foreign = upload(&devices[1], &[0; 64]);
    let mut refuse = |change: &dyn Fn(&mut Dispatch)| {
        let mut dispatch = good();
        change(&mut dispatch);
        recorder.dispatch(dispatch).expect_err("it must be refused")
    };
    let error = refuse(&|d| d.bindings[1] = foreign.all());
    assert!(matches!(error, DeviceError::ForeignBuffer { .. }), "{error}");
    let error = refuse(&|d| d.bindings[1].offset = 128);
    assert!(matches!(error, DeviceError::OutOfRange { .. }), "{error}");
    let error = refuse(&|d| d.bindings[1] = up.range(128, 1024).unwrap());
    assert!(matches!(error, DeviceError::Misaligned { align: 256, .. }), "{error}");
    let error = refuse(&|d| d.bindings[1] = x.range(256, 256).unwrap());
    assert!(matches!(error, DeviceError::Aliased { .. }), "{error}");
    let constant = device.constant("weights", HostBytes::from_vec(vec![0; 64])).unwrap();
    let error = refuse(&|d| d.bindings[2] = constant.all());
    assert!(matches!(error, DeviceError::ReadOnly { .. }), "{error}");
    let readback = device.alloc("back", 64, BufferUse::Readback).unwrap();
    let changes: [&dyn Fn(&mut Dispatch); 8] = [
        &|d| d.grid[1] = 0,
        &|d| d.grid[0] = device.caps().max_grid + 1,
        &|d| d.constants.push(1),
        &|d| d.params.truncate(12),
        &|d| drop(d.bindings.pop()),
        &|d| d.bindings[2].len = 0,
        &|d| d.bindings[2] = readback.all(),
        &|d| d.kernel = seam_device::KernelId(999),
    ];
    for (i, change) in changes.iter().enumerate() {
        let error = refuse(change);
        assert!(matches!(error, DeviceError::BadDispatch { .. }), "change {i}: {error}");
    }
    let params = bytes_of(&EmbedParams { width: 1, first: 0, count: 1, pad: 0 }).to_vec();
    let bindings = vec![tables.all(), up.all(), x.all()];
    let illegal = Dispatch { kernel: EMBED.id, constants: vec![2], params, bindings, grid: [1; 3] };
    let reason = refused!(recorder.dispatch(illegal), DeviceError::BadDispatch { .. });
    assert!(reason.contains("BF16 = 2"), "{reason}");

    // What was refused has left no trace: the one good launch runs once.
    recorder.dispatch(good()).unwrap();
    let list = recorder.finish().unwrap();
    assert_eq!((list.dispatches(), device.passes(&list)), (1, Some(1)));
    let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
    device.wait(ticket).unwrap();
    let silu = 2.0 / (1.0 + (-2.0f32).exp());
    let got = floats(&download(device, &x.all()));
    assert!(got[..8].iter().all(|x| (x - silu).abs() < 1e-6) && got[8..] == [2.0; 504], "{:?}", &got[..9]);
    refused!(devices[1].submit(&list, Lane::Compute, &[]), DeviceError::ForeignBuffer { .. });
    refused!(devices[1].submit(&list, Lane::Compute, &[ticket]), DeviceError::ForeignBuffer { .. });
    refused!(devices[1].wait(ticket), DeviceError::ForeignBuffer { .. });
}

#[test]
fn bad_products_are_refused() {
    let Some(devices) = gpus() else { return };
    let device = &devices[0];
    let [a, w, c] = [64, 64, 64].map(|n| upload(device, &vec![0; n]));
    let good = Gemm {
        m: 4,
        n: 4,
        k: 8,
        lda: 8,
        ldc: 4,
        c_column: 0,
        weight: DType::F32,
        accumulate: false,
        a: a.all(),
        w: w.all(),
        c: c.all(),
        scales: None,
        rows: None,
    };
    let mut recorder = device.recorder();
    refused!(recorder.gemm(Gemm { weight: DType::F16, ..good.clone() }), DeviceError::Unsupported { .. });
    refused!(recorder.gemm(Gemm { k: 6, ..good.clone() }), DeviceError::BadDispatch { .. });
    refused!(recorder.gemm(Gemm { n: 9, ldc: 9, ..good.clone() }), DeviceError::BadDispatch { .. });
    refused!(recorder.gemm(Gemm { rows: Some((w.all(), 64)), ..good.clone() }), DeviceError::BadDispatch { .. });
    refused!(recorder.gemm(Gemm { c: a.all(), ..good.clone() }), DeviceError::Aliased { .. });
    // A and W may be one buffer: nothing is written to it.
    recorder.gemm(Gemm { w: a.all(), ..good }).unwrap();
}

#[test]
fn sizes_have_limits() {
    let Some(device) = own(&Options { max_binding: Some(4096), checked: true, ..Options::default() }) else { return };
    assert_eq!(device.caps().max_binding, 4096);
    let limit = device.caps().max_buffer;
    for bytes in [limit + 4, u64::MAX] {
        refused!(device.alloc("huge", bytes, BufferUse::Storage), DeviceError::TooLarge { .. });
    }
    // The device goes on working, and a buffer above the binding limit is bound in parts.
    let x = device.alloc("two bindings", 8192, BufferUse::Storage).unwrap();
    device.write(&x.all(), bytemuck::cast_slice(&[1.0f32; 2048])).unwrap();
    let tables = upload(&device, &Tables::new(1, 0).0);
    let up = upload(&device, &words(&[3.0; 1024]));
    let mut recorder = device.recorder();
    let whole = swiglu(tables.all(), up.all(), x.all(), 1024, 1);
    refused!(recorder.dispatch(whole), DeviceError::TooLarge { limit: 4096, .. });
    recorder.dispatch(swiglu(tables.all(), up.all(), x.range(4096, 4096).unwrap(), 1024, 1)).unwrap();
    let list = recorder.finish().unwrap();
    device.submit(&list, Lane::Compute, &[]).unwrap();
    let got = floats(&download(&device, &x.all()));
    assert!(
        got[..1024] == [1.0; 1024] && got[1024..].iter().all(|x| (x - 2.193_175_6).abs() < 1e-5),
        "{:?}",
        got[1024]
    );
}

#[test]
fn copies_zeroes_and_reads_of_any_range() {
    let Some(devices) = gpus() else { return };
    let device = &devices[0];
    let numbers: Vec<u32> = (0..32).collect();
    let [a, b] = [upload(device, &numbers), upload(device, &[7; 32])];
    let back = device.alloc("back", 64, BufferUse::Readback).unwrap();
    let odd = device.constant("odd", HostBytes::from_vec((1..=7).collect())).unwrap();
    assert_eq!(odd.bytes(), 8, "padded to a word");
    let mut recorder = device.recorder();
    let part = |buffer: &Buffer, word: u64, words: u64| buffer.range(4 * word, 4 * words).unwrap();
    recorder.copy(&part(&a, 4, 8), &part(&b, 1, 8)).unwrap();
    // Within one buffer, apart.
    recorder.copy(&part(&b, 0, 4), &part(&b, 20, 4)).unwrap();
    recorder.zero(&part(&b, 30, 2)).unwrap();
    recorder.copy(&part(&b, 0, 8), &part(&back, 2, 8)).unwrap();
    recorder.copy(&odd.all(), &part(&back, 10, 2)).unwrap();
    recorder.copy(&part(&a, 0, 0), &part(&b, 0, 0)).unwrap();

    refused!(recorder.copy(&part(&a, 0, 4), &part(&a, 3, 4)), DeviceError::BadDispatch { .. });
    refused!(recorder.copy(&part(&a, 0, 4), &part(&b, 0, 3)), DeviceError::BadDispatch { .. });
    refused!(recorder.copy(&a.range(2, 4).unwrap(), &part(&b, 0, 1)), DeviceError::Misaligned { .. });
    refused!(recorder.copy(&part(&back, 0, 1), &part(&b, 0, 1)), DeviceError::BadDispatch { .. });
    refused!(recorder.copy(&part(&a, 0, 2), &odd.all()), DeviceError::ReadOnly { .. });
    refused!(recorder.zero(&odd.all()), DeviceError::ReadOnly { .. });
    refused!(recorder.zero(&b.range(0, 6).unwrap()), DeviceError::Misaligned { .. });
    let foreign = upload(&devices[1], &[0]);
    refused!(recorder.zero(&foreign.all()), DeviceError::ForeignBuffer { .. });
    refused!(device.write(&odd.all(), &[0; 8]), DeviceError::ReadOnly { .. });
    refused!(device.write(&part(&a, 31, 1), &[0; 8]), DeviceError::OutOfRange { .. });
    refused!(device.write(&foreign.all(), &[0; 4]), DeviceError::ForeignBuffer { .. });
    refused!(device.read(&foreign.all(), &[]), DeviceError::ForeignBuffer { .. });

    let list = recorder.finish().unwrap();
    assert_eq!((list.dispatches(), device.passes(&list)), (0, Some(0)));
    let ticket = device.submit(&list, Lane::Copy, &[]).unwrap();
    let got = download(device, &b.all());
    let mut want = vec![7; 32];
    want[1..9].copy_from_slice(&numbers[4..12]);
    want[20..24].copy_from_slice(&[7, 4, 5, 6]);
    want[30..].fill(0);
    assert_eq!(got, want);
    // Two readers of one readback buffer at a time, at odd offsets; a third is dropped unread.
    let read = |offset, len| device.read(&back.range(offset, len).unwrap(), &[ticket]).unwrap();
    let (first, second, third) = (read(8, 32), read(41, 5), read(0, 64));
    drop(third);
    assert_eq!(to_words(&first.wait().unwrap()), want[..8]);
    assert_eq!(second.wait().unwrap(), [2, 3, 4, 5, 6]);
    assert_eq!(read(44, 4).wait().unwrap(), [5, 6, 7, 0]);
    // It can be written again after the readers are gone.
    device.submit(&list, Lane::Copy, &[ticket]).unwrap();
    assert_eq!(device.read(&a.range(5, 3).unwrap(), &[]).unwrap().wait().unwrap(), [0, 0, 0]);
    assert_eq!(device.read(&a.range(3, 6).unwrap(), &[]).unwrap().wait().unwrap(), [0, 1, 0, 0, 0, 2]);
    assert_eq!(device.read(&a.range(8, 0).unwrap(), &[]).unwrap().wait().unwrap(), [0u8; 0]);
}

/// A list runs again with what the tables say then, and copies between launches cost a pass each.
#[test]
fn a_list_is_replayed_with_changed_tables() {
    let Some(devices) = gpus() else { return };
    for device in devices {
        let tables = upload(device, &Tables::new(1, 0).0);
        let [up, x] = [1.0, 1.0].map(|v| upload(device, &words(&[v; 512])));
        let mut recorder = device.recorder();
        for _ in 0..3 {
            recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 8)).unwrap();
        }
        recorder.zero(&x.range(4 * 30, 4).unwrap()).unwrap();
        recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 8)).unwrap();
        let list = recorder.finish().unwrap();
        assert_eq!((list.dispatches(), device.passes(&list)), (4, Some(2)));
        let silu = |mut v: f32, times: usize| {
            (0..times).for_each(|_| v /= 1.0 + (-v).exp());
            v
        };
        let mut ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
        let first = floats(&download(device, &x.all()));
        device.write(&tables.range(4 * ROWS as u64, 4).unwrap(), &3u32.to_le_bytes()).unwrap();
        ticket = device.submit(&list, Lane::Compute, &[ticket]).unwrap();
        device.wait(ticket).unwrap();
        let second = floats(&download(device, &x.all()));
        let check = |got: &[f32], times: [usize; 3]| {
            for (row, times) in times.into_iter().enumerate() {
                assert!((got[4 * row] - silu(1.0, times)).abs() < 1e-6, "row {row}: {} after {times}", got[4 * row]);
            }
            assert_eq!((got[30], got[31]), (0.0, 1.0));
        };
        check(&first, [4, 0, 0]);
        check(&second, [8, 4, 4]);
    }
}

#[test]
fn counters_are_exact_and_memory_returns() {
    let Some(device) = own(&Options::default()) else { return };
    assert_eq!(device.stats(), Stats::default());
    let tables = upload(&device, &Tables::new(1, 0).0);
    let [up, x] = [1.0, 2.0].map(|v| upload(&device, &words(&[v; 64])));
    let back = device.alloc("back", 13, BufferUse::Readback).unwrap();
    let constant = device.constant("c", HostBytes::from_vec(vec![1; 5])).unwrap();
    let stats = device.stats();
    assert_eq!(stats.allocated, 32 * 4 + 2 * 256 + 16 + 8);
    assert_eq!(stats.written, 32 * 4 + 2 * 256 + 5);
    let mut recorder = device.recorder();
    recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 1)).unwrap();
    recorder.copy(&x.range(0, 16).unwrap(), &back.all()).unwrap();
    recorder.copy(&x.range(0, 16).unwrap(), &x.range(32, 16).unwrap()).unwrap();
    let list = recorder.finish().unwrap();
    let before = device.stats();
    assert_eq!(Stats { submissions: 0, dispatches: 0, ..before }, before, "recording runs nothing");
    let tickets: Vec<_> = (0..3).map(|_| device.submit(&list, Lane::Compute, &[]).unwrap()).collect();
    assert!(tickets.windows(2).all(|t| t[0].value < t[1].value));
    device.wait(tickets[2]).unwrap();
    assert!(device.poll(tickets[0]).unwrap());
    device.read(&back.all(), &tickets).unwrap().wait().unwrap();
    device.read(&x.range(0, 8).unwrap(), &[]).unwrap().wait().unwrap();
    let stats = device.stats();
    assert_eq!((stats.submissions, stats.dispatches, stats.copied, stats.read), (3, 3, 3 * 32, 16 + 8));
    let mut unknown = tickets[2];
    unknown.value += 1;
    assert!(device.wait(unknown).is_err() && !device.poll(unknown).unwrap(), "no such list");
    // The list keeps what it names; the rest goes with its last name.
    drop((tables, up, x, back, constant));
    assert_eq!(device.stats().allocated, 32 * 4 + 2 * 256 + 16);
    drop(list);
    assert_eq!(device.stats().allocated, 0);
}

#[test]
fn lists_are_timed() {
    let Some(devices) = gpus() else { return };
    let device = &devices[0];
    let tables = upload(device, &Tables::new(1, 0).0);
    let [up, x] = [1.0, 2.0].map(|v| upload(device, &words(&[v; 64])));
    let mut recorder = device.recorder();
    recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 1)).unwrap();
    recorder.zero(&x.all()).unwrap();
    recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 1)).unwrap();
    let list = recorder.finish().unwrap();
    let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
    device.wait(ticket).unwrap();
    // Not every adapter has timestamps; where it has, the time is that of the run and stays the same.
    if let Some(time) = device.elapsed(ticket) {
        assert!(time > Duration::ZERO && time < Duration::from_secs(60), "{time:?}");
        assert_eq!(device.elapsed(ticket), Some(time));
    }
    let empty = device.recorder().finish().unwrap();
    let ticket = device.submit(&empty, Lane::Compute, &[ticket]).unwrap();
    device.wait(ticket).unwrap();
    assert_eq!(device.elapsed(ticket), None, "no pass, no time");
}

/// The list that adds row sums into the same numbers on whatever device, from two threads at once.
#[test]
fn two_devices_of_one_adapter_work_at_once() {
    if gpus().is_none() {
        return;
    }
    let work = |seed: u64| {
        let device = WgpuDevice::open(&Options::default()).unwrap();
        let mut random = Random::new(seed);
        let tables = upload(&device, &Tables::new(16, 0).0);
        let [up, x] = [0, 1].map(|_| random.words(16 * 64)).map(|w| upload(&device, &w));
        let start = [&up, &x].map(|b| floats(&download(&device, &b.all())));
        let mut recorder = device.recorder();
        recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 64, 16)).unwrap();
        let list = recorder.finish().unwrap();
        let mut want = start[1].clone();
        for _ in 0..20 {
            let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
            want.iter_mut().zip(&start[0]).for_each(|(x, up)| *x = *x / (1.0 + (-*x).exp()) * up);
            let got = floats(&to_words(&device.read(&x.all(), &[ticket]).unwrap().wait().unwrap()));
            assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-5), "seed {seed}");
        }
        device.id()
    };
    let (a, b) = std::thread::scope(|scope| {
        let (a, b) = (scope.spawn(|| work(1)), scope.spawn(|| work(2)));
        (a.join().unwrap(), b.join().unwrap())
    });
    assert_ne!(a, b);
}

/// One device from many threads: tickets stay in order and nothing is lost.
#[test]
fn one_device_serves_several_threads() {
    let Some(device) = own(&Options::default()) else { return };
    std::thread::scope(|scope| {
        for t in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                let a = upload(device, &[t; 64]);
                let b = device.alloc("b", 256, BufferUse::Storage).unwrap();
                let mut recorder = device.recorder();
                recorder.copy(&a.all(), &b.all()).unwrap();
                let list = recorder.finish().unwrap();
                for i in 0..25 {
                    device.write(&a.all(), bytemuck::cast_slice(&[t * 1000 + i; 64])).unwrap();
                    let ticket = device.submit(&list, Lane::Copy, &[]).unwrap();
                    assert_eq!(download(device, &b.all()), [t * 1000 + i; 64]);
                    device.wait(ticket).unwrap();
                }
            });
        }
    });
    assert_eq!(device.stats().submissions, 100);
}

#[test]
fn a_destroyed_device_is_lost_and_nothing_panics() {
    let Some(device) = own(&Options::default()) else { return };
    let tables = upload(&device, &Tables::new(1, 0).0);
    let [up, x] = [1.0, 2.0].map(|v| upload(&device, &words(&[v; 64])));
    let back = device.alloc("back", 64, BufferUse::Readback).unwrap();
    let mut recorder: Box<dyn Recorder> = device.recorder();
    recorder.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 1)).unwrap();
    let list = recorder.finish().unwrap();
    let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
    let pending = device.read(&x.all(), &[ticket]).unwrap();
    let in_place = device.read(&back.all(), &[ticket]).unwrap();
    device.destroy();

    refused!(pending.wait(), DeviceError::Lost { .. });
    refused!(in_place.wait(), DeviceError::Lost { .. });
    refused!(device.submit(&list, Lane::Compute, &[]), DeviceError::Lost { .. });
    refused!(device.poll(ticket), DeviceError::Lost { .. });
    refused!(device.wait(ticket), DeviceError::Lost { .. });
    refused!(device.alloc("late", 64, BufferUse::Storage), DeviceError::Lost { .. });
    refused!(device.constant("late", HostBytes::from_vec(vec![0; 8])), DeviceError::Lost { .. });
    refused!(device.write(&x.all(), &[0; 256]), DeviceError::Lost { .. });
    refused!(device.read(&x.all(), &[]), DeviceError::Lost { .. });
    let mut late = device.recorder();
    let _ = late.dispatch(swiglu(tables.all(), up.all(), x.all(), 4, 1));
    refused!(late.finish(), DeviceError::Lost { .. });
    assert_eq!(device.elapsed(ticket), None);
    drop((list, tables, up, x, back));
}
