//! What a device can do: plain data, so that plans are tested without a device.

use crate::{DType, KernelId};

/// The kind of a device, as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The host's processor.
    Cpu,
    /// Any GPU reached through wgpu, and software drivers.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        })
    }
}

/// How exact products are. States, gates, sums and what lies between operations are f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Operands keep the bits of f32.
    #[default]
    F32,
    /// Operands of matrix products, keys and values are rounded to bf16, for the sake of tensor cores.
    Bf16,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// A set of kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSet(Vec<u64>);

impl KernelSet {
    /// The set of the given kernels.
    pub fn of(ids: impl IntoIterator<Item = KernelId>) -> Self {
        let mut bits = Vec::new();
        for KernelId(i) in ids {
            let word = usize::from(i) / 64;
            if bits.len() <= word {
                bits.resize(word + 1, 0);
            }
            bits[word] |= 1 << (i % 64);
        }
        Self(bits)
    }

    /// Whether `id` is in it.
    #[must_use]
    pub fn contains(&self, id: KernelId) -> bool {
        self.0.get(usize::from(id.0) / 64).is_some_and(|w| w >> (id.0 % 64) & 1 == 1)
    }
}

/// Which matrix products a device offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmCaps {
    /// dtypes of the weight operand; activations and results are f32.
    pub weights: Vec<DType>,
    /// Whether `C += A·Wᵀ` is offered beside `C = A·Wᵀ`.
    pub accumulate: bool,
    /// Whether a row of the result has the same bits whatever other rows are in the batch.
    pub batch_invariant: bool,
}

/// What a device is and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Kind of backend.
    pub kind: DeviceKind,
    /// Name for people, such as the adapter's.
    pub name: String,
    /// Driver and its version.
    pub driver: String,
    /// Largest range in bytes that a kernel can bind, so also the largest slab.
    pub max_binding: u64,
    /// Largest buffer in bytes.
    pub max_buffer: u64,
    /// Storage buffers that one kernel can bind.
    pub max_storage_buffers: u32,
    /// Workgroup memory in bytes.
    pub max_workgroup_bytes: u32,
    /// Invocations in a workgroup.
    pub max_invocations: u32,
    /// Workgroups along one axis of a grid.
    pub max_grid: u32,
    /// Subgroup sizes, smallest and largest; `(1, 1)` without subgroups.
    pub subgroup: (u32, u32),
    /// Memory in bytes if the device tells it.
    pub memory: Option<u64>,
    /// Kernels that exist for this device.
    pub kernels: KernelSet,
    /// Matrix products.
    pub gemm: GemmCaps,
    /// How exact they and other products are.
    pub precision: Precision,
    /// Rows (tokens) that one pass should not exceed, so that one launch stays under about 50 ms.
    pub rows_hint: u32,
}

impl Caps {
    /// The same device with its largest binding lowered to `bytes`: the way to test splitting.
    #[must_use]
    pub fn with_max_binding(mut self, bytes: u64) -> Self {
        self.max_binding = self.max_binding.min(bytes);
        self
    }
}
