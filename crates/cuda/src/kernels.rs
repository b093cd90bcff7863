//! Compiled kernels, one for each kernel and values of its constants, made when first recorded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use seam_device::DeviceError;
use seam_kernels::Kernel;
use seam_kernels::cuda::cuda;

use crate::cache::{Cache, key};
use crate::core::{Gpu, lock};
use crate::driver::Module;
use crate::nvrtc::Nvrtc;

/// CUDA from which the driver tells the sizes of a kernel's arguments.
const TELLS_ARGUMENTS: u32 = 12_040;

/// Options of every compilation for `arch`, such as `sm_90a`. Fast mathematics is left out: it would cost accuracy.
pub(crate) fn options(arch: &str) -> Vec<String> {
    vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned(), "-default-device".to_owned()]
}

/// The architecture of a chip, with the instructions that only this chip has.
pub(crate) fn arch((major, minor): (u32, u32)) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// The text of a kernel with its constants.
///
/// # Errors
/// [`DeviceError::Unsupported`] where it has none.
pub(crate) fn source(device: &str, kernel: &Kernel, constants: &[u32]) -> Result<String, DeviceError> {
    let source = cuda(kernel, constants);
    source.map(|s| s.text).map_err(|e| DeviceError::Unsupported { device: device.to_owned(), what: e.to_string() })
}

type Entry = Arc<Mutex<Option<Arc<Module>>>>;

/// The compiler with what it has made.
pub(crate) struct Kernels {
    nvrtc: Nvrtc,
    cache: Cache,
    options: Vec<String>,
    /// CUDA version of the driver.
    driver: u32,
    made: Mutex<HashMap<(u16, Vec<u32>), Entry>>,
}

impl Kernels {
    pub(crate) fn new(nvrtc: Nvrtc, cache: Cache, capability: (u32, u32), driver: u32) -> Self {
        Self { nvrtc, cache, options: options(&arch(capability)), driver, made: Mutex::default() }
    }

    /// `kernel` with the given constants, which are legal.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] without a CUDA source, or what compiler and driver say.
    pub(crate) fn get(&self, gpu: &Gpu, kernel: &Kernel, constants: &[u32]) -> Result<Arc<Module>, DeviceError> {
        let entry = Arc::clone(lock(&self.made).entry((kernel.id.0, constants.to_vec())).or_default());
        // One thread compiles a kernel, others that want the same wait; different kernels compile side by side.
        let mut made = lock(&entry);
        if let Some(module) = &*made {
            return Ok(Arc::clone(module));
        }
        let module = Arc::new(self.make(gpu, kernel, constants)?);
        *made = Some(Arc::clone(&module));
        Ok(module)
    }

    fn make(&self, gpu: &Gpu, kernel: &Kernel, constants: &[u32]) -> Result<Module, DeviceError> {
        let text = source(&gpu.name, kernel, constants)?;
        let key = key(&text, &self.options, self.nvrtc.version);
        let compile = || {
            let compiled = self.nvrtc.compile(&text, &format!("{}.cu", kernel.name), &self.options);
            compiled
                .map(|c| c.cubin)
                .map_err(|log| gpu.backend("compile", format!("kernel {} {constants:?}: {log}", kernel.name)))
        };
        let cubin = self.cache.get_or(&key, compile)?;
        let module = match Module::load(&gpu.context, &cubin, kernel.name) {
            Ok(module) => module,
            // A file that is whole but was made elsewhere: compile it here.
            Err(refusal) if !refusal.fatal() && !refusal.out_of_memory() => {
                let cubin = compile()?;
                self.cache.put(&key, &cubin);
                gpu.done(&format!("load kernel {}", kernel.name), Module::load(&gpu.context, &cubin, kernel.name))?
            }
            Err(refusal) => gpu.done(&format!("load kernel {}", kernel.name), Err(refusal))?,
        };
        if self.driver >= TELLS_ARGUMENTS {
            let has = gpu.done("ask for a kernel's arguments", module.arguments())?;
            let mut wants = vec![kernel.params];
            wants.resize(kernel.bindings.len() + 1, size_of::<u64>());
            if has != wants {
                let reason = format!("the arguments in CUDA have {has:?} bytes, the manifest says {wants:?}");
                return Err(DeviceError::BadDispatch { kernel: kernel.name.to_owned(), reason });
            }
        }
        Ok(module)
    }
}
