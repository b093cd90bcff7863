//! Sources of kernels: files of one tree, with `#include "path"` and the constants of a kernel in front.
//!
//! WGSL comes from `shaders/`, CUDA C++ from `cuda/` (see [`crate::cuda`]); both are embedded in the program.

use crate::manifest::Kernel;

macro_rules! files {
    ($(#[$doc:meta])* $tree:literal: $($path:literal),* $(,)?) => {
        $(#[$doc])*
        pub static FILES: &[(&str, &str)] = &[
            $(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $tree, "/", $path)))),*
        ];
    };
}

pub(crate) use files;

files![
    /// Every file below `shaders/`, by its path.
    "shaders":
    "shared/history.wgsl",
    "shared/lane_sum.wgsl",
    "shared/math.wgsl",
    "shared/tables.wgsl",
    "shared/weights.wgsl",
    "attention/attention.wgsl",
    "blend/blend.wgsl",
    "chain/chain.wgsl",
    "chain/chunk_chain.wgsl",
    "chain/chunk_prepare.wgsl",
    "chain/chunk_record.wgsl",
    "chain/params.wgsl",
    "chain/steps.wgsl",
    "conv/conv_silu.wgsl",
    "conv/conv_tail.wgsl",
    "elementwise/activation.wgsl",
    "elementwise/gdn_gate.wgsl",
    "elementwise/sigmoid_gate.wgsl",
    "elementwise/swiglu.wgsl",
    "embed/embed.wgsl",
    "experts/expert_combine.wgsl",
    "experts/expert_few.wgsl",
    "experts/expert_sort.wgsl",
    "experts/expert_tiles.wgsl",
    "experts/params.wgsl",
    "gate/gla_gate.wgsl",
    "gate/kda_gate.wgsl",
    "gate/mamba_gate.wgsl",
    "gather/gather_rows.wgsl",
    "gemm/gemm.wgsl",
    "gemm/gemm_few.wgsl",
    "kv_write/kv_write.wgsl",
    "norm/gated_rms_norm.wgsl",
    "norm/head_norm.wgsl",
    "norm/l2_norm.wgsl",
    "norm/rms_norm.wgsl",
    "rope/rope.wgsl",
    "router/router.wgsl",
    "sample/sample.wgsl",
    "scan/scan.wgsl",
    "skip/skip.wgsl",
];

/// A composed source and where each of its lines came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The text.
    pub text: String,
    /// File and line (from 1) of each line of `text`.
    pub lines: Vec<(&'static str, u32)>,
}

impl Source {
    /// Where line `line` (from 1) of the composed text came from, as `file:line`.
    #[must_use]
    pub fn origin(&self, line: u32) -> String {
        match self.lines.get((line as usize).wrapping_sub(1)) {
            Some((file, line)) => format!("{file}:{line}"),
            None => format!("line {line}"),
        }
    }

    /// A source that begins with the constants of `kernel`, one line each as `line` writes it, followed by the file
    /// `path` of `files` with its includes. A file is included once, however often it is named.
    pub(crate) fn compose(
        files: &'static [(&'static str, &'static str)],
        path: &str,
        kernel: &Kernel,
        values: &[u32],
        line: fn(&str, u32) -> String,
    ) -> Result<Self, SourceError> {
        let mut out = Self::default();
        for (constant, value) in kernel.constants.iter().zip(values) {
            out.text.push_str(&line(constant.name, *value));
            out.text.push('\n');
            out.lines.push(("constants", 0));
        }
        include(files, path, ("manifest", 0), &mut Vec::new(), &mut out)?;
        Ok(out)
    }
}

/// Why a source could not be composed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The kernel has no WGSL.
    #[error("kernel {0} has no WGSL")]
    NoWgsl(&'static str),
    /// The kernel has no CUDA C++.
    #[error("kernel {0} has no CUDA source")]
    NoCuda(&'static str),
    /// An include names a file that is not embedded.
    #[error("{file}:{line}: no source file {path}")]
    NoFile {
        /// Including file.
        file: String,
        /// Its line.
        line: u32,
        /// The path that was asked for.
        path: String,
    },
}

/// The WGSL of `kernel` with its constants set to `values`, as `const` lines.
///
/// # Errors
/// [`SourceError`].
pub fn wgsl(kernel: &Kernel, values: &[u32]) -> Result<Source, SourceError> {
    let path = kernel.wgsl.ok_or(SourceError::NoWgsl(kernel.name))?;
    Source::compose(FILES, path, kernel, values, |name, value| format!("const {name}: u32 = {value}u;"))
}

fn include(
    files: &'static [(&'static str, &'static str)],
    path: &str,
    from: (&str, u32),
    seen: &mut Vec<&'static str>,
    out: &mut Source,
) -> Result<(), SourceError> {
    let Some((name, text)) = files.iter().find(|(name, _)| *name == path) else {
        return Err(SourceError::NoFile { file: from.0.to_owned(), line: from.1, path: path.to_owned() });
    };
    if seen.contains(name) {
        return Ok(());
    }
    seen.push(name);
    for (i, line) in text.lines().enumerate() {
        let number = i as u32 + 1;
        match line.trim().strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => include(files, inner, (name, number), seen, out)?,
            None => {
                out.text.push_str(line);
                out.text.push('\n');
                out.lines.push((name, number));
            }
        }
    }
    Ok(())
}
