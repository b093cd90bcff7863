//! Copies from the memory of one GPU, or of another device on the same GPU, to that of another.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::ffi::c_int;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};

use super::{Address, Answer, Context, Refusal, Stream};
use crate::core::lock;

impl Context {
    /// Whether copies of this GPU reach the memory of the other directly; enables it where the driver offers it.
    /// `pooled`: the other's memory comes from its pool.
    pub(crate) fn reaches(&self, other: &Self, pooled: bool) -> Answer<bool> {
        if self.raw == other.raw {
            return Ok(true);
        }
        let mut peers = lock(&self.peers);
        if let Some((_, reached)) = peers.iter().find(|(device, _)| *device == other.device) {
            return Ok(*reached);
        }
        let reached = self.enable(other, pooled)?;
        peers.push((other.device, reached));
        Ok(reached)
    }

    fn enable(&self, other: &Self, pooled: bool) -> Answer<bool> {
        self.enter()?;
        let mut can: c_int = 0;
        // SAFETY: both handles are the driver's; writes one int.
        unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, self.device, other.device) }.result()?;
        if can == 0 {
            return Ok(false);
        }
        // SAFETY: both contexts are retained. Access stays for the life of the contexts.
        match unsafe { sys::cuCtxEnablePeerAccess(other.raw, 0) } {
            CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => (),
            // As many peers as the hardware takes.
            CUresult::CUDA_ERROR_TOO_MANY_PEERS | CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => return Ok(false),
            refused => return Err(Refusal::Driver(refused)),
        }
        if pooled {
            let access = sys::CUmemAccessDesc {
                location: sys::CUmemLocation {
                    type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                    id: self.device,
                },
                flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            // SAFETY: the pool belongs to the other device; the descriptor is read during the call.
            unsafe {
                let pool = result::device::get_mem_pool(other.device)?;
                sys::cuMemPoolSetAccess(pool, &raw const access, 1).result()?;
            }
        }
        Ok(true)
    }
}

impl Stream {
    /// Copies from memory of `other`, which this stream's GPU reaches.
    pub(crate) fn copy_from(&self, other: &Context, from: Address, to: Address, bytes: u64) -> Answer<()> {
        if self.context.raw == other.raw {
            return self.copy(from, to, bytes);
        }
        self.context.enter()?;
        // SAFETY: the ranges lie in memory of their contexts, checked by the caller, who keeps both until the copy has run.
        unsafe { sys::cuMemcpyPeerAsync(to.0, self.context.raw, from.0, other.raw, bytes as usize, self.raw) }
            .result()?;
        Ok(())
    }
}
