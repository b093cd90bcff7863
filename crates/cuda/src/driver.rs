//! The driver's calls as this crate needs them: handles that free themselves, and errors as values.
//!
//! Every call first makes the context current on its thread. Nothing here is called before [`Driver::present`] said that
//! the driver's library can be loaded: cudarc panics at the first call otherwise.

#![allow(unsafe_code, reason = "the driver is a C library; see the SAFETY lines")]

use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};

use crate::core::lock;

/// What the driver said instead of doing as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) CUresult);

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        Self(error.0)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = DriverError(self.0).error_string().ok().map(|s| s.to_string_lossy().into_owned());
        write!(f, "{:?}", self.0)?;
        words.map_or(Ok(()), |words| write!(f, ": {words}"))
    }
}

impl Refusal {
    /// No memory was left.
    pub(crate) fn out_of_memory(self) -> bool {
        self.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    /// After these errors the context answers nothing but the same error.
    pub(crate) fn fatal(self) -> bool {
        matches!(
            self.0,
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
        let context = Context { raw, device, events: Mutex::new(Vec::new()) };
        context.enter()?;
        Ok(Arc::new(context))
    }
}

/// The primary context of a GPU, and events that can be used again.
pub(crate) struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
    events: Mutex<Vec<RawEvent>>,
}

struct RawEvent(sys::CUevent);

// SAFETY: the driver's handles may be used from any thread, and its calls are thread safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for RawEvent {}

impl Context {
    fn enter(&self) -> Answer<()> {
        // SAFETY: the context is retained until this value is dropped.
        Ok(unsafe { result::ctx::set_current(self.raw) }?)
    }

    /// Keeps freed memory in the device's pool instead of giving it back at every synchronisation.
    pub(crate) fn keep_pool(&self) -> Answer<()> {
        self.enter()?;
        let mut keep = u64::MAX;
        // SAFETY: the pool belongs to the device, and the attribute takes a 64-bit number.
        unsafe {
            let pool = result::device::get_mem_pool(self.device)?;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut keep).cast()).result()?;
        }
        Ok(())
    }

    /// Gives the pool's unused memory back to the driver.
    pub(crate) fn trim_pool(&self) -> Answer<()> {
        self.enter()?;
        // SAFETY: the pool belongs to the device; trimming touches unused memory only.
        unsafe {
            let pool = result::device::get_mem_pool(self.device)?;
            sys::cuMemPoolTrimTo(pool, 0).result()?;
        }
        Ok(())
    }

    fn event(&self) -> Answer<RawEvent> {
        if let Some(event) = lock(&self.events).pop() {
            return Ok(event);
        }
        self.enter()?;
        Ok(RawEvent(result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = self.enter();
        for event in lock(&self.events).drain(..) {
            // SAFETY: the event was made here, and nothing else holds it.
            let _ = unsafe { result::event::destroy(event.0) };
        }
        // SAFETY: retained once, released once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A point in a stream.
pub(crate) struct Event {
    context: Arc<Context>,
    raw: RawEvent,
}

// SAFETY: events may be asked and waited for from any thread.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the stream has passed it.
    pub(crate) fn passed(&self) -> Answer<bool> {
        self.context.enter()?;
        // SAFETY: the event is alive and was recorded when it was made.
        match unsafe { sys::cuEventQuery(self.raw.0) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => Err(Refusal(other)),
        }
    }

    /// Milliseconds from `begin` to this event; both have been passed.
    pub(crate) fn since(&self, begin: &Self) -> Answer<f32> {
        self.context.enter()?;
        // SAFETY: both events are alive and recorded with timing.
        Ok(unsafe { result::event::elapsed(begin.raw.0, self.raw.0) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.raw, RawEvent(std::ptr::null_mut()));
        lock(&self.context.events).push(raw);
    }
}

/// A queue of work.
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: the driver takes calls on one stream from several threads.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Answer<Self> {
        context.enter()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Marks the present end of the stream.
    pub(crate) fn mark(&self) -> Answer<Arc<Event>> {
        let raw = self.context.event()?;
        let event = Event { context: Arc::clone(&self.context), raw };
        self.context.enter()?;
        // SAFETY: event and stream are alive and of one context.
        unsafe { result::event::record(event.raw.0, self.raw) }?;
        Ok(Arc::new(event))
    }

    /// Later work of this stream waits for `event`, which may be of another stream.
    pub(crate) fn wait_for(&self, event: &Event) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: both are alive; the wait captures the event as it is recorded now.
        unsafe { sys::cuStreamWaitEvent(self.raw, event.raw.0, 0) }.result()?;
        Ok(())
    }

    /// Blocks until all its work is done.
    pub(crate) fn synchronize(&self) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: the stream is alive.
        Ok(unsafe { result::stream::synchronize(self.raw) }?)
    }

    /// Memory of `bytes` > 0, in the order of this stream where `pooled`.
    pub(crate) fn alloc(&self, bytes: u64, pooled: bool) -> Answer<Address> {
        self.context.enter()?;
        let bytes = usize::try_from(bytes).map_err(|_| Refusal(CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: the memory is written before anything reads it, and freed by `free` below.
        let raw = unsafe { if pooled { result::malloc_async(self.raw, bytes) } else { result::malloc_sync(bytes) } }?;
        Ok(Address(raw))
    }

    /// Gives memory of `alloc` back after the work that is now on this stream.
    pub(crate) fn free(&self, address: Address, pooled: bool) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: the caller owns the memory and forgets its address; without a pool no work is left that uses it.
        unsafe {
            if pooled {
                result::free_async(address.0, self.raw)?;
            } else {
                result::stream::synchronize(self.raw)?;
                result::free_sync(address.0)?;
            }
        }
        Ok(())
    }

    /// Zeroes `bytes`, a multiple of 4.
    pub(crate) fn zero(&self, at: Address, bytes: u64) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: the range lies in memory of this context, checked by the caller.
        unsafe { sys::cuMemsetD32Async(at.0, 0, (bytes / 4) as usize, self.raw) }.result()?;
        Ok(())
    }

    /// Copies between device memory and pinned host memory, whichever way.
    pub(crate) fn copy(&self, from: Address, to: Address, bytes: u64) -> Answer<()> {
        self.context.enter()?;
        // SAFETY: both ranges lie in memory of this context (addresses of pinned memory are the device's as well),
        // checked by the caller, who keeps both alive until the copy has run.
        unsafe { sys::cuMemcpyAsync(to.0, from.0, bytes as usize, self.raw) }.result()?;
        Ok(())
    }

    /// Launches `function` with its arguments: parameter bytes, then addresses.
    pub(crate) fn launch(&self, launch: &Launch) -> Answer<()> {
        self.context.enter()?;
        let mut arguments: Vec<*mut c_void> = Vec::with_capacity(launch.addresses.len() + 1);
        arguments.push(launch.params.as_ptr().cast_mut().cast());
        arguments.extend(launch.addresses.iter().map(|a| std::ptr::from_ref(&a.0).cast_mut().cast()));
        let [x, y, z] = launch.grid;
        // SAFETY: the driver reads as many arguments as the kernel has, each of the size it has; every source asserts that
        // both are what the manifest says, and recording checked the launch against the manifest. The caller keeps the
        // memory behind the addresses until the launch has run.
        unsafe {
            sys::cuLaunchKernel(
                launch.module.function,
                x,
                y,
                z,
                launch.threads,
                1,
                1,
                launch.module.dynamic,
                self.raw,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()?;
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.synchronize();
        // SAFETY: made once, destroyed once, and idle.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// An address that kernels of a context can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(sys::CUdeviceptr);

impl Address {
    /// `bytes` further.
    pub(crate) fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// One launch, ready to go.
pub(crate) struct Launch {
    pub(crate) module: Arc<Module>,
    /// Parameter struct, padded to whole words.
    pub(crate) params: Vec<u64>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
}

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
        context.enter()?;
        let entry = CString::new(name).map_err(|_| Refusal(CUresult::CUDA_ERROR_INVALID_VALUE))?;
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
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: loaded once, unloaded once; lists that launch it keep it until they have run.
        let _ = unsafe { result::module::unload(self.raw) };
    }
}

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
