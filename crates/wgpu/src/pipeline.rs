//! Pipelines, one for each kernel and values of its constants, made when first recorded.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use seam_device::{Access, DeviceError};
use seam_kernels::Kernel;
use seam_kernels::source::wgsl;

use crate::core::{Core, lock};

/// A compiled kernel.
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// The cache.
pub(crate) type Pipelines = HashMap<(u16, Vec<u32>), Arc<Pipeline>>;

/// The pipeline of `kernel` with the given constants, which are legal.
///
/// # Errors
/// [`DeviceError::Unsupported`] without WGSL, or what the driver says.
pub(crate) fn pipeline(core: &Core, kernel: &Kernel, constants: &[u32]) -> Result<Arc<Pipeline>, DeviceError> {
    let mut cache = lock(&core.pipelines);
    let key = (kernel.id.0, constants.to_vec());
    if let Some(found) = cache.get(&key) {
        return Ok(Arc::clone(found));
    }
    let source = wgsl(kernel, constants)
        .map_err(|e| DeviceError::Unsupported { device: core.name(), what: format!("kernel {}: {e}", kernel.name) })?;
    let layout = layout(core, kernel)?;
    let raw = core.guarded("make pipeline", kernel.name, 0, || {
        let module = module(core, kernel.name, source.text);
        let pipeline_layout = core.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        core.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                // Every kernel writes its workgroup memory before it reads it.
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        })
    })?;
    let made = Arc::new(Pipeline { raw, layout });
    cache.insert(key, Arc::clone(&made));
    Ok(made)
}

/// The layout that the manifest describes: the uniform, then the storage buffers.
fn layout(core: &Core, kernel: &Kernel) -> Result<wgpu::BindGroupLayout, DeviceError> {
    let mut layouts = lock(&core.layouts);
    if let Some(found) = layouts.get(&kernel.id.0) {
        return Ok(found.clone());
    }
    let entry = |binding: usize, ty: wgpu::BufferBindingType, least: Option<NonZeroU64>| wgpu::BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: least },
        count: None,
    };
    let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, NonZeroU64::new(kernel.params as u64))];
    for (i, binding) in kernel.bindings.iter().enumerate() {
        let read_only = binding.access == Access::Read;
        entries.push(entry(i + 1, wgpu::BufferBindingType::Storage { read_only }, None));
    }
    let made = core.guarded("make layout", kernel.name, 0, || {
        core.device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(kernel.name), entries: &entries })
    })?;
    layouts.insert(kernel.id.0, made.clone());
    Ok(made)
}

/// The one place that trusts shaders.
#[allow(unsafe_code, reason = "leaving out naga's run-time checks, see the SAFETY line")]
fn module(core: &Core, name: &str, text: String) -> wgpu::ShaderModule {
    let desc = wgpu::ShaderModuleDescriptor { label: Some(name), source: wgpu::ShaderSource::Wgsl(text.into()) };
    if core.checked {
        return core.device.create_shader_module(desc);
    }
    // SAFETY: the source is one of the manifest's kernels, embedded in this program and validated by naga in the tests
    // for every legal value of its constants. Its loops are bounded by counts in the tables, its divisors are sizes
    // above zero, and its indices stay within the ranges that the operations above bind and check.
    unsafe { core.device.create_shader_module_trusted(desc, wgpu::ShaderRuntimeChecks::unchecked()) }
}
