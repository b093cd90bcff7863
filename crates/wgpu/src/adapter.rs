//! Finding adapters: a report for people, and the choice of one.

use pollster::block_on;
use seam_device::{BIND_ALIGN, DeviceError};

/// Least limits that every kernel of the manifest keeps to.
const NEED_STORAGE_BUFFERS: u32 = 8;
const NEED_WORKGROUP_BYTES: u32 = 16 << 10;
const NEED_INVOCATIONS: u32 = 256;

/// Which adapter to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterChoice {
    /// Its index in [`adapters`].
    Index(usize),
    /// The first usable one whose name contains this, in any case.
    Name(String),
}

/// The limits of an adapter that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest storage binding in bytes.
    pub max_binding: u64,
    /// Largest buffer in bytes.
    pub max_buffer: u64,
    /// Storage buffers of one kernel.
    pub max_storage_buffers: u32,
    /// Workgroup memory in bytes.
    pub max_workgroup_bytes: u32,
    /// Invocations in a workgroup.
    pub max_invocations: u32,
    /// Workgroups along one axis.
    pub max_grid: u32,
    /// Smallest and largest subgroup.
    pub subgroup: (u32, u32),
}

/// One adapter as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterReport {
    /// The adapter's name.
    pub name: String,
    /// The interface: vulkan, metal or dx12.
    pub backend: String,
    /// Driver and its version.
    pub driver: String,
    /// discrete, integrated, virtual, cpu or other.
    pub device_type: String,
    /// Its limits.
    pub limits: Limits,
    /// Whether it can be opened, or why not.
    pub usable: Result<(), String>,
}

/// Every adapter of this machine, best first. Without a GPU or a driver the list is empty.
#[must_use]
pub fn adapters() -> Vec<AdapterReport> {
    found().iter().map(report).collect()
}

/// All adapters, discrete before integrated before virtual before software; equals stay in the driver's order.
fn found() -> Vec<wgpu::Adapter> {
    let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let mut desc = wgpu::InstanceDescriptor::new_without_display_handle();
    desc.backends = backends;
    let instance = wgpu::Instance::new(desc);
    let mut adapters = block_on(instance.enumerate_adapters(backends));
    adapters.sort_by_key(|a| match a.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Cpu => 3,
        wgpu::DeviceType::Other => 4,
    });
    adapters
}

fn report(adapter: &wgpu::Adapter) -> AdapterReport {
    let info = adapter.get_info();
    let limits = limits(adapter);
    AdapterReport {
        device_type: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "cpu",
            wgpu::DeviceType::Other => "other",
        }
        .to_owned(),
        backend: info.backend.to_string(),
        driver: driver(&info),
        usable: usable(adapter, &limits),
        name: info.name,
        limits,
    }
}

/// Driver name and version in one line.
pub(crate) fn driver(info: &wgpu::AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info).trim().to_owned()
}

/// The adapter's limits, with bindings rounded down to whole aligned ranges.
pub(crate) fn limits(adapter: &wgpu::Adapter) -> Limits {
    let limits = adapter.limits();
    let info = adapter.get_info();
    let subgroups = adapter.features().contains(wgpu::Features::SUBGROUP);
    let whole = |bytes: u64| bytes / BIND_ALIGN * BIND_ALIGN;
    Limits {
        max_binding: whole(limits.max_storage_buffer_binding_size.min(limits.max_buffer_size)),
        max_buffer: whole(limits.max_buffer_size),
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        max_grid: limits.max_compute_workgroups_per_dimension,
        subgroup: if subgroups { (info.subgroup_min_size, info.subgroup_max_size) } else { (1, 1) },
    }
}

fn usable(adapter: &wgpu::Adapter, limits: &Limits) -> Result<(), String> {
    if !adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
        return Err("no compute shaders".to_owned());
    }
    let least = [
        ("storage buffers of a kernel", limits.max_storage_buffers, NEED_STORAGE_BUFFERS),
        ("bytes of workgroup memory", limits.max_workgroup_bytes, NEED_WORKGROUP_BYTES),
        ("invocations of a workgroup", limits.max_invocations, NEED_INVOCATIONS),
    ];
    for (what, has, need) in least {
        if has < need {
            return Err(format!("{has} {what}, {need} are needed"));
        }
    }
    let align = u64::from(adapter.limits().min_storage_buffer_offset_alignment);
    if align > BIND_ALIGN {
        return Err(format!("bindings aligned to {align} bytes, at most {BIND_ALIGN} are supported"));
    }
    Ok(())
}

/// The adapter that `choice` names, or the best usable one.
///
/// # Errors
/// [`DeviceError::Unavailable`] with what was found instead.
pub(crate) fn choose(choice: Option<&AdapterChoice>) -> Result<wgpu::Adapter, DeviceError> {
    let mut all = found();
    let unavailable = |reason: String| DeviceError::Unavailable { device: "wgpu".to_owned(), reason };
    if all.is_empty() {
        return Err(unavailable("no adapter: there is no GPU, or no Vulkan, Metal or DX12 driver for it".to_owned()));
    }
    let names = all.iter().map(|a| a.get_info().name).collect::<Vec<_>>().join(", ");
    let index = match choice {
        Some(AdapterChoice::Index(index)) => *index,
        Some(AdapterChoice::Name(part)) => {
            let part = part.to_lowercase();
            let matches = |a: &wgpu::Adapter| a.get_info().name.to_lowercase().contains(&part);
            let usable = |a: &wgpu::Adapter| usable(a, &limits(a)).is_ok();
            let found = all.iter().position(|a| matches(a) && usable(a)).or_else(|| all.iter().position(matches));
            found.ok_or_else(|| unavailable(format!("no adapter is called {part:?}; there are: {names}")))?
        }
        None => all.iter().position(|a| usable(a, &limits(a)).is_ok()).unwrap_or(0),
    };
    if index >= all.len() {
        return Err(unavailable(format!("no adapter has the number {index}; there are: {names}")));
    }
    let adapter = all.swap_remove(index);
    match usable(&adapter, &limits(&adapter)) {
        Ok(()) => Ok(adapter),
        Err(reason) => Err(unavailable(format!("{}: {reason}", adapter.get_info().name))),
    }
}
