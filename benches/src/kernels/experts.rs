//! Experts of a layer, by rows: alone, sorted in small tiles, in large ones.

use seam_device::DType;

use super::KernelCase;
use super::sizes::sizes;
use crate::cases::experts::{Sizes, record};
use crate::registry::Scale;

pub(super) fn cases(scale: Scale) -> Vec<KernelCase> {
    let s = sizes(scale);
    let (rows, inner): (&[u32], u32) = match scale {
        Scale::Small => (&[1, 16, 100], 48),
        Scale::Real => (&[1, 8, 64, 512, 4096], 512),
    };
    let mut cases = Vec::new();
    for (form, dtype) in [("bf16", DType::BF16), ("fp8", DType::F8E4M3)] {
        cases.extend(rows.iter().map(|&rows| {
            let (experts, top, ..) = s.experts;
            let sizes = Sizes { rows, experts, top, hidden: s.hidden, inner };
            KernelCase {
                group: format!("experts/{form}"),
                variant: rows.to_string(),
                bench: "experts",
                shape: format!("{rows} rows, {top} of {experts} experts [{inner}, {}] {form}", s.hidden),
                build: Box::new(move |lab, seed| Ok(record(lab, sizes, dtype, seed)?.1)),
            }
        }));
    }
    cases
}
