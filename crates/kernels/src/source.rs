//! WGSL sources: files of `shaders/`, with `#include "path"` and the constants of a kernel in front.

use crate::manifest::Kernel;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        /// Every file below `shaders/`, by its path.
        pub static FILES: &[(&str, &str)] = &[
            $(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shaders/", $path)))),*
        ];
    };
}

files![
    "shared/history.wgsl",
    "shared/lane_sum.wgsl",
    "shared/math.wgsl",
    "shared/tables.wgsl",
    "attention/attention.wgsl",
    "chain/chain.wgsl",
    "chain/chunk_chain.wgsl",
    "chain/chunk_prepare.wgsl",
    "chain/chunk_record.wgsl",
    "chain/params.wgsl",
    "chain/steps.wgsl",
    "conv/conv_silu.wgsl",
    "conv/conv_tail.wgsl",
    "elementwise/gdn_gate.wgsl",
    "elementwise/sigmoid_gate.wgsl",
    "elementwise/swiglu.wgsl",
    "embed/embed.wgsl",
    "gate/gla_gate.wgsl",
    "gate/kda_gate.wgsl",
    "gate/mamba_gate.wgsl",
    "gather/gather_rows.wgsl",
    "gemm/gemm.wgsl",
    "gemm/gemm_few.wgsl",
    "kv_write/kv_write.wgsl",
    "norm/gated_rms_norm.wgsl",
    "norm/l2_norm.wgsl",
    "norm/rms_norm.wgsl",
    "rope/rope.wgsl",
    "router/router.wgsl",
    "scan/scan.wgsl",
    "skip/skip.wgsl",
];

/// A composed source and where each of its lines came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The WGSL text.
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
}

/// Why a source could not be composed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The kernel has no WGSL.
    #[error("kernel {0} has no WGSL")]
    NoWgsl(&'static str),
    /// An include names a file that is not embedded.
    #[error("{file}:{line}: no shader file {path}")]
    NoFile {
        /// Including file.
        file: String,
        /// Its line.
        line: u32,
        /// The path that was asked for.
        path: String,
    },
}

/// The WGSL of `kernel` with its constants set to `values`. A file is included once, however often it is named.
///
/// # Errors
/// [`SourceError`].
pub fn wgsl(kernel: &Kernel, values: &[u32]) -> Result<Source, SourceError> {
    let path = kernel.wgsl.ok_or(SourceError::NoWgsl(kernel.name))?;
    let mut out = Source { text: String::new(), lines: Vec::new() };
    for (constant, value) in kernel.constants.iter().zip(values) {
        out.text.push_str(&format!("const {}: u32 = {value}u;\n", constant.name));
        out.lines.push(("constants", 0));
    }
    let mut seen = Vec::new();
    include(path, ("manifest", 0), &mut seen, &mut out)?;
    Ok(out)
}

fn include(path: &str, from: (&str, u32), seen: &mut Vec<&'static str>, out: &mut Source) -> Result<(), SourceError> {
    let Some((name, text)) = FILES.iter().find(|(name, _)| *name == path) else {
        return Err(SourceError::NoFile { file: from.0.to_owned(), line: from.1, path: path.to_owned() });
    };
    if seen.contains(name) {
        return Ok(());
    }
    seen.push(name);
    for (i, line) in text.lines().enumerate() {
        let number = i as u32 + 1;
        match line.trim().strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => include(inner, (name, number), seen, out)?,
            None => {
                out.text.push_str(line);
                out.text.push('\n');
                out.lines.push((name, number));
            }
        }
    }
    Ok(())
}
