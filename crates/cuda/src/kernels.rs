//! Compiled kernels, one for each kernel and values of its constants, made when first recorded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use seam_device::DeviceError;
use seam_kernels::Kernel;
use seam_kernels::cuda::cuda;
use seam_kernels::source::SourceError;

use crate::cache::{Cache, key};
use crate::core::{Gpu, lock};
use crate::driver::Module;
use crate::nvrtc::Nvrtc;

/// Most bytes of shared memory that a source may declare by itself; a kernel that takes more declares `extern __shared__`
/// and gets all of it at its launch.
pub(crate) const DECLARED: u32 = 48 << 10;

/// Bytes of shared memory that launches of `kernel` ask for.
pub(crate) fn dynamic(kernel: &Kernel) -> u32 {
    if kernel.workgroup.bytes > DECLARED { kernel.workgroup.bytes } else { 0 }
}

/// Options of every compilation for `arch`, such as `sm_90a`. Fast mathematics is left out: it would cost accuracy.
pub(crate) fn options(arch: &str) -> Vec<String> {
    vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned(), "-default-device".to_owned()]
}

/// The architecture of a chip, with the instructions that only this chip has.
pub(crate) fn arch((major, minor): (u32, u32)) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// Behind every source: the entry point must take what the manifest says, since a launch passes bytes blindly.
const FACE: &str = "
template <class F> struct seam_face;
template <class P, class... A> struct seam_face<void (*)(P, A...)> {
    static constexpr unsigned params = sizeof(P), bindings = sizeof...(A);
    static constexpr bool pointers = ((sizeof(A) == sizeof(void*)) && ...);
};
";

/// The text of a kernel with its constants, and a check of its arguments.
///
/// # Errors
/// [`DeviceError::Unsupported`] where it has none.
pub(crate) fn source(device: &str, kernel: &Kernel, constants: &[u32]) -> Result<String, DeviceError> {
    let unsupported = |e: SourceError| DeviceError::Unsupported { device: device.to_owned(), what: e.to_string() };
    let mut text = cuda(kernel, constants).map_err(unsupported)?.text;
    let (name, params, bindings) = (kernel.name, kernel.params, kernel.bindings.len());
    text.push_str(FACE);
    text.push_str(&format!(
        "static_assert(seam_face<decltype(&{name})>::params == {params}, \"the manifest says {params} bytes\");\n\
         static_assert(seam_face<decltype(&{name})>::bindings == {bindings}, \"the manifest has {bindings} bindings\");\n\
         static_assert(seam_face<decltype(&{name})>::pointers, \"bindings are pointers\");\n"
    ));
    Ok(text)
}

type Entry = Arc<Mutex<Option<Arc<Module>>>>;

/// The compiler with what it has made.
pub(crate) struct Kernels {
    nvrtc: Nvrtc,
    cache: Cache,
    options: Vec<String>,
    made: Mutex<HashMap<(u16, Vec<u32>), Entry>>,
}

impl Kernels {
    pub(crate) fn new(nvrtc: Nvrtc, cache: Cache, capability: (u32, u32)) -> Self {
        Self { nvrtc, cache, options: options(&arch(capability)), made: Mutex::default() }
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
        self.build(gpu, kernel, constants, &source(&gpu.name, kernel, constants)?)
    }

    /// Code for this chip from the text of a kernel.
    ///
    /// # Errors
    /// [`DeviceError::Backend`] with the kernel's name, its constants and the compiler's words.
    pub(crate) fn compile(
        &self,
        device: &str,
        kernel: &Kernel,
        constants: &[u32],
        text: &str,
    ) -> Result<Vec<u8>, DeviceError> {
        let compiled = self.nvrtc.compile(text, &format!("{}.cu", kernel.name), &self.options);
        compiled.map(|c| c.cubin).map_err(|log| DeviceError::Backend {
            device: device.to_owned(),
            op: "compile".to_owned(),
            reason: format!("kernel {} {constants:?}: {log}", kernel.name),
        })
    }

    /// A loaded kernel from its text, by way of the cache.
    pub(crate) fn build(
        &self,
        gpu: &Gpu,
        kernel: &Kernel,
        constants: &[u32],
        text: &str,
    ) -> Result<Module, DeviceError> {
        let key = key(text, &self.options, self.nvrtc.version);
        let compile = || self.compile(&gpu.name, kernel, constants, text);
        let cubin = self.cache.get_or(&key, compile)?;
        let load = |cubin: &[u8]| Module::load(&gpu.context, cubin, kernel.name, dynamic(kernel));
        let module = match load(&cubin) {
            Ok(module) => module,
            // A file that is whole but was made elsewhere: compile it here.
            Err(refusal) if !refusal.fatal() && !refusal.out_of_memory() => {
                let cubin = compile()?;
                self.cache.put(&key, &cubin);
                gpu.done(&format!("load kernel {}", kernel.name), load(&cubin))?
            }
            Err(refusal) => gpu.done(&format!("load kernel {}", kernel.name), Err(refusal))?,
        };
        Ok(module)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stderr, reason = "a skip is printed")]

    use super::*;
    use crate::find::Search;

    /// A source that does not compile on the chip: the error names kernel and device, and has the compiler's words.
    #[test]
    fn a_kernel_that_does_not_compile_is_named() {
        let nvrtc = match Nvrtc::find(&Search::from_env(), None) {
            Ok(found) => found,
            Err(why) => {
                assert!(std::env::var_os("SEAM_REQUIRE_NVRTC").is_none(), "SEAM_REQUIRE_NVRTC is set: {why}");
                return eprintln!("SKIPPED without NVRTC: {why}");
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let kernels = Kernels::new(nvrtc, Cache::new(Some(dir.path().to_path_buf())), (9, 0));
        let kernel = &seam_kernels::gemm::GEMM;
        let text = "extern \"C\" __global__ void gemm() {\n  missing();\n}\n";
        match kernels.compile("cuda chip", kernel, &[1, 0], text) {
            Err(DeviceError::Backend { device, op, reason }) => {
                assert_eq!((device.as_str(), op.as_str()), ("cuda chip", "compile"));
                assert!(reason.contains("kernel gemm [1, 0]") && reason.contains("gemm.cu(2)"), "{reason}");
                assert!(reason.contains("missing"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        let whole = source("cuda chip", kernel, &[1, 0]).unwrap();
        assert!(kernels.compile("cuda chip", kernel, &[1, 0], &whole).is_ok_and(|cubin| !cubin.is_empty()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "only what is loaded is kept");
    }
}
