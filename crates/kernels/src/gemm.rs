//! Matrix products of devices that have no library for them (wgpu). The cpu device has its own, so there is no twin.

use bytemuck::{Pod, Zeroable};
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};

/// Parameters of [`GEMM`] and [`GEMM_FEW`], as `seam_device::Gemm`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct GemmParams {
    /// Rows of A and C, an upper bound where `count` is given.
    pub m: u32,
    /// Rows of W.
    pub n: u32,
    /// Columns of A and W, a multiple of 4.
    pub k: u32,
    /// Elements from row to row of A.
    pub lda: u32,
    /// Elements from row to row of C.
    pub ldc: u32,
    /// First column of C.
    pub column: u32,
    /// Word of `tables` that holds the number of rows, or `u32::MAX`: then it is `m`.
    pub count: u32,
    /// Zero.
    pub pad: u32,
}

const BINDINGS: &[Binding] = &[Binding::read("tables"), Binding::read("a"), Binding::read("w"), Binding::write("c")];
const CONSTANTS: &[Constant] =
    &[Constant { name: "BF16", legal: &[0, 1] }, Constant { name: "ACCUMULATE", legal: &[0, 1] }];

/// `C (+)= A·Wᵀ`, 4×4 results an invocation, 8×8 invocations: grid x covers n by 32, y covers m by 32.
pub static GEMM: Kernel = Kernel {
    id: KernelId(13),
    name: "gemm",
    wgsl: Some("gemm/gemm.wgsl"),
    cuda: Some("gemm/gemm.cu"),
    twin: None,
    bindings: BINDINGS,
    params: size_of::<GemmParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: CONSTANTS,
};

/// The same for few rows: one column of C an invocation group of 8 lanes, 8 columns a workgroup of 64, up to 8 rows.
/// Grid: x covers n by 8, y covers m by 8.
pub static GEMM_FEW: Kernel = Kernel {
    id: KernelId(14),
    name: "gemm_few",
    wgsl: Some("gemm/gemm_few.wgsl"),
    cuda: Some("gemm/gemm_few.cu"),
    twin: None,
    bindings: BINDINGS,
    params: size_of::<GemmParams>(),
    workgroup: Workgroup::new(64, 2048),
    constants: CONSTANTS,
};
