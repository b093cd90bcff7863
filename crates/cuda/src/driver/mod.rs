//! The driver's calls as this crate needs them: handles that free themselves, and errors as values.
//!
//! Every call first makes the context current on its thread. Nothing here is called before [`Driver::present`] said that
//! the driver's library can be loaded: cudarc panics at the first call otherwise.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

mod context;
mod graph;
mod module;
mod peer;
mod pinned;
mod stream;

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};

pub(crate) use context::{Context, Event};
pub(crate) use graph::Graph;
pub(crate) use module::Module;
pub(crate) use pinned::Pinned;
pub(crate) use stream::{Address, Launch, Stream};

/// What the driver, or a library on top of it, said instead of doing as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Driver(CUresult),
    /// A status of cublasLt.
    Products(c_int),
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        Self::Driver(error.0)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Driver(result) => {
                let words = DriverError(result).error_string().ok().map(|s| s.to_string_lossy().into_owned());
                write!(f, "{result:?}")?;
                words.map_or(Ok(()), |words| write!(f, ": {words}"))
            }
            Self::Products(status) => write!(f, "cublasLt: {}", crate::blas::words(status)),
        }
    }
}

impl Refusal {
    /// No memory was left.
    pub(crate) fn out_of_memory(self) -> bool {
        self == Self::Driver(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// After these errors the context answers nothing but the same error.
    pub(crate) fn fatal(self) -> bool {
        let Self::Driver(result) = self else { return false };
        matches!(
            result,
            CUresult::CUDA_ERROR_DEINITIALIZED
                | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
                | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
                | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
                | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
                | CUresult::CUDA_ERROR_ASSERT
                | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
                | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUresult::CUDA_ERROR_INVALID_PC
                | CUresult::CUDA_ERROR_LAUNCH_FAILED
                | CUresult::CUDA_ERROR_UNKNOWN
        )
    }
}

type Answer<T> = Result<T, Refusal>;

/// One GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) memory: u64,
    pub(crate) capability: (u32, u32),
    pub(crate) pools: bool,
    /// Bytes of shared memory that a block can have if it asks.
    pub(crate) shared: u32,
}

/// The driver's library, known to be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver(());

impl Driver {
    /// The driver, if its library can be loaded.
    pub(crate) fn present() -> Option<Self> {
        // SAFETY: loads a library by name and drops it again; the driver's initialisers run as in any CUDA program.
        unsafe { sys::is_culib_present() }.then_some(Self(()))
    }

    /// Initialises the driver.
    pub(crate) fn init(self) -> Answer<()> {
        Ok(result::init()?)
    }

    /// Newest CUDA version that it supports, as 1000·major + 10·minor.
    pub(crate) fn version(self) -> Answer<u32> {
        let mut version: c_int = 0;
        // SAFETY: writes one int, needs no initialisation.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// Number of GPUs.
    pub(crate) fn count(self) -> Answer<u32> {
        Ok(u32::try_from(result::device::get_count()?).unwrap_or(0))
    }

    /// GPU `ordinal`.
    pub(crate) fn describe(self, ordinal: u32) -> Answer<Described> {
        let device = result::device::get(ordinal as c_int)?;
        let attribute = |which| -> Answer<u32> {
            // SAFETY: the device handle came from the driver just now.
            Ok(u32::try_from(unsafe { result::device::get_attribute(device, which) }?).unwrap_or(0))
        };
        // SAFETY: as above.
        let memory = unsafe { result::device::total_mem(device) }? as u64;
        Ok(Described {
            name: result::device::get_name(device)?,
            memory,
            capability: (
                attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            pools: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 1,
            shared: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        })
    }

    /// The primary context of GPU `ordinal`, which is initialised at its first use.
    pub(crate) fn context(self, ordinal: u32) -> Answer<Arc<Context>> {
        let device = result::device::get(ordinal as c_int)?;
        // SAFETY: the handle is the driver's; the context is released when the value made here is dropped.
        let raw = unsafe { result::primary_ctx::retain(device) }?;
        let context = Context::retained(raw, device)?;
        Ok(Arc::new(context))
    }
}
