//! Matrix products by own kernels: all of wgpu's; of cuda those with few rows or f32 weights, and all where it has no
//! library. The cpu device has a library, so there is no twin. [`parts`] is what cuda's library needs.

pub mod parts;

use bytemuck::{Pod, Zeroable};
use seam_device::{Dispatch, Gemm, KernelId};

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::weights::{WEIGHT, weight_constant};

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
    /// FP8: a scale holds for `2^shift` rows and 128 columns of W. Otherwise 0.
    pub shift: u32,
}

const BINDINGS: &[Binding] =
    &[Binding::read("tables"), Binding::read("a"), Binding::read("w"), Binding::read("scales"), Binding::write("c")];
const CONSTANTS: &[Constant] = &[WEIGHT, Constant { name: "ACCUMULATE", legal: &[0, 1] }];

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

/// The same for few rows: up to 8 of them a workgroup of 64, and 8 columns of C (on cuda 4, and more where the grid does not
/// reach all). Grid: x covers n by 8 (4), y covers m by 8.
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

/// Most rows for which [`GEMM_FEW`] is taken.
pub const FEW_ROWS: u32 = 8;

/// The launch that computes a product that was checked, on a device that takes `max_grid` workgroups along an axis.
#[must_use]
pub fn dispatch(gemm: Gemm, max_grid: u32) -> Dispatch {
    let Gemm { m, n, .. } = gemm;
    let (kernel, grid) = if m <= FEW_ROWS && n.div_ceil(8) <= max_grid {
        (&GEMM_FEW, [n.div_ceil(8), m.div_ceil(8), 1])
    } else {
        (&GEMM, [n.div_ceil(32), m.div_ceil(32), 1])
    };
    // Without a count the kernel does not read its tables, nor scales of weights without; A stands in for them.
    let (tables, count) = gemm.rows.unwrap_or_else(|| (gemm.a.clone(), u32::MAX));
    let (scales, shift) = gemm.scales.map_or_else(|| (gemm.a.clone(), 0), |s| (s.range, s.shift));
    let params = GemmParams { m, n, k: gemm.k, lda: gemm.lda, ldc: gemm.ldc, column: gemm.c_column, count, shift };
    Dispatch {
        kernel: kernel.id,
        // A dtype without a constant was refused: `Caps::gemm` lists none.
        constants: vec![weight_constant(gemm.weight).unwrap_or(u32::MAX), u32::from(gemm.accumulate)],
        params: bytemuck::bytes_of(&params).to_vec(),
        bindings: vec![tables, gemm.a, gemm.w, scales, gemm.c],
        grid,
    }
}
