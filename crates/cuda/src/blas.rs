//! cublasLt, NVIDIA's library of matrix products, loaded from where it was found.
//!
//! Only what products of bf16 operands with sums and results in f32 need. Names, types and numbers are those of
//! `cublasLt.h`, the same in CUDA 12 and 13.

#![allow(unsafe_code, reason = "cublasLt is a C library; see the SAFETY lines")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libloading::Library;
use seam_device::BIND_ALIGN;

use crate::driver::{Address, Context, Refusal, Stream};
use crate::find::{Candidate, Search, first_usable};
use crate::nvrtc::symbol;

type Handle = *mut c_void;
type Description = *mut c_void;
type Layout = *mut c_void;
type Preference = *mut c_void;
type Status = c_int;
type Set = unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> Status;
type Destroy = unsafe extern "C" fn(*mut c_void) -> Status;

/// `CUBLAS_COMPUTE_32F`: sums in f32, never in TF32.
const COMPUTE_F32: c_int = 68;
/// `CUDA_R_32F`.
const F32: c_int = 0;
/// `CUDA_R_16BF`.
const BF16: c_int = 14;
/// `CUBLASLT_MATMUL_DESC_TRANSA`.
const TRANSPOSE_A: c_int = 3;
/// `CUBLAS_OP_T`.
const TRANSPOSED: c_int = 1;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const MOST_WORKSPACE: c_int = 1;
/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`; B, C and D follow.
const LEAST_ALIGNMENT: c_int = 5;

/// Bytes of workspace that a product may take: what NVIDIA advises for Hopper.
pub(crate) const WORKSPACE: u64 = 32 << 20;

/// Bytes at a multiple of which A and W begin: what a range that is bound begins at.
pub(crate) const ALIGN: u32 = BIND_ALIGN as u32;

/// A status in words.
pub(crate) fn words(status: Status) -> String {
    let name = match status {
        1 => "not initialised",
        3 => "no memory on the host",
        7 => "invalid value",
        8 => "the chip lacks something",
        11 => "mapping failed",
        13 => "execution failed",
        14 => "internal error",
        15 => "not supported",
        16 => "licence error",
        _ => "unknown status",
    };
    format!("{name} (status {status})")
}

/// `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Advice {
    algorithm: Algorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

/// The calls that are used.
struct Calls {
    destroy: Destroy,
    description: unsafe extern "C" fn(*mut Description, c_int, c_int) -> Status,
    set_description: Set,
    destroy_description: Destroy,
    layout: unsafe extern "C" fn(*mut Layout, c_int, u64, u64, i64) -> Status,
    destroy_layout: Destroy,
    preference: unsafe extern "C" fn(*mut Preference) -> Status,
    set_preference: Set,
    destroy_preference: Destroy,
    advise: unsafe extern "C" fn(
        Handle,
        Description,
        Layout,
        Layout,
        Layout,
        Layout,
        Preference,
        c_int,
        *mut Advice,
        *mut c_int,
    ) -> Status,
    multiply: unsafe extern "C" fn(
        Handle,
        Description,
        *const c_void,
        *const c_void,
        Layout,
        *const c_void,
        Layout,
        *const c_void,
        *const c_void,
        Layout,
        *mut c_void,
        Layout,
        *const Algorithm,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> Status,
    create: unsafe extern "C" fn(*mut Handle) -> Status,
}

/// A loaded cublasLt that no context uses yet.
pub(crate) struct Blas {
    calls: Calls,
    /// What it was loaded from.
    pub(crate) origin: String,
    /// Major and minor version.
    pub(crate) version: (u32, u32),
    /// Kept loaded as long as the calls may be used.
    _library: Library,
}

/// Major and minor version of cublasLt's number: 120803 is 12.8.3, and so is 130100 13.1.0.
fn split(version: usize) -> (u32, u32) {
    let part = |n: usize| u32::try_from(n).unwrap_or_default();
    (part(version / 10_000), part(version / 100 % 100))
}

impl Blas {
    /// The first cublasLt of `search` whose major version the driver (of CUDA `driver`.x) takes.
    ///
    /// # Errors
    /// What was tried and why it did not do, for people.
    pub(crate) fn find(search: &Search, driver: Option<u32>) -> Result<Self, String> {
        first_usable(search.cublas_lt(), driver, Self::open, |found| found.version)
    }

    fn open(candidate: &Candidate) -> Result<Self, String> {
        let name = match candidate {
            Candidate::Name(name) => name.as_ref(),
            Candidate::File(path) => path.as_os_str(),
        };
        // SAFETY: cublasLt's initialisers may run anywhere; the user or the system put the library where it was found.
        let library = unsafe { Library::new(name) }.map_err(|e| e.to_string())?;
        // SAFETY: the names and types of these functions are cublasLt's published ones, the same since CUDA 11; the
        // library is kept as long as the pointers.
        let (calls, version) = unsafe {
            let version: unsafe extern "C" fn() -> usize = symbol(&library, "cublasLtGetVersion")?;
            let calls = Calls {
                create: symbol(&library, "cublasLtCreate")?,
                destroy: symbol(&library, "cublasLtDestroy")?,
                description: symbol(&library, "cublasLtMatmulDescCreate")?,
                set_description: symbol(&library, "cublasLtMatmulDescSetAttribute")?,
                destroy_description: symbol(&library, "cublasLtMatmulDescDestroy")?,
                layout: symbol(&library, "cublasLtMatrixLayoutCreate")?,
                destroy_layout: symbol(&library, "cublasLtMatrixLayoutDestroy")?,
                preference: symbol(&library, "cublasLtMatmulPreferenceCreate")?,
                set_preference: symbol(&library, "cublasLtMatmulPreferenceSetAttribute")?,
                destroy_preference: symbol(&library, "cublasLtMatmulPreferenceDestroy")?,
                advise: symbol(&library, "cublasLtMatmulAlgoGetHeuristic")?,
                multiply: symbol(&library, "cublasLtMatmul")?,
            };
            (calls, split(version()))
        };
        if version < (12, 0) {
            return Err(format!("version {}.{} is too old, 12.0 is needed", version.0, version.1));
        }
        Ok(Self { calls, origin: candidate.to_string(), version, _library: library })
    }
}

/// cublasLt in a context.
pub(crate) struct Session {
    blas: Blas,
    context: Arc<Context>,
    raw: Handle,
}

// SAFETY: cublasLt's handle may be used by several threads at once.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

fn done(status: Status) -> Result<(), Refusal> {
    if status == 0 { Ok(()) } else { Err(Refusal::Products(status)) }
}

impl Session {
    pub(crate) fn new(blas: Blas, context: &Arc<Context>) -> Result<Self, Refusal> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; writes one handle.
        done(unsafe { (blas.calls.create)(&raw mut raw) })?;
        Ok(Self { blas, context: Arc::clone(context), raw })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: made once, destroyed once; the device has waited for its streams.
        let _ = unsafe { (self.blas.calls.destroy)(self.raw) };
    }
}

/// A product `C[m, n] (+)= A[m, k] · W[n, k]ᵀ` of bf16 operands, with f32 sums and results; row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    /// Elements from row to row of A.
    pub(crate) lda: u32,
    /// Elements from row to row of C.
    pub(crate) ldc: u32,
    /// Bytes of which C begins at a multiple.
    pub(crate) align_c: u32,
}

/// How a product is computed: layouts and an algorithm.
pub(crate) struct Plan {
    session: Arc<Session>,
    description: Owned,
    /// Of W, A and C, as cublasLt counts: columns first.
    layouts: [Owned; 3],
    algorithm: Algorithm,
    workspace: usize,
}

/// A description of cublasLt, which is plain memory of the host.
struct Owned {
    raw: *mut c_void,
    destroy: Destroy,
}

// SAFETY: descriptions are read only once they are made.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn new(destroy: Destroy, make: impl FnOnce(*mut *mut c_void) -> Status) -> Result<Self, Refusal> {
        let mut raw = std::ptr::null_mut();
        done(make(&raw mut raw))?;
        Ok(Self { raw, destroy })
    }

    fn set<T: Copy>(&self, set: Set, attribute: c_int, value: T) -> Result<(), Refusal> {
        // SAFETY: the description is alive; the call copies as many bytes as said out of the value.
        done(unsafe { set(self.raw, attribute, std::ptr::from_ref(&value).cast(), size_of::<T>()) })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the library is loaded as long as a plan or session lives.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

impl Plan {
    /// The first algorithm that cublasLt advises for a product, with at most [`WORKSPACE`]; none if it has none.
    ///
    /// A row-major `C = A·Wᵀ` is a column-major `Cᵀ = W·Aᵀ`: W is `k × n` in columns, transposed; A is `k × m`.
    ///
    /// # Errors
    /// What cublasLt says.
    pub(crate) fn new(session: &Arc<Session>, shape: &Shape) -> Result<Option<Self>, Refusal> {
        session.context.enter()?;
        let calls = &session.blas.calls;
        // SAFETY: each call writes one description.
        let description =
            Owned::new(calls.destroy_description, |raw| unsafe { (calls.description)(raw, COMPUTE_F32, F32) })?;
        description.set(calls.set_description, TRANSPOSE_A, TRANSPOSED)?;
        let layout = |element: c_int, rows: u32, columns: u32, leading: u32| {
            // SAFETY: as above.
            Owned::new(calls.destroy_layout, |raw| unsafe {
                (calls.layout)(raw, element, rows.into(), columns.into(), leading.into())
            })
        };
        let &Shape { m, n, k, lda, ldc, align_c } = shape;
        let layouts = [layout(BF16, k, n, k)?, layout(BF16, k, m, lda)?, layout(F32, n, m, ldc)?];
        // SAFETY: as above.
        let preference = Owned::new(calls.destroy_preference, |raw| unsafe { (calls.preference)(raw) })?;
        preference.set(calls.set_preference, MOST_WORKSPACE, WORKSPACE as usize)?;
        for (attribute, align) in (LEAST_ALIGNMENT..).zip([ALIGN, ALIGN, align_c, align_c]) {
            preference.set(calls.set_preference, attribute, align)?;
        }
        let (mut advice, mut found) = (Advice::default(), 0);
        let [w, a, c] = [0, 1, 2].map(|i: usize| layouts[i].raw);
        // SAFETY: all descriptions are alive; one advice is written, as asked for.
        let status = unsafe {
            let (advice, found) = (&raw mut advice, &raw mut found);
            (calls.advise)(session.raw, description.raw, w, a, c, c, preference.raw, 1, advice, found)
        };
        // Not supported: there is no algorithm.
        if status == 15 || (status == 0 && (found == 0 || advice.state != 0)) {
            return Ok(None);
        }
        done(status)?;
        let (algorithm, workspace) = (advice.algorithm, advice.workspace);
        Ok(Some(Self { session: Arc::clone(session), description, layouts, algorithm, workspace }))
    }

    /// Puts the product on `stream`; `workspace` has [`WORKSPACE`] bytes that nothing else uses until it has run.
    ///
    /// # Errors
    /// What cublasLt says.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        [w, a, c]: [Address; 3],
        accumulate: bool,
        workspace: Address,
    ) -> Result<(), Refusal> {
        self.session.context.enter()?;
        let (one, beta) = (1.0f32, f32::from(u8::from(accumulate)));
        let [w_layout, a_layout, c_layout] = [0, 1, 2].map(|i: usize| self.layouts[i].raw);
        // SAFETY: the layouts were checked against the ranges when the product was recorded; the caller keeps the memory
        // until the product has run. Both factors are read during the call.
        done(unsafe {
            (self.session.blas.calls.multiply)(
                self.session.raw,
                self.description.raw,
                (&raw const one).cast(),
                w.pointer(),
                w_layout,
                a.pointer(),
                a_layout,
                (&raw const beta).cast(),
                c.pointer(),
                c_layout,
                c.pointer(),
                c_layout,
                &raw const self.algorithm,
                workspace.pointer(),
                self.workspace,
                stream.handle(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_those_of_the_header() {
        assert_eq!((size_of::<Algorithm>(), size_of::<Advice>()), (64, 96));
    }

    #[test]
    fn versions_are_split() {
        assert_eq!(split(120_803), (12, 8));
        assert_eq!(split(130_100), (13, 1));
        assert_eq!(split(12_103).0, 1, "CUDA 11 counted in another way");
    }

    /// A folder with files that are no libraries: each is named with the loader's reason.
    #[test]
    fn what_was_tried_is_told() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libcublasLt.so.12", "libcublasLt.so.13"] {
            std::fs::write(dir.path().join(name), b"no library").unwrap();
        }
        let search = Search { first: vec![dir.path().to_path_buf()], ..Search::default() };
        let Err(why) = Blas::find(&search, None) else { panic!("found") };
        assert!(why.contains("libcublasLt.so.13: ") && why.contains("libcublasLt.so.12: "), "{why}");
        let Err(why) = Blas::find(&Search::default(), Some(13)) else { panic!("found") };
        assert!(why.contains("no folder"), "{why}");
    }

    #[test]
    fn a_status_has_words() {
        assert_eq!(words(15), "not supported (status 15)");
        assert_eq!(words(99), "unknown status (status 99)");
    }
}
