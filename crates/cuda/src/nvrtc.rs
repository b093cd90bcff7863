//! NVRTC, the run-time compiler of CUDA C++, loaded from where it was found.

#![allow(unsafe_code, reason = "NVRTC is a C library; see the SAFETY lines")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libloading::Library;

use crate::find::{Candidate, Search, first_usable, versions};

type Program = *mut c_void;
type SizeOf = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type BytesOf = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The calls that are used. NVRTC's results are plain numbers, 0 for success.
struct Calls {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    cubin_size: SizeOf,
    cubin: BytesOf,
    log_size: SizeOf,
    log: BytesOf,
    words: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// A loaded NVRTC.
pub(crate) struct Nvrtc {
    calls: Calls,
    /// What it was loaded from.
    pub(crate) origin: String,
    /// Major and minor version.
    pub(crate) version: (u32, u32),
    /// Kept loaded as long as the calls may be used; the builtins stay for the life of the process.
    _library: Library,
}

/// What a compilation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// Code for one chip.
    pub(crate) cubin: Vec<u8>,
    /// Warnings, and what ptxas was asked to tell.
    pub(crate) log: String,
}

impl Nvrtc {
    /// The first NVRTC of `search` whose major version the driver (of CUDA `driver`.x) takes.
    ///
    /// # Errors
    /// What was tried and why it did not do, for people.
    pub(crate) fn find(search: &Search, driver: Option<u32>) -> Result<Self, String> {
        first_usable(search.nvrtc(), driver, Self::open, |found| found.version)
    }

    fn open(candidate: &Candidate) -> Result<Self, String> {
        // SAFETY: NVRTC's initialisers may run anywhere; the user or the system put the library where it was found.
        let load = |name: &std::ffi::OsStr| unsafe { Library::new(name) }.map_err(|e| e.to_string());
        let library = match candidate {
            Candidate::Name(name) => load(name.as_ref())?,
            Candidate::File(path) => {
                // NVRTC opens its builtins by name alone, which works if they are loaded already.
                for builtins in path.parent().map(|dir| versions(dir, "nvrtc-builtins")).unwrap_or_default() {
                    if let Ok(library) = load(builtins.as_os_str()) {
                        std::mem::forget(library);
                    }
                }
                load(path.as_os_str())?
            }
        };
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: the names and types of these functions are NVRTC's published ones, the same since CUDA 11.1; the
        // library is kept as long as the pointers.
        let calls = unsafe {
            let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = symbol(&library, "nvrtcVersion")?;
            version(&raw mut major, &raw mut minor);
            Calls {
                create: symbol(&library, "nvrtcCreateProgram")?,
                compile: symbol(&library, "nvrtcCompileProgram")?,
                destroy: symbol(&library, "nvrtcDestroyProgram")?,
                cubin_size: symbol(&library, "nvrtcGetCUBINSize")?,
                cubin: symbol(&library, "nvrtcGetCUBIN")?,
                log_size: symbol(&library, "nvrtcGetProgramLogSize")?,
                log: symbol(&library, "nvrtcGetProgramLog")?,
                words: symbol(&library, "nvrtcGetErrorString")?,
            }
        };
        let number = |n: c_int| u32::try_from(n).unwrap_or_default();
        let version = (number(major), number(minor));
        if version < (12, 0) {
            return Err(format!("version {major}.{minor} is too old, 12.0 is needed"));
        }
        Ok(Self { calls, origin: candidate.to_string(), version, _library: library })
    }

    /// Compiles a source named `name` to a cubin.
    ///
    /// # Errors
    /// The compiler's words.
    pub(crate) fn compile(&self, source: &str, name: &str, options: &[String]) -> Result<Compiled, String> {
        let c = |text: &str| CString::new(text).map_err(|_| "a zero byte in the source or an option".to_owned());
        let (source, name) = (c(source)?, c(name)?);
        let options = options.iter().map(|o| c(o)).collect::<Result<Vec<CString>, String>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program = Guard { calls: &self.calls, raw: std::ptr::null_mut() };
        let none = std::ptr::null();
        // SAFETY: all strings live until the program is destroyed at the end; no headers are given.
        let made = unsafe { (self.calls.create)(&raw mut program.raw, source.as_ptr(), name.as_ptr(), 0, none, none) };
        self.done(made).map_err(|why| format!("create program: {why}"))?;
        // SAFETY: the program was made above; there are as many options as said.
        let compiled = unsafe { (self.calls.compile)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
        let log = self.bytes(&program, self.calls.log_size, self.calls.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        self.done(compiled).map_err(|why| if log.is_empty() { why } else { format!("{why}\n{log}") })?;
        let cubin = self.bytes(&program, self.calls.cubin_size, self.calls.cubin)?;
        if cubin.is_empty() {
            return Err("no cubin, for want of a real architecture".to_owned());
        }
        Ok(Compiled { cubin, log })
    }

    fn done(&self, result: c_int) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC answers with a static string for every number.
        let words = unsafe { CStr::from_ptr((self.calls.words)(result)) };
        Err(words.to_string_lossy().into_owned())
    }

    fn bytes(&self, program: &Guard<'_>, size: SizeOf, bytes: BytesOf) -> Result<Vec<u8>, String> {
        let mut len = 0usize;
        // SAFETY: the program is alive; the call writes one number.
        self.done(unsafe { size(program.raw, &raw mut len) })?;
        let mut out = vec![0u8; len];
        if len > 0 {
            // SAFETY: the call writes the `len` bytes that it announced.
            self.done(unsafe { bytes(program.raw, out.as_mut_ptr().cast()) })?;
        }
        Ok(out)
    }
}

/// # Safety
/// `T` is the type of the function called `name`.
pub(crate) unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: by the caller's word.
    unsafe { library.get::<T>(name) }.map(|found| *found).map_err(|e| e.to_string())
}

/// Destroys its program.
struct Guard<'a> {
    calls: &'a Calls,
    raw: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { (self.calls.destroy)(&raw mut self.raw) };
        }
    }
}
