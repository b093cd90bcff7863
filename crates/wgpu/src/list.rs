//! A finished list and its encoding: one command buffer, a new pass only where a copy stands between launches.

use std::sync::Arc;

use seam_device::Buffer;

use crate::pipeline::Pipeline;

/// One command in wgpu's terms.
pub(crate) enum Step {
    Launch { pipeline: Arc<Pipeline>, group: wgpu::BindGroup, grid: [u32; 3] },
    Copy { src: wgpu::Buffer, src_offset: u64, dst: wgpu::Buffer, dst_offset: u64, len: u64 },
    Zero { dst: wgpu::Buffer, offset: u64, len: u64 },
}

/// A finished list.
pub(crate) struct List {
    steps: Vec<Step>,
    /// Keeps the buffers, and their bytes in the count, as long as the list lives or runs.
    _buffers: Vec<Buffer>,
    passes: usize,
    pub(crate) dispatches: u64,
    pub(crate) copied: u64,
}

impl List {
    pub(crate) fn new(steps: Vec<Step>, buffers: Vec<Buffer>, dispatches: u64, copied: u64) -> Self {
        let launches = |step: &Step| matches!(step, Step::Launch { .. });
        let passes = steps.chunk_by(|a, b| launches(a) && launches(b)).filter(|run| launches(&run[0])).count();
        Self { steps, _buffers: buffers, passes, dispatches, copied }
    }

    /// Compute passes in it.
    pub(crate) fn passes(&self) -> usize {
        self.passes
    }

    /// Encodes all steps. `times` names the queries for the begin of the first and the end of the last pass.
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder, times: Option<(&wgpu::QuerySet, u32, u32)>) {
        let mut steps = self.steps.iter().peekable();
        let mut pass_number = 0;
        while let Some(step) = steps.peek() {
            match step {
                Step::Launch { .. } => {
                    pass_number += 1;
                    let writes = times.and_then(|(query_set, begin, end)| {
                        let begin = (pass_number == 1).then_some(begin);
                        let end = (pass_number == self.passes).then_some(end);
                        (begin.is_some() || end.is_some()).then_some(wgpu::ComputePassTimestampWrites {
                            query_set,
                            beginning_of_pass_write_index: begin,
                            end_of_pass_write_index: end,
                        })
                    });
                    let desc = wgpu::ComputePassDescriptor { label: Some("list"), timestamp_writes: writes };
                    let mut pass = encoder.begin_compute_pass(&desc);
                    while let Some(Step::Launch { pipeline, group, grid: [x, y, z] }) =
                        steps.next_if(|step| matches!(step, Step::Launch { .. }))
                    {
                        pass.set_pipeline(&pipeline.raw);
                        pass.set_bind_group(0, group, &[]);
                        pass.dispatch_workgroups(*x, *y, *z);
                    }
                }
                Step::Copy { src, src_offset, dst, dst_offset, len } => {
                    encoder.copy_buffer_to_buffer(src, *src_offset, dst, *dst_offset, Some(*len));
                    steps.next();
                }
                Step::Zero { dst, offset, len } => {
                    encoder.clear_buffer(dst, *offset, Some(*len));
                    steps.next();
                }
            }
        }
    }
}
