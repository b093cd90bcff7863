//! What to install, from what was found.

use std::path::Path;

use crate::device::{AdapterReport, is_gpu};

/// What the hints depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Operating system, as `std::env::consts::OS` names it.
    os: &'static str,
    /// Some adapter at all.
    any: bool,
    /// A GPU among the adapters.
    gpu: bool,
    /// An adapter of an NVIDIA GPU.
    nvidia_adapter: bool,
    /// The kernel driver of an NVIDIA GPU is loaded.
    nvidia_node: bool,
    /// The kernel offers a GPU for rendering.
    render_node: bool,
}

impl Facts {
    /// Of this machine.
    pub(super) fn gather(adapters: &[AdapterReport]) -> Self {
        let render_node = std::fs::read_dir("/dev/dri")
            .is_ok_and(|dir| dir.flatten().any(|e| e.file_name().to_string_lossy().starts_with("renderD")));
        Self {
            os: std::env::consts::OS,
            any: !adapters.is_empty(),
            gpu: adapters.iter().any(is_gpu),
            nvidia_adapter: adapters.iter().any(|a| is_gpu(a) && a.name.to_lowercase().contains("nvidia")),
            nvidia_node: Path::new("/dev/nvidia0").exists(),
            render_node,
        }
    }
}

/// One hint for each missing thing.
pub(super) fn hints(facts: &Facts) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |text: &str| out.push(text.to_owned());
    match facts.os {
        "linux" => {
            if facts.nvidia_node && !facts.nvidia_adapter {
                say(
                    "an NVIDIA GPU is there, but not its Vulkan driver: install the user-space part of the driver that \
                     matches the kernel's (Debian/Ubuntu: libnvidia-gl-VERSION, Fedora: akmod-nvidia, Arch: \
                     nvidia-utils) and the loader libvulkan1; a container needs `graphics` in \
                     NVIDIA_DRIVER_CAPABILITIES",
                );
            }
            if facts.render_node && !facts.gpu && !facts.nvidia_node {
                say("the kernel offers a GPU (/dev/dri), but no Vulkan driver uses it: for AMD and Intel install \
                     mesa-vulkan-drivers and libvulkan1 (Arch: vulkan-radeon or vulkan-intel), and be a member of the \
                     group `render`");
            }
            if !facts.any {
                say("no Vulkan driver at all; a software driver is enough to try the GPU kernels: on Debian/Ubuntu \
                     `apt install mesa-vulkan-drivers libvulkan1`, on Fedora `dnf install mesa-vulkan-drivers \
                     vulkan-loader`, on Arch `pacman -S vulkan-swrast`");
            } else if !facts.gpu && !facts.render_node && !facts.nvidia_node {
                say("no GPU on this machine: the processor is used; the software driver is only good for tests");
            }
        }
        "windows" if !facts.gpu => say(
            "no GPU was found: install the current driver of its maker (NVIDIA, AMD Software, Intel Arc & Iris Xe); \
             DX12 or Vulkan 1.2 is needed",
        ),
        "macos" if !facts.gpu => say(
            "no Metal device was found: Metal needs a Mac of 2012 or later, and does not exist in most virtual machines",
        ),
        _ if !facts.any => say("no Vulkan driver was found: install one for the GPU, or use --device cpu"),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Facts =
        Facts { os: "linux", any: false, gpu: false, nvidia_adapter: false, nvidia_node: false, render_node: false };

    #[test]
    fn each_missing_thing_has_its_hint() {
        let texts = |facts| hints(&facts).join("\n");
        assert!(texts(NOTHING).contains("apt install mesa-vulkan-drivers libvulkan1"));
        let nvidia = texts(Facts { nvidia_node: true, any: true, ..NOTHING });
        assert!(nvidia.contains("NVIDIA") && !nvidia.contains("/dev/dri"), "{nvidia}");
        assert!(texts(Facts { render_node: true, any: true, ..NOTHING }).contains("group `render`"));
        assert!(texts(Facts { os: "windows", ..NOTHING }).contains("DX12"));
        assert!(texts(Facts { os: "macos", ..NOTHING }).contains("Metal"));
        assert!(texts(Facts { os: "freebsd", ..NOTHING }).contains("--device cpu"));
    }

    #[test]
    fn a_machine_with_its_gpu_needs_nothing() {
        for os in ["linux", "windows", "macos"] {
            let facts = Facts { os, any: true, gpu: true, nvidia_adapter: true, nvidia_node: true, render_node: true };
            assert_eq!(hints(&facts), [""; 0]);
        }
    }
}
