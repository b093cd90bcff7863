//! Compiled kernels in a context.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::ffi::{CString, c_int};
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};

use super::{Answer, Context, Refusal};

/// Bytes of the header of every cubin.
const ELF_HEADER: usize = 64;

/// A loaded kernel.
pub(crate) struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
    function: sys::CUfunction,
    /// Bytes of shared memory that every launch asks for.
    dynamic: u32,
}

// SAFETY: as for streams.
unsafe impl Send for Module {}
// SAFETY: as for streams.
unsafe impl Sync for Module {}

impl Module {
    /// Loads the kernel `name`, whose launches ask for `dynamic` bytes of shared memory, from a cubin.
    pub(crate) fn load(context: &Arc<Context>, cubin: &[u8], name: &str, dynamic: u32) -> Answer<Self> {
        // The driver takes no length: it believes what the header says, and takes anything without one for text.
        if cubin.len() < ELF_HEADER || !cubin.starts_with(b"\x7fELF") {
            return Err(Refusal::Driver(CUresult::CUDA_ERROR_INVALID_IMAGE));
        }
        context.enter()?;
        let entry = CString::new(name).map_err(|_| Refusal::Driver(CUresult::CUDA_ERROR_INVALID_VALUE))?;
        // SAFETY: the image is a cubin that NVRTC made, whole by its checksum; the driver checks its form and chip.
        let raw = unsafe { result::module::load_data(cubin.as_ptr().cast()) }?;
        let mut module = Self { context: Arc::clone(context), raw, function: std::ptr::null_mut(), dynamic };
        // SAFETY: the module was loaded just now and lives as long as the function.
        module.function = unsafe { result::module::get_function(raw, entry) }?;
        if dynamic > 0 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was taken from the module just now.
            unsafe { result::function::set_function_attribute(module.function, attribute, dynamic as c_int) }?;
        }
        Ok(module)
    }

    /// What a launch names; it lives as long as the module.
    pub(super) fn function(&self) -> sys::CUfunction {
        self.function
    }

    /// Bytes of shared memory that a launch asks for.
    pub(super) fn dynamic(&self) -> u32 {
        self.dynamic
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: loaded once, unloaded once; lists that launch it keep it until they have run.
        let _ = unsafe { result::module::unload(self.raw) };
    }
}
