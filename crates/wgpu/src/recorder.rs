//! Recording: checks every command, chooses the GEMM kernel, and makes bind groups when the list is finished.

use std::num::NonZeroU64;
use std::sync::Arc;

use seam_device::{
    Access, BIND_ALIGN, Buffer, BufferRange, BufferUse, CommandList, Copy, DeviceError, Dispatch, Gemm, Recorder,
    check_dispatch, check_gemm,
};
use seam_kernels::{Kernel, gemm, validate};

use crate::core::Core;
use crate::list::{List, Step};
use crate::memory::{VECTOR, create, memory};
use crate::pipeline::{Pipeline, pipeline};

enum Recorded {
    Launch { name: &'static str, pipeline: Arc<Pipeline>, params: Vec<u8>, bindings: Vec<BufferRange>, grid: [u32; 3] },
    Copy(Copy),
    Zero(BufferRange),
}

pub(crate) struct WgpuRecorder {
    core: Arc<Core>,
    recorded: Vec<Recorded>,
}

impl WgpuRecorder {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, recorded: Vec::new() }
    }

    fn launch(
        &mut self,
        kernel: &'static Kernel,
        constants: &[u32],
        params: Vec<u8>,
        bindings: Vec<BufferRange>,
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
        let pipeline = pipeline(&self.core, kernel, constants)?;
        self.recorded.push(Recorded::Launch { name: kernel.name, pipeline, params, bindings, grid });
        Ok(())
    }

    fn bind_group(
        &self,
        name: &str,
        pipeline: &Pipeline,
        params: (&wgpu::Buffer, u64, usize),
        bindings: &[BufferRange],
    ) -> Result<wgpu::BindGroup, DeviceError> {
        let uniform =
            wgpu::BufferBinding { buffer: params.0, offset: params.1, size: NonZeroU64::new(params.2 as u64) };
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(uniform) }];
        for (i, range) in bindings.iter().enumerate() {
            let raw = &memory(&self.core, &range.buffer)?.raw;
            // Kernels see some ranges as vectors of four: a range that ends inside one is bound to its end, which
            // the physical size always covers.
            let size = range.len.next_multiple_of(VECTOR).min(raw.size() - range.offset);
            entries.push(wgpu::BindGroupEntry {
                binding: i as u32 + 1,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: raw,
                    offset: range.offset,
                    size: NonZeroU64::new(size),
                }),
            });
        }
        self.core.guarded("bind", name, 0, || {
            self.core.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(name),
                layout: &pipeline.layout,
                entries: &entries,
            })
        })
    }

    fn copy_steps(&self, Copy { src, dst }: &Copy, steps: &mut Vec<Step>) -> Result<(), DeviceError> {
        let len = src.len;
        let (from, to) = (&memory(&self.core, &src.buffer)?.raw, &memory(&self.core, &dst.buffer)?.raw);
        let step = |src: &wgpu::Buffer, src_offset, dst: &wgpu::Buffer, dst_offset| Step::Copy {
            src: src.clone(),
            src_offset,
            dst: dst.clone(),
            dst_offset,
            len,
        };
        if src.buffer.same(&dst.buffer) {
            // wgpu refuses copies within one buffer, even between ranges that do not overlap.
            let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let between = create(&self.core, src.buffer.label(), len, usage)?;
            steps.extend([step(from, src.offset, &between, 0), step(&between, 0, to, dst.offset)]);
        } else {
            steps.push(step(from, src.offset, to, dst.offset));
        }
        Ok(())
    }
}

/// The parameters of a launch start at multiples of this.
const PARAMS_ALIGN: u64 = BIND_ALIGN;

impl Recorder for WgpuRecorder {
    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), DeviceError> {
        let kernel = validate(&dispatch)?;
        let bindings: Vec<(Access, &BufferRange)> =
            kernel.bindings.iter().map(|b| b.access).zip(&dispatch.bindings).collect();
        check_dispatch((self.core.id, &self.core.name()), self.core.caps.max_binding, kernel.name, &bindings)?;
        self.launch(kernel, &dispatch.constants, dispatch.params, dispatch.bindings, dispatch.grid)
    }

    fn gemm(&mut self, gemm: Gemm) -> Result<(), DeviceError> {
        if !self.core.caps.gemm.weights.contains(&gemm.weight) {
            return Err(DeviceError::Unsupported {
                device: self.core.name(),
                what: format!("a product with weights of {}", gemm.weight),
            });
        }
        check_gemm((self.core.id, &self.core.name()), self.core.caps.max_binding, &gemm)?;
        // Its ranges need not be bound at multiples of what kernels' bindings are, and A may stand in for the tables.
        let d = gemm::dispatch(gemm, self.core.caps.max_grid);
        let kernel = validate(&d)?;
        self.launch(kernel, &d.constants, d.params, d.bindings, d.grid)
    }

    fn copy(&mut self, src: &BufferRange, dst: &BufferRange) -> Result<(), DeviceError> {
        let copy = Copy { src: src.clone(), dst: dst.clone() };
        copy.check((self.core.id, &self.core.name()))?;
        if src.buffer.usage() == BufferUse::Readback {
            return Err(DeviceError::BadDispatch {
                kernel: "copy".to_owned(),
                reason: format!("readback buffer {} cannot be copied from", src.buffer.label()),
            });
        }
        self.recorded.push(Recorded::Copy(copy));
        Ok(())
    }

    fn zero(&mut self, dst: &BufferRange) -> Result<(), DeviceError> {
        self.core.own(&dst.buffer)?;
        dst.buffer.range(dst.offset, dst.len)?;
        if dst.buffer.usage() == BufferUse::Constant {
            return Err(DeviceError::ReadOnly { label: dst.buffer.label().to_owned() });
        }
        for offset in [dst.offset, dst.len] {
            if !offset.is_multiple_of(4) {
                return Err(DeviceError::Misaligned { label: dst.buffer.label().to_owned(), offset, align: 4 });
            }
        }
        self.recorded.push(Recorded::Zero(dst.clone()));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<CommandList, DeviceError> {
        let mut packed: Vec<u8> = Vec::new();
        for recorded in &self.recorded {
            if let Recorded::Launch { params, .. } = recorded {
                packed.resize((packed.len() as u64).next_multiple_of(PARAMS_ALIGN) as usize, 0);
                packed.extend_from_slice(params);
            }
        }
        packed.resize(packed.len().next_multiple_of(4), 0);
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let uniforms = create(&self.core, "parameters", packed.len() as u64, usage)?;
        self.core.upload("parameters", &uniforms, 0, &packed)?;

        let mut steps = Vec::with_capacity(self.recorded.len());
        let mut buffers: Vec<Buffer> = Vec::new();
        let (mut offset, mut dispatches, mut copied) = (0, 0, 0);
        for recorded in &self.recorded {
            match recorded {
                Recorded::Launch { name, pipeline, params, bindings, grid } => {
                    let group = self.bind_group(name, pipeline, (&uniforms, offset, params.len()), bindings)?;
                    steps.push(Step::Launch { pipeline: Arc::clone(pipeline), group, grid: *grid });
                    buffers.extend(bindings.iter().map(|r| r.buffer.clone()));
                    offset = (offset + params.len() as u64).next_multiple_of(PARAMS_ALIGN);
                    dispatches += 1;
                }
                Recorded::Copy(copy) if copy.src.len > 0 => {
                    self.copy_steps(copy, &mut steps)?;
                    buffers.extend([copy.src.buffer.clone(), copy.dst.buffer.clone()]);
                    copied += copy.src.len;
                }
                Recorded::Zero(dst) if dst.len > 0 => {
                    let raw = memory(&self.core, &dst.buffer)?.raw.clone();
                    steps.push(Step::Zero { dst: raw, offset: dst.offset, len: dst.len });
                    buffers.push(dst.buffer.clone());
                }
                Recorded::Copy(_) | Recorded::Zero(_) => {}
            }
        }
        buffers.sort_by_key(Buffer::address);
        buffers.dedup_by_key(|b| b.address());
        let list = List::new(steps, buffers, dispatches, copied);
        Ok(CommandList::new(self.core.id, dispatches as usize, Box::new(Arc::new(list))))
    }
}
