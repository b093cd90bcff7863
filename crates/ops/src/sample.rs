//! Choosing tokens on the device.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::sample::{Choice, SAMPLE, SampleParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// The token of each row that wanted logits, and its log-probability under the unmodified logits.
///
/// It chooses as the host's sampler does with the same random number, but where sums differ by a rounding.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, vocab]`.
    pub logits: &'a Tensor,
    /// A [`Choice`] a row.
    pub choices: &'a BufferRange,
    /// `[rows, 2]` words: token (u32), log-probability (f32); or [`seam_kernels::sample::BAD`] and the first token whose
    /// logit is not finite.
    pub out: &'a Tensor,
}

impl Sample<'_> {
    /// Whether a device has the kernel.
    #[must_use]
    pub fn available(caps: &Caps) -> bool {
        let room =
            caps.max_invocations >= SAMPLE.workgroup.invocations && caps.max_workgroup_bytes >= SAMPLE.workgroup.bytes;
        caps.kernels.contains(SAMPLE.id) && room
    }
}

impl Operation for Sample<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (rows, choices) = (self.logits.rows(), self.choices.len / size_of::<Choice>() as u64);
        ensure("sample", self.out.cols() == 2 && self.out.rows() >= rows && choices >= u64::from(rows), || {
            format!("{rows} rows, {choices} choices, results [{}, {}]", self.out.rows(), self.out.cols())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let params = SampleParams { vocab: self.logits.cols(), pad: [0; 3] };
        let bindings = vec![self.tables.clone(), self.logits.range(), self.choices.clone(), self.out.range()];
        let grid = [self.logits.rows(), 1, 1];
        Ok(vec![launch("sample", caps, SAMPLE.id, Vec::new(), &params, bindings, grid)?])
    }
}
