//! Recording: checks every command, compiles its kernel, and resolves addresses.

use std::sync::Arc;

use seam_device::{
    Access, Buffer, BufferRange, BufferUse, CommandList, Copy, DeviceError, DeviceId, Dispatch, Gemm, Recorder,
    check_dispatch, check_gemm,
};
use seam_kernels::{Kernel, gemm, validate};

use crate::core::Core;
use crate::driver::Launch;
use crate::list::{List, Step};
use crate::memory::memory;

/// Columns of a product of few rows that a block computes.
const FEW_COLUMNS: u32 = 4;

pub(crate) struct CudaRecorder {
    core: Arc<Core>,
    steps: Vec<Step>,
    buffers: Vec<Buffer>,
    dispatches: u64,
    copied: u64,
}

impl CudaRecorder {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, steps: Vec::new(), buffers: Vec::new(), dispatches: 0, copied: 0 }
    }

    fn device(&self) -> (DeviceId, &str) {
        (self.core.id, &self.core.gpu.name)
    }

    fn launch(
        &mut self,
        kernel: &'static Kernel,
        constants: &[u32],
        params: &[u8],
        bindings: &[BufferRange],
        grid: [u32; 3],
    ) -> Result<(), DeviceError> {
        let bad = |reason: String| DeviceError::BadDispatch { kernel: kernel.name.to_owned(), reason };
        let limit = self.core.caps.max_grid;
        if grid.iter().any(|&n| n > limit) {
            return Err(bad(format!("grid {grid:?}, the device takes {limit} workgroups along an axis")));
        }
        if let Some(range) = bindings.iter().find(|r| r.buffer.usage() == BufferUse::Readback) {
            return Err(bad(format!("readback buffer {} cannot be bound", range.buffer.label())));
        }
        let address = |r: &BufferRange| Ok(memory(&self.core, &r.buffer)?.address().offset(r.offset));
        let addresses = bindings.iter().map(address).collect::<Result<Vec<_>, DeviceError>>()?;
        let module = self.core.kernels.get(&self.core.gpu, kernel, constants)?;
        let mut words = vec![0u64; params.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..params.len()].copy_from_slice(params);
        let threads = kernel.workgroup.invocations;
        self.steps.push(Step::Launch(Launch { module, params: words, addresses, grid, threads }));
        self.buffers.extend(bindings.iter().map(|r| r.buffer.clone()));
        self.dispatches += 1;
        Ok(())
    }
}

impl Recorder for CudaRecorder {
    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), DeviceError> {
        let kernel = validate(&dispatch)?;
        let bindings: Vec<(Access, &BufferRange)> =
            kernel.bindings.iter().map(|b| b.access).zip(&dispatch.bindings).collect();
        check_dispatch(self.device(), self.core.caps.max_binding, kernel.name, &bindings)?;
        self.launch(kernel, &dispatch.constants, &dispatch.params, &dispatch.bindings, dispatch.grid)
    }

    fn gemm(&mut self, gemm: Gemm) -> Result<(), DeviceError> {
        if !self.core.caps.gemm.weights.contains(&gemm.weight) {
            return Err(DeviceError::Unsupported {
                device: self.core.gpu.name.clone(),
                what: format!("a product with weights of {}", gemm.weight),
            });
        }
        check_gemm(self.device(), self.core.caps.max_binding, &gemm)?;
        let core = Arc::clone(&self.core);
        let limit = core.caps.max_grid;
        // Launches of products are not checked as bindings: A may stand in for the tables, and no limit holds for what the
        // parts of A take.
        if let Some(products) = &core.products
            && let Some(planned) = products.planned(&core, &gemm)?
        {
            let (calls, memory) = planned.calls(&core, &gemm)?;
            let d = gemm::parts::dispatch(&gemm, planned.parts.clone(), planned.count, limit);
            self.launch(validate(&d)?, &d.constants, &d.params, &d.bindings, d.grid)?;
            self.dispatches += calls.len() as u64;
            self.steps.extend(calls.into_iter().map(Step::Product));
            self.buffers.extend(memory.into_iter().chain([gemm.w, gemm.c].map(|range| range.buffer)));
            return Ok(());
        }
        let n = gemm.n;
        let mut d = gemm::dispatch(gemm, limit);
        if d.kernel == gemm::GEMM_FEW.id {
            d.grid[0] = n.div_ceil(FEW_COLUMNS).min(limit);
        }
        let kernel = validate(&d)?;
        self.launch(kernel, &d.constants, &d.params, &d.bindings, d.grid)
    }

    fn copy(&mut self, src: &BufferRange, dst: &BufferRange) -> Result<(), DeviceError> {
        let copy = Copy { src: src.clone(), dst: dst.clone() };
        copy.check(self.device())?;
        if src.buffer.usage() == BufferUse::Readback {
            return Err(DeviceError::BadDispatch {
                kernel: "copy".to_owned(),
                reason: format!("readback buffer {} cannot be copied from", src.buffer.label()),
            });
        }
        if src.len > 0 {
            let from = memory(&self.core, &src.buffer)?.address().offset(src.offset);
            let to = memory(&self.core, &dst.buffer)?.address().offset(dst.offset);
            self.steps.push(Step::Copy { from, to, bytes: src.len });
            self.buffers.extend([src.buffer.clone(), dst.buffer.clone()]);
            self.copied += src.len;
        }
        Ok(())
    }

    fn zero(&mut self, dst: &BufferRange) -> Result<(), DeviceError> {
        let memory = memory(&self.core, &dst.buffer)?;
        dst.buffer.range(dst.offset, dst.len)?;
        let label = dst.buffer.label();
        if dst.buffer.usage() == BufferUse::Constant {
            return Err(DeviceError::ReadOnly { label: label.to_owned() });
        }
        for offset in [dst.offset, dst.len] {
            if !offset.is_multiple_of(4) {
                return Err(DeviceError::Misaligned { label: label.to_owned(), offset, align: 4 });
            }
        }
        if dst.len > 0 {
            self.steps.push(Step::Zero { at: memory.address().offset(dst.offset), bytes: dst.len });
            self.buffers.push(dst.buffer.clone());
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<CommandList, DeviceError> {
        let Self { core, steps, mut buffers, dispatches, copied } = *self;
        core.gpu.alive()?;
        buffers.sort_by_key(Buffer::address);
        buffers.dedup_by_key(|b| b.address());
        let list = List { dispatches, copied, ..List::new(steps, buffers) };
        Ok(CommandList::new(core.id, dispatches as usize, Box::new(Arc::new(list))))
    }
}
