//! The one list of kernels.

use seam_device::{Access, DeviceError, Dispatch, KernelId};

use crate::twin::Args;
use crate::{
    activation, attention, attention_mma, blend, chain, chunk, conv, elementwise, embed, experts, gate, gather, gemm,
    head_norm, kv_write, mlstm, norm, rope, router, sample, scan, skip, tile,
};

/// One binding of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Name in the shader.
    pub name: &'static str,
    /// How it is used.
    pub access: Access,
}

impl Binding {
    /// A read-only binding.
    #[must_use]
    pub const fn read(name: &'static str) -> Self {
        Self { name, access: Access::Read }
    }

    /// A binding that is read and written.
    #[must_use]
    pub const fn write(name: &'static str) -> Self {
        Self { name, access: Access::ReadWrite }
    }
}

/// A constant that is fixed when a pipeline is made, with every value it may take.
///
/// WGSL cannot size private arrays by `override`, so a constant becomes a line `const NAME: u32 = value;` in front of
/// the source.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Name in the shader.
    pub name: &'static str,
    /// Legal values.
    pub legal: &'static [u32],
}

/// What a workgroup of a kernel takes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workgroup {
    /// Invocations.
    pub invocations: u32,
    /// Bytes of workgroup memory.
    pub bytes: u32,
}

impl Workgroup {
    /// Invocations and bytes.
    #[must_use]
    pub const fn new(invocations: u32, bytes: u32) -> Self {
        Self { invocations, bytes }
    }
}

/// One kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Its index in [`MANIFEST`].
    pub id: KernelId,
    /// Name, also the name of the shader file's folder and of the twin.
    pub name: &'static str,
    /// WGSL path below `shaders/`, with the entry point `main`.
    pub wgsl: Option<&'static str>,
    /// CUDA C++ path below `cuda/`, with the entry point `name`: the parameter struct by value, then a pointer a binding.
    pub cuda: Option<&'static str>,
    /// The same stage on the CPU.
    pub twin: Option<fn(&mut Args<'_>)>,
    /// Storage buffers, at `@group(0) @binding(1 + i)`; the parameter struct is the uniform at `@binding(0)`.
    pub bindings: &'static [Binding],
    /// Size of the parameter struct in bytes, a multiple of 16.
    pub params: usize,
    /// What one workgroup takes, at most over all constants.
    pub workgroup: Workgroup,
    /// Constants in the order of `Dispatch::constants`.
    pub constants: &'static [Constant],
}

/// Every kernel, at the index of its id.
pub static MANIFEST: &[&Kernel] = &[
    &embed::EMBED,
    &norm::RMS_NORM,
    &norm::GATED_RMS_NORM,
    &norm::L2_NORM,
    &gather::GATHER_ROWS,
    &elementwise::GDN_GATE,
    &elementwise::SIGMOID_GATE,
    &elementwise::SWIGLU,
    &conv::CONV_SILU,
    &conv::CONV_TAIL,
    &chain::CHAIN,
    &kv_write::KV_WRITE,
    &attention::ATTENTION,
    &gemm::GEMM,
    &gemm::GEMM_FEW,
    &mlstm::MLSTM_CHAIN,
    &gate::GLA_GATE,
    &gate::KDA_GATE,
    &gate::MAMBA_GATE,
    &rope::ROPE,
    &router::ROUTER,
    &skip::SKIP,
    &scan::SCAN,
    &chunk::CHUNK_PREPARE,
    &chunk::CHUNK_CHAIN,
    &tile::TILE_PREPARE,
    &tile::TILE_CHAIN,
    &kv_write::KV_WRITE_BF16,
    &attention_mma::ATTENTION_MMA,
    &attention_mma::ATTENTION_JOIN,
    &attention_mma::ATTENTION_PART,
    &sample::SAMPLE,
    &gemm::parts::GEMM_PARTS,
    &experts::EXPERT_SORT,
    &experts::EXPERT_FEW,
    &experts::EXPERT_TILES,
    &experts::EXPERT_COMBINE,
    &activation::ACTIVATION,
    &blend::BLEND,
    &head_norm::HEAD_NORM,
];

/// The kernel with this id.
#[must_use]
pub fn kernel(id: KernelId) -> Option<&'static Kernel> {
    MANIFEST.get(usize::from(id.0)).copied()
}

/// Checks a dispatch against its manifest entry, before any device-specific rule.
///
/// # Errors
/// [`DeviceError::BadDispatch`] if the number of bindings, the size of the parameters, a constant or the grid does not
/// fit, or if there is no such kernel.
pub fn validate(dispatch: &Dispatch) -> Result<&'static Kernel, DeviceError> {
    let bad = |kernel: &str, reason: String| DeviceError::BadDispatch { kernel: kernel.to_owned(), reason };
    let Some(k) = kernel(dispatch.kernel) else {
        return Err(bad("?", format!("no kernel has the id {}", dispatch.kernel.0)));
    };
    if dispatch.bindings.len() != k.bindings.len() {
        return Err(bad(k.name, format!("{} bindings, needs {}", dispatch.bindings.len(), k.bindings.len())));
    }
    if dispatch.params.len() != k.params {
        return Err(bad(k.name, format!("{} parameter bytes, needs {}", dispatch.params.len(), k.params)));
    }
    if dispatch.constants.len() != k.constants.len() {
        return Err(bad(k.name, format!("{} constants, needs {}", dispatch.constants.len(), k.constants.len())));
    }
    for (value, constant) in dispatch.constants.iter().zip(k.constants) {
        if !constant.legal.contains(value) {
            return Err(bad(k.name, format!("{} = {value}; legal are {:?}", constant.name, constant.legal)));
        }
    }
    if dispatch.grid.contains(&0) {
        return Err(bad(k.name, format!("empty grid {:?}", dispatch.grid)));
    }
    Ok(k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_indices() {
        for (i, k) in MANIFEST.iter().enumerate() {
            assert_eq!(usize::from(k.id.0), i, "{}", k.name);
            assert_eq!(k.params % 16, 0, "{}", k.name);
            assert!(k.bindings.len() <= 8, "{}: the default limit is 8 storage buffers a stage", k.name);
            assert!(k.constants.iter().all(|c| !c.legal.is_empty()), "{}", k.name);
        }
    }
}
