//! Copies between CUDA devices, without the host.

use std::sync::Arc;

use seam_cuda::Options;
use seam_device::{BufferUse, Device, Lane, Topology};
use seam_tests::{own_cuda, required};

const WORDS: usize = 1 << 20;

fn fill(device: &dyn Device, buffer: &seam_device::Buffer, value: u32) {
    device.write(&buffer.all(), bytemuck::cast_slice(&vec![value; WORDS])).expect("write");
}

/// Sends a buffer from `a` to `b` and back, many times.
fn exchange(a: &Arc<dyn Device>, b: &Arc<dyn Device>) {
    let topology = Topology::new(vec![Arc::clone(a), Arc::clone(b)]);
    let make = |device: &Arc<dyn Device>| device.alloc("peer", WORDS as u64 * 4, BufferUse::Storage).expect("alloc");
    let [x, y, z] = [make(a), make(b), make(a)];
    for round in 1..=20u32 {
        fill(&**a, &x, round);
        // There and back without waiting; the sources are written again at once.
        let there = topology.transfer(&x.all(), &y.all(), &[]).expect("transfer");
        fill(&**a, &x, 0);
        let back = topology.transfer(&y.all(), &z.all(), &[there]).expect("transfer");
        assert_eq!((there.device, back.device), (b.id(), a.id()));
        fill(&**b, &y, 0);
        let end = z.range(4 * WORDS as u64 - 8, 8).expect("range");
        let bytes = a.read(&end, &[back]).expect("read").wait().expect("wait");
        assert_eq!(bytes, [round.to_le_bytes(), round.to_le_bytes()].concat(), "round {round}");
        fill(&**a, &z, 0);
    }
}

/// Two devices on one GPU: a copy within its memory, in order with both.
#[test]
fn devices_of_one_gpu_copy_directly() {
    let Some(a) = own_cuda(&Options::default()) else { return };
    let Some(b) = own_cuda(&Options::default()) else { return };
    let (a, b): (Arc<dyn Device>, Arc<dyn Device>) = (a, b);
    let read = [&a, &b].map(|d| d.stats().read);
    exchange(&a, &b);
    let now = [&a, &b].map(|d| d.stats().read);
    assert_eq!(now, [read[0] + 20 * 8, read[1]], "only what was read above passes through the host");
    // Both directions at once, from two threads.
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&a, &b));
        scope.spawn(|| exchange(&b, &a));
    });
}

/// Two GPUs, where there are two: whether they reach each other or not, the bytes arrive.
#[test]
fn gpus_exchange_bytes() {
    let Some(a) = own_cuda(&Options { gpu: Some(0), ..Options::default() }) else { return };
    let b = match seam_cuda::CudaDevice::open(&Options { gpu: Some(1), ..Options::default() }) {
        Ok(b) => b,
        Err(error) => {
            assert!(!required("cuda2"), "SEAM_REQUIRE lists cuda2: {error}");
            return println!("SKIPPED on two GPUs: {error}");
        }
    };
    let topology = Topology::new(vec![a.clone(), b.clone()]);
    let src = a.alloc("source", WORDS as u64 * 4, BufferUse::Storage).expect("alloc");
    let dst = b.alloc("target", WORDS as u64 * 4, BufferUse::Storage).expect("alloc");
    for round in 1..20u32 {
        fill(&*a, &src, round);
        let ticket = topology.transfer(&src.all(), &dst.all(), &[]).expect("transfer");
        fill(&*a, &src, 0);
        let bytes = b.read(&dst.all(), &[ticket]).expect("read").wait().expect("wait");
        assert!(bytes.as_chunks::<4>().0.iter().all(|w| *w == round.to_le_bytes()), "round {round}");
    }
    println!("bytes read by the host of the first GPU: {}", a.stats().read);
}

/// Memory that a copy still reads returns only when it has been read, whoever drops it first.
#[test]
fn dropped_sources_outlive_their_copies() {
    let Some(a) = own_cuda(&Options::default()) else { return };
    let Some(b) = own_cuda(&Options::default()) else { return };
    let topology = Topology::new(vec![a.clone(), b.clone()]);
    let before = a.stats().allocated;
    for round in 1..50u32 {
        let src = a.alloc("source", WORDS as u64 * 4, BufferUse::Storage).expect("alloc");
        let dst = b.alloc("target", WORDS as u64 * 4, BufferUse::Storage).expect("alloc");
        fill(&*a, &src, round);
        let ticket = topology.transfer(&src.all(), &dst.all(), &[]).expect("transfer");
        drop(src);
        // New memory may be the old one; it is zeroed after the copy.
        let other = a.alloc("other", WORDS as u64 * 4, BufferUse::Storage).expect("alloc");
        let bytes = b.read(&dst.all(), &[ticket]).expect("read").wait().expect("wait");
        assert!(bytes.as_chunks::<4>().0.iter().all(|w| *w == round.to_le_bytes()), "round {round}");
        drop(other);
        b.wait(ticket).expect("wait");
    }
    b.submit(&b.recorder().finish().expect("list"), Lane::Copy, &[]).expect("submit");
    assert_eq!(a.stats().allocated, before);
}
