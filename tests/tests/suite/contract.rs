//! The backend contract, on every device.

use std::sync::Arc;

use seam_cpu::CpuDevice;
use seam_device::{BufferUse, DType, Device, DeviceError, Dispatch, Gemm, HostBytes, KernelId, Lane, Ticket, Topology};
use seam_kernels::gather::{GATHER_ROWS, GatherParams};
use seam_tests::devices;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
}

fn read(device: &Arc<dyn Device>, buffer: &seam_device::Buffer) -> Vec<f32> {
    floats(&device.read(&buffer.all(), &[]).expect("read").wait().expect("wait"))
}

#[test]
fn memory_is_zero_counted_and_given_back() {
    for device in devices() {
        // Other tests run beside this one on the same device, so only lower bounds of the count hold.
        let buffer = device.alloc("zeros", 1 << 20, BufferUse::Storage).expect("alloc");
        assert!(device.stats().allocated >= 1 << 20);
        assert!(read(&device, &buffer).iter().all(|&v| v == 0.0));
        device.write(&buffer.range(8, 8).expect("range"), &bytes(&[1.5, -2.0])).expect("write");
        assert_eq!(read(&device, &buffer)[..5], [0.0, 0.0, 1.5, -2.0, 0.0]);
    }
    let device: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options::default());
    let buffer = device.alloc("counted", 4096, BufferUse::Storage).expect("alloc");
    let clone = buffer.clone();
    drop(buffer);
    assert_eq!(device.stats().allocated, 4096);
    drop(clone);
    assert_eq!(device.stats().allocated, 0);
}

#[test]
fn lists_replay_and_tickets_rise() {
    for device in devices() {
        let [a, b] = ["a", "b"].map(|label| device.alloc(label, 1024, BufferUse::Storage).expect("alloc"));
        let mut recorder = device.recorder();
        let half = |buffer: &seam_device::Buffer, at| buffer.range(at, 512).expect("range");
        recorder.copy(&half(&a, 0), &half(&b, 512)).expect("copy");
        recorder.zero(&half(&a, 0)).expect("zero");
        let list = recorder.finish().expect("finish");
        let mut last: Option<Ticket> = None;
        for round in 1..4u8 {
            let value = f32::from(round);
            device.write(&half(&a, 0), &bytes(&[value; 128])).expect("write");
            let after: Vec<Ticket> = last.into_iter().collect();
            let ticket = device.submit(&list, Lane::Compute, &after).expect("submit");
            assert!(last.is_none_or(|earlier| earlier.value < ticket.value));
            device.wait(ticket).expect("wait");
            assert!(device.poll(ticket).expect("poll"));
            let (a, b) = (read(&device, &a), read(&device, &b));
            assert!(a[..128].iter().all(|&v| v == 0.0) && b[128..].iter().all(|&v| v == value));
            assert!(b[..128].iter().all(|&v| v == 0.0), "only the range was written");
            last = Some(ticket);
        }
    }
}

#[test]
fn broken_commands_are_refused_by_name() {
    let other: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options::default());
    let foreign = other.alloc("foreign", 1024, BufferUse::Storage).expect("alloc");
    for device in devices() {
        let alloc = |label| device.alloc(label, 1024, BufferUse::Storage).expect("alloc");
        let (tables, x, out) = (alloc("tables"), alloc("x"), alloc("out"));
        let constant = device.constant("constant", HostBytes::from_vec(vec![0; 1024])).expect("constant");
        let dispatch = |kernel: KernelId, ranges: [seam_device::BufferRange; 3]| Dispatch {
            kernel,
            constants: Vec::new(),
            params: bytemuck::bytes_of(&GatherParams { width: 4, pad: [0; 3] }).to_vec(),
            bindings: ranges.into(),
            grid: [1, 1, 1],
        };
        let good = dispatch(GATHER_ROWS.id, [tables.all(), x.all(), out.all()]);
        let mut recorder = device.recorder();
        recorder.dispatch(good.clone()).expect("the unbroken one");
        let mut refused = |d: Dispatch| recorder.dispatch(d).expect_err("must be refused");
        let ranges = |x: &seam_device::Buffer, out: &seam_device::Buffer| [tables.all(), x.all(), out.all()];
        let error = refused(dispatch(KernelId(999), ranges(&x, &out)));
        assert!(matches!(error, DeviceError::BadDispatch { .. }), "{error}");
        let error = refused(dispatch(GATHER_ROWS.id, ranges(&foreign, &out)));
        assert!(matches!(&error, DeviceError::ForeignBuffer { label, .. } if label == "foreign"), "{error}");
        let error = refused(dispatch(GATHER_ROWS.id, ranges(&out, &out)));
        assert!(matches!(&error, DeviceError::Aliased { label, .. } if label == "out"), "{error}");
        let error = refused(dispatch(GATHER_ROWS.id, ranges(&x, &constant)));
        assert!(matches!(&error, DeviceError::ReadOnly { label } if label == "constant"), "{error}");
        let error = refused(Dispatch { params: vec![0; 8], ..good.clone() });
        assert!(matches!(error, DeviceError::BadDispatch { .. }), "{error}");
        let error = refused(Dispatch { constants: vec![3], ..good.clone() });
        assert!(matches!(error, DeviceError::BadDispatch { .. }), "{error}");
        let error = refused(Dispatch { grid: [1, 0, 1], ..good.clone() });
        assert!(matches!(error, DeviceError::BadDispatch { .. }), "{error}");
        let unaligned = x.range(4, 1020).expect("range");
        let error = refused(dispatch(GATHER_ROWS.id, [tables.all(), unaligned, out.all()]));
        assert!(matches!(error, DeviceError::Misaligned { .. }), "{error}");
        assert!(x.range(1000, 100).is_err(), "past the end");
        assert!(x.range(u64::MAX, 2).is_err(), "overflow");
        let gemm = Gemm {
            m: 4,
            n: 4,
            k: 8,
            lda: 8,
            ldc: 4,
            c_column: 0,
            weight: DType::F32,
            accumulate: false,
            a: x.all(),
            w: constant.all(),
            c: out.all(),
            scales: None,
            rows: None,
        };
        recorder.gemm(gemm.clone()).expect("the unbroken one");
        for broken in [
            Gemm { m: 0, ..gemm.clone() },
            Gemm { k: 6, lda: 8, ..gemm.clone() },
            Gemm { m: 4096, ..gemm.clone() },
            Gemm { c_column: 1, ..gemm.clone() },
            Gemm { weight: DType::I64, ..gemm.clone() },
            Gemm { c: x.all(), ..gemm.clone() },
        ] {
            recorder.gemm(broken.clone()).expect_err(&format!("{broken:?}"));
        }
        let over = device.alloc("too large", u64::MAX, BufferUse::Storage).expect_err("too large");
        assert!(over.to_string().contains("too large"), "{over}");
        let list = other.recorder().finish().expect("empty list");
        assert!(device.submit(&list, Lane::Compute, &[]).is_err(), "a list of another device");
        assert!(device.write(&foreign.all(), &[0; 4]).is_err());
        assert!(device.read(&foreign.all(), &[]).is_err());
    }
}

/// Bytes travel between any two devices, and within one: after the given tickets, before what comes after the ticket.
#[test]
fn transfers_between_devices() {
    let all = devices();
    let topology = Topology::new(all.clone());
    for from in &all {
        for to in &all {
            let src = from.alloc("source", 64, BufferUse::Storage).expect("alloc");
            let dst = to.alloc("target", 64, BufferUse::Storage).expect("alloc");
            let zeros = from.alloc("zeros", 64, BufferUse::Storage).expect("alloc");
            let mut recorder = from.recorder();
            recorder.copy(&zeros.all(), &src.all()).expect("copy");
            let clear = recorder.finish().expect("list");
            let mut recorder = to.recorder();
            recorder.zero(&dst.range(32, 4).expect("range")).expect("zero");
            let later = recorder.finish().expect("list");
            let mut after = Vec::new();
            for round in 1..20u8 {
                let value = f32::from(round);
                from.write(&src.all(), &bytes(&[value; 16])).expect("write");
                let (half, other) = (src.range(0, 32).expect("range"), dst.range(32, 32).expect("range"));
                let ticket = topology.transfer(&half, &other, &after).expect("transfer");
                assert_eq!(ticket.device, to.id());
                // What the source gets now must not reach the target, whose next list comes after the bytes.
                let cleared = from.submit(&clear, Lane::Compute, &[]).expect("submit");
                let zeroed = to.submit(&later, Lane::Compute, &[ticket]).expect("submit");
                to.wait(ticket).expect("wait");
                assert!(to.poll(ticket).expect("poll"));
                assert_eq!(read(to, &dst), [vec![0.0; 9], vec![value; 7]].concat(), "round {round}");
                assert_eq!(read(from, &src), [0.0; 16]);
                after = vec![cleared, zeroed];
            }
        }
    }
}

/// Foreign buffers and tickets, other lengths, odd places, overlaps and constants: refused by name, on every pair.
#[test]
fn broken_transfers_are_refused() {
    let all = devices();
    let topology = Topology::new(all.clone());
    let stranger: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options::default());
    let strange = stranger.alloc("stranger", 64, BufferUse::Storage).expect("alloc");
    let strange_ticket = Ticket { device: stranger.id(), value: 1 };
    for from in &all {
        for to in &all {
            let src = from.alloc("source", 64, BufferUse::Storage).expect("alloc");
            let dst = to.alloc("target", 64, BufferUse::Storage).expect("alloc");
            let constant = to.constant("constant", HostBytes::from_vec(vec![0; 64])).expect("constant");
            for (src, dst) in [(&strange, &dst), (&src, &strange), (&strange, &strange)] {
                let error = topology.transfer(&src.all(), &dst.all(), &[]).expect_err("not in the topology");
                assert!(matches!(&error, DeviceError::ForeignBuffer { label, .. } if label == "stranger"), "{error}");
            }
            let error = topology.transfer(&src.all(), &dst.all(), &[strange_ticket]).expect_err("a foreign ticket");
            assert!(matches!(error, DeviceError::ForeignBuffer { .. }), "{error}");
            for third in all.iter().filter(|d| ![from.id(), to.id()].contains(&d.id())) {
                let ticket = Ticket { device: third.id(), value: 1 };
                let error = topology.transfer(&src.all(), &dst.all(), &[ticket]).expect_err("a third device's ticket");
                assert!(matches!(error, DeviceError::ForeignBuffer { .. }), "{error}");
            }
            let range = |buffer: &seam_device::Buffer, at, len| buffer.range(at, len).expect("range");
            let refused = |src: seam_device::BufferRange, dst: seam_device::BufferRange| {
                topology.transfer(&src, &dst, &[]).expect_err("must be refused")
            };
            let error = refused(range(&src, 0, 32), range(&dst, 0, 16));
            assert!(matches!(error, DeviceError::BadDispatch { .. }), "lengths: {error}");
            let error = refused(range(&src, 0, 6), range(&dst, 0, 6));
            assert!(matches!(error, DeviceError::BadDispatch { .. }), "no whole words: {error}");
            let error = refused(range(&src, 2, 8), range(&dst, 0, 8));
            assert!(matches!(error, DeviceError::Misaligned { .. }), "{error}");
            let error = refused(src.all(), constant.all());
            assert!(matches!(&error, DeviceError::ReadOnly { label } if label == "constant"), "{error}");
            let mut past = src.all();
            past.len += 4;
            let mut also = dst.all();
            also.len += 4;
            let error = refused(past, also);
            assert!(matches!(error, DeviceError::OutOfRange { .. }), "{error}");
            if from.id() == to.id() {
                let error = refused(range(&src, 0, 32), range(&src, 16, 32));
                assert!(matches!(error, DeviceError::BadDispatch { .. }), "overlap: {error}");
            }
            // Nothing at all is no error, and what was refused has left no trace.
            topology.transfer(&range(&src, 8, 0), &range(&dst, 8, 0), &[]).expect("nothing");
            assert_eq!(read(to, &dst), [0.0; 16]);
        }
    }
}

/// Buffers, lists and tickets of another device, in every call that takes one.
#[test]
fn what_belongs_to_another_device_is_refused_everywhere() {
    let other: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options::default());
    let buffer = other.alloc("foreign", 64, BufferUse::Storage).expect("alloc");
    let ticket = other.submit(&other.recorder().finish().expect("list"), Lane::Compute, &[]).expect("submit");
    for device in devices() {
        let own = device.alloc("own", 64, BufferUse::Storage).expect("alloc");
        let list = device.recorder().finish().expect("list");
        let foreign = other.recorder().finish().expect("list");
        let mut recorder = device.recorder();
        let errors = [
            ("write", device.write(&buffer.all(), &[0; 4]).err()),
            ("read", device.read(&buffer.all(), &[]).err()),
            ("read after", device.read(&own.all(), &[ticket]).err()),
            ("submit", device.submit(&foreign, Lane::Compute, &[]).err()),
            ("submit after", device.submit(&list, Lane::Copy, &[ticket]).err()),
            ("poll", device.poll(ticket).err()),
            ("wait", device.wait(ticket).err()),
            ("copy from", recorder.copy(&buffer.all(), &own.all()).err()),
            ("copy to", recorder.copy(&own.all(), &buffer.all()).err()),
            ("zero", recorder.zero(&buffer.all()).err()),
        ];
        for (call, error) in errors {
            assert!(matches!(error, Some(DeviceError::ForeignBuffer { .. })), "{call}: {error:?}");
        }
        assert_eq!(device.elapsed(ticket), None);
        // It still works.
        let own_ticket = device.submit(&list, Lane::Compute, &[]).expect("submit");
        device.wait(own_ticket).expect("wait");
    }
}
