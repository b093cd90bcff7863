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

/// Bytes travel between any two devices through host memory.
#[test]
fn transfers_between_devices() {
    let all = devices();
    let topology = Topology::new(all.clone());
    for from in &all {
        for to in &all {
            let src = from.alloc("source", 64, BufferUse::Storage).expect("alloc");
            let dst = to.alloc("target", 64, BufferUse::Storage).expect("alloc");
            from.write(&src.all(), &bytes(&[7.0; 16])).expect("write");
            topology
                .transfer(&src.range(0, 32).expect("range"), &dst.range(32, 32).expect("range"), &[])
                .expect("transfer");
            assert_eq!(read(to, &dst), [[0.0; 8], [7.0; 8]].concat());
        }
    }
    let stranger: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options::default());
    let buffer = stranger.alloc("stranger", 64, BufferUse::Storage).expect("alloc");
    let error = topology.transfer(&buffer.all(), &buffer.all(), &[]).expect_err("not in the topology");
    assert!(error.to_string().contains("stranger"), "{error}");
}
