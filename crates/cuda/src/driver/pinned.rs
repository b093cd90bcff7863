//! Host memory that the device reaches directly.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::{Address, Answer, Context};

/// Host memory that the device reaches directly.
pub(crate) struct Pinned {
    context: Arc<Context>,
    host: *mut u8,
    address: Address,
    bytes: usize,
}

// SAFETY: the memory is plain bytes; who touches it when is up to the owner, by events.
unsafe impl Send for Pinned {}
// SAFETY: shared references only copy bytes out, after the events that write them.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `bytes` > 0, zeroed.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Answer<Self> {
        context.enter()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut address = 0;
        // SAFETY: new memory of the asked size, zeroed within its bounds before anyone sees it.
        let host = unsafe {
            let host: *mut u8 = result::malloc_host(bytes, flags)?.cast();
            host.write_bytes(0, bytes);
            host
        };
        let mut pinned = Self { context: Arc::clone(context), host, address: Address(0), bytes };
        // SAFETY: the memory was allocated with a device mapping just now.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, host.cast(), 0) }.result()?;
        pinned.address = Address(address);
        Ok(pinned)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Writes `bytes` to its start. No copy of the device reads it at this time.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.bytes);
        // SAFETY: within the allocation, exclusively borrowed, and no device copy is under way by the caller's word.
        unsafe { self.host.copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }

    /// A copy of `len` bytes from `offset`, whose writers the caller has waited for.
    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Vec<u8> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.bytes - start);
        // SAFETY: within the allocation, initialised when it was made, and not written at this time.
        unsafe { std::slice::from_raw_parts(self.host.add(start), len) }.to_vec()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: allocated once, freed once.
        let _ = unsafe { result::free_host(self.host.cast()) };
    }
}
