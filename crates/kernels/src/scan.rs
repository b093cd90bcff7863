//! Looking for values that must not be.

use bytemuck::{Pod, Zeroable};
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::View;
use crate::twin::Args;

/// A flag that says that nothing was found.
pub const CLEAN: u32 = u32::MAX;

/// TEST: not a number, or infinite.
pub const TEST_NON_FINITE: u32 = 0;
/// TEST: above 0 (infinity too; not a number is not).
pub const TEST_POSITIVE: u32 = 1;

/// Parameters of [`SCAN`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ScanParams {
    /// First column that is looked at.
    pub offset: u32,
    /// Columns that are looked at.
    pub cols: u32,
    /// Elements from one row to the next.
    pub row: u32,
    /// Header word that holds the number of rows.
    pub count: u32,
    /// Which flag.
    pub tag: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

/// Lowers flag `tag` to the index `row·cols + column` of the first value in columns `offset .. offset + cols` that fails
/// TEST; the column is counted from `offset`. [`CLEAN`] stays where there is none.
///
/// Values are judged by their bits, so no compiler may assume that they are numbers. Grid: x covers cols by 64, y the rows.
pub static SCAN: Kernel = Kernel {
    id: KernelId(22),
    name: "scan",
    wgsl: Some("scan/scan.wgsl"),
    cuda: Some("scan/scan.cu"),
    twin: Some(scan),
    bindings: &[Binding::read("tables"), Binding::read("x"), Binding::write("flags")],
    params: size_of::<ScanParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[Constant { name: "TEST", legal: &[TEST_NON_FINITE, TEST_POSITIVE] }],
};

fn bad(test: u32, bits: u32) -> bool {
    match test {
        TEST_POSITIVE => (1..=0x7f80_0000).contains(&bits),
        _ => bits & 0x7f80_0000 == 0x7f80_0000,
    }
}

fn scan(args: &mut Args<'_>) {
    let p: ScanParams = args.params();
    let test = args.constant(0);
    let (t, x, flags) = (View(args.words(0)), args.words(1), args.take_words(2));
    let cols = p.cols as usize;
    let rows = x.chunks(p.row as usize).take(t.header(p.count as usize));
    let values = rows.flat_map(|row| &row[p.offset as usize..][..cols]);
    if let Some(at) = values.enumerate().find_map(|(i, bits)| bad(test, *bits).then_some(i as u32)) {
        let flag = &mut flags[p.tag as usize];
        *flag = at.min(*flag);
    }
}
