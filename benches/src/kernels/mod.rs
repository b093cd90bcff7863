//! Kernels one by one, at the sizes at which models launch them: what `seam bench kernels` measures.
//!
//! A [`KernelCase`] is an operation at one size. It goes through `seam_ops`, so that it runs whichever kernel the plan
//! chooses for the device. Cases of one group differ in size alone. Before a case is timed,
//!
//! * the bench of the registry that its group names is held against its f64 reference at the small scale,
//! * on devices other than the processor, the small cases of the group are held against the processor's twins,
//! * and the case itself must overwrite every output, with finite numbers.

mod attention;
mod chains;
mod experts;
mod report;
mod roofline;
mod rows;
mod run;
mod sizes;
mod verify;

use crate::case::Cost;
use crate::error::BenchError;
use crate::lab::Lab;
use crate::registry::Scale;

pub use report::{Ceiling, CheckReport, KernelReport, KernelRow, Status};
pub use roofline::{Achieved, Roofline};
pub use run::{Options, run};

/// Records one run of a case on a lab, with inputs that depend on the seed, and says what it must at least do.
type Build = Box<dyn Fn(&mut Lab, u64) -> Result<Cost, BenchError>>;

/// An operation at one size.
pub struct KernelCase {
    /// The operation: cases of one group differ in size alone.
    pub group: String,
    /// The size, in a word.
    pub variant: String,
    /// The bench of the registry that launches the same kernels and knows their reference.
    pub bench: &'static str,
    /// Its sizes.
    pub shape: String,
    pub(crate) build: Build,
}

impl KernelCase {
    /// `group/variant`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.group, self.variant)
    }
}

impl std::fmt::Debug for KernelCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelCase({}, {})", self.name(), self.shape)
    }
}

/// Every case at a scale. At the small one they take moments on any device; the real ones are layers of
/// Qwen3.5-35B-A3B, Ring (lightning) and Mamba-2, and what published models of the other families have.
#[must_use]
pub fn kernel_cases(scale: Scale) -> Vec<KernelCase> {
    let mut cases = rows::cases(scale);
    cases.extend(attention::cases(scale));
    cases.extend(chains::cases(scale));
    cases.extend(experts::cases(scale));
    cases
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::registry::BENCHES;

    #[test]
    fn names_are_unique_and_groups_are_alike_at_both_scales() {
        let groups = |scale| kernel_cases(scale).into_iter().map(|c| c.group).collect::<BTreeSet<_>>();
        assert_eq!(groups(Scale::Small), groups(Scale::Real));
        for scale in [Scale::Small, Scale::Real] {
            let cases = kernel_cases(scale);
            let names: BTreeSet<String> = cases.iter().map(KernelCase::name).collect();
            assert_eq!(names.len(), cases.len());
            for case in &cases {
                assert!(BENCHES.iter().any(|b| b.name == case.bench), "{} names {}", case.name(), case.bench);
            }
        }
    }
}
