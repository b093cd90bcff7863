//! An f32 matrix as bf16 ones, for tensor cores: rounded to one, or split into three whose sum it is.
//!
//! `hi = bf16(a)`, `mid = bf16(a − hi)`, `lo = bf16(a − hi − mid)`: 8 bits each, so the three hold the 24 bits of an f32, and
//! `A·Wᵀ = lo·Wᵀ + mid·Wᵀ + hi·Wᵀ` has exact products whose sums are f32.

use bytemuck::{Pod, Zeroable};
use seam_device::{BufferRange, Dispatch, Gemm, KernelId, align_up};

use crate::manifest::{Binding, Constant, Kernel, Workgroup};

/// Elements that one invocation converts: 16 bytes of bf16.
const PIECE: u32 = 8;
/// Invocations of a workgroup.
const WIDTH: u32 = 128;

/// Parameters of [`GEMM_PARTS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PartsParams {
    /// Rows of A.
    pub m: u32,
    /// Columns of A, a multiple of 4.
    pub k: u32,
    /// Elements from row to row of A.
    pub lda: u32,
    /// Elements from row to row of a part, a multiple of 8.
    pub leading: u32,
    /// Word of `tables` that holds the number of rows, or `u32::MAX`: then it is `m`. Rows from there on become zero.
    pub count: u32,
    /// Pieces of 16 bytes from part to part.
    pub stride: u32,
    /// Zero.
    pub pad: [u32; 2],
}

/// A [m, k] f32 as `PARTS` matrices [m, leading] of bf16, the least significant first; columns from k on are zero.
/// Grid: x covers the columns by 1024, y the rows by any number.
pub static GEMM_PARTS: Kernel = Kernel {
    id: KernelId(32),
    name: "gemm_parts",
    wgsl: None,
    cuda: Some("gemm/gemm_parts.cu"),
    twin: None,
    bindings: &[Binding::read("tables"), Binding::read("a"), Binding::write("parts")],
    params: size_of::<PartsParams>(),
    workgroup: Workgroup::new(WIDTH, 0),
    constants: &[Constant { name: "PARTS", legal: &[1, 3] }],
};

/// Elements from row to row of a part: rows begin at multiples of 16 bytes.
#[must_use]
pub fn leading(k: u32) -> u32 {
    k.checked_next_multiple_of(PIECE).unwrap_or(k)
}

/// Bytes from part to part of m rows.
#[must_use]
pub fn stride(m: u32, k: u32) -> u64 {
    align_up(u64::from(m) * u64::from(leading(k)) * 2)
}

/// The launch that writes `count` parts of A of a product that was checked, on a device that takes `max_grid` workgroups
/// along an axis.
#[must_use]
pub fn dispatch(gemm: &Gemm, parts: BufferRange, count: u32, max_grid: u32) -> Dispatch {
    let &Gemm { m, k, lda, .. } = gemm;
    let leading = leading(k);
    // Without a row count the kernel does not read its tables; A stands in for them.
    let (tables, rows) = gemm.rows.clone().unwrap_or_else(|| (gemm.a.clone(), u32::MAX));
    let pieces = u32::try_from(stride(m, k) / 16).unwrap_or(u32::MAX);
    let params = PartsParams { m, k, lda, leading, count: rows, stride: pieces, pad: [0; 2] };
    Dispatch {
        kernel: GEMM_PARTS.id,
        constants: vec![count],
        params: bytemuck::bytes_of(&params).to_vec(),
        bindings: vec![tables, gemm.a.clone(), parts],
        grid: [leading.div_ceil(PIECE * WIDTH), m.min(max_grid), 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_parts_are_aligned() {
        assert_eq!([4, 8, 12, u32::MAX - 3].map(leading), [8, 8, 16, u32::MAX - 3]);
        assert_eq!(stride(3, 12), 256);
        assert_eq!(stride(1 << 16, 1 << 20), 1 << 37);
    }
}
