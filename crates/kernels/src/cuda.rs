//! CUDA C++ sources: files of `cuda/`, composed as the WGSL is, with constants as `#define` lines.
//!
//! A kernel is `extern "C" __global__ void name(Params p, ...)`: its parameter struct by value, then one plain device
//! pointer a binding in the order of the manifest. It runs in blocks of `workgroup.invocations` threads along x, with
//! the dispatch's grid. No source names a toolkit header, so NVRTC alone compiles all of them.

use crate::manifest::Kernel;
use crate::source::{Source, SourceError, files};

files![
    /// Every file below `cuda/` that is CUDA C++, by its path.
    "cuda":
    "shared/history.cuh",
    "shared/lane_sum.cuh",
    "shared/math.cuh",
    "shared/mma.cuh",
    "shared/right.cuh",
    "shared/split.cuh",
    "shared/tables.cuh",
    "shared/weights.cuh",
    "shared/mma.cuh",
    "attention/attention.cu",
    "attention/attention_join.cu",
    "attention/attention_mma.cu",
    "attention/attention_part.cu",
    "attention/exp2.cuh",
    "attention/params.cuh",
    "attention/spans.cuh",
    "blend/blend.cu",
    "chain/chain.cu",
    "chain/chunk_chain.cu",
    "chain/chunk_prepare.cu",
    "chain/chunk_record.cuh",
    "chain/params.cuh",
    "chain/steps.cuh",
    "chain/tile.cuh",
    "chain/tile_chain.cu",
    "chain/tile_prepare.cu",
    "chain/tile_run.cuh",
    "chain/tile_state.cuh",
    "conv/conv_silu.cu",
    "conv/conv_tail.cu",
    "elementwise/activation.cu",
    "elementwise/gdn_gate.cu",
    "elementwise/sigmoid_gate.cu",
    "elementwise/swiglu.cu",
    "embed/embed.cu",
    "experts/expert_combine.cu",
    "experts/expert_few.cu",
    "experts/expert_sort.cu",
    "experts/expert_tiles.cu",
    "experts/params.cuh",
    "gate/gla_gate.cu",
    "gate/kda_gate.cu",
    "gate/mamba_gate.cu",
    "gather/gather_rows.cu",
    "gemm/few.cuh",
    "gemm/gemm.cu",
    "gemm/gemm_few.cu",
    "gemm/gemm_parts.cu",
    "kv_write/kv_write.cu",
    "kv_write/kv_write_bf16.cu",
    "kv_write/row.cuh",
    "norm/gated_rms_norm.cu",
    "norm/head_norm.cu",
    "norm/l2_norm.cu",
    "norm/rms_norm.cu",
    "rope/rope.cu",
    "router/router.cu",
    "sample/sample.cu",
    "scan/scan.cu",
    "skip/skip.cu",
];

/// The CUDA C++ of `kernel` with its constants set to `values`.
///
/// # Errors
/// [`SourceError`].
pub fn cuda(kernel: &Kernel, values: &[u32]) -> Result<Source, SourceError> {
    let path = kernel.cuda.ok_or(SourceError::NoCuda(kernel.name))?;
    Source::compose(FILES, path, kernel, values, |name, value| format!("#define {name} {value}u"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::MANIFEST;

    /// Every kernel with a CUDA path composes; constants stand in front, and no file comes in twice.
    #[test]
    fn every_kernel_composes() {
        for kernel in MANIFEST.iter().filter(|k| k.cuda.is_some()) {
            let values: Vec<u32> = kernel.constants.iter().map(|c| c.legal[c.legal.len() - 1]).collect();
            let source = cuda(kernel, &values).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            let lines: Vec<&str> = source.text.lines().collect();
            assert_eq!(lines.len(), source.lines.len(), "{}", kernel.name);
            for (i, (constant, value)) in kernel.constants.iter().zip(&values).enumerate() {
                assert_eq!(lines[i], format!("#define {} {value}u", constant.name));
            }
            assert!(!source.text.contains("#include"), "{}: an include is left", kernel.name);
            let entry = format!(" {}(", kernel.name);
            let entries = lines.iter().filter(|l| l.contains("__global__") && l.contains(&entry)).count();
            assert_eq!(entries, 1, "{}: its entry point stands once, on one line with __global__", kernel.name);
            let mut seen = std::collections::HashSet::new();
            for place in source.lines.iter().filter(|(file, _)| *file != "constants") {
                assert!(seen.insert(place), "{}: {place:?} stands twice", kernel.name);
            }
            assert_eq!(source.origin(lines.len() as u32 + 1), format!("line {}", lines.len() + 1));
        }
    }

    #[test]
    fn every_file_is_used_and_opens_with_a_comment() {
        let mut used = std::collections::HashSet::new();
        for kernel in MANIFEST.iter().filter(|k| k.cuda.is_some()) {
            let values: Vec<u32> = kernel.constants.iter().map(|c| c.legal[0]).collect();
            let source = cuda(kernel, &values).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            used.extend(source.lines.iter().map(|(file, _)| *file));
        }
        for (file, text) in FILES {
            assert!(used.contains(file), "no kernel uses {file}");
            assert!(text.starts_with("// "), "{file} does not open with a comment");
        }
    }

    /// Numbers called `NAME` on lines that begin with `prefix`.
    fn numbers<'a>(text: &'a str, prefix: &str) -> std::collections::BTreeMap<&'a str, u32> {
        text.lines()
            .filter_map(|line| {
                let (left, value) = line.strip_prefix(prefix)?.split_once(" = ")?;
                let name = left.split(':').next()?.trim();
                Some((name, value.trim_end_matches([';', 'u']).parse().ok()?))
            })
            .collect()
    }

    #[test]
    fn table_constants_are_those_of_this_crate() {
        let rust = numbers(include_str!("tables.rs"), "pub const ");
        let tables = FILES.iter().find(|(file, _)| *file == "shared/tables.cuh").map(|(_, text)| *text);
        let cuda = numbers(tables.expect("shared/tables.cuh"), "constexpr u32 ");
        assert!(rust.len() > 30 && rust["STEP_TABLE"] == 15, "the constants were not found: {rust:?}");
        for (name, value) in &cuda {
            assert_eq!(rust.get(name), Some(value), "{name}");
        }
        assert!(cuda.len() > 30, "the constants were not found: {cuda:?}");
    }

    #[test]
    fn a_kernel_without_cuda_says_so() {
        let none = MANIFEST.iter().find(|k| k.cuda.is_none()).expect("a kernel of the cpu alone");
        assert_eq!(cuda(none, &[]), Err(SourceError::NoCuda(none.name)));
    }
}
