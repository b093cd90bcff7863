//! Exhausted memory, in a process of its own: while it is exhausted, others on the same GPU have none either.

use seam_device::{BufferUse, DeviceError, DeviceKind};
use seam_tests::devices;

/// A GPU's whole memory cannot be had, for its context takes some: a typed error, after which everything works.
#[test]
fn exhausted_memory_is_an_error() {
    for device in devices().iter().filter(|d| d.caps().kind == DeviceKind::Cuda) {
        let error = device.alloc("all of it", device.caps().max_buffer, BufferUse::Storage).expect_err("too much");
        assert!(matches!(&error, DeviceError::OutOfMemory { label, .. } if label == "all of it"), "{error}");
        let after = device.alloc("after", 1 << 16, BufferUse::Storage).expect("a little");
        let bytes = device.read(&after.all(), &[]).expect("read").wait().expect("wait");
        assert!(bytes.len() == 1 << 16 && bytes.iter().all(|&b| b == 0), "new memory reads as zero");
    }
}
