//! What a compiled kernel takes of a chip, as ptxas tells: no GPU is needed to ask.

use seam_kernels::Kernel;

use crate::find::Search;
use crate::kernels::{options, source};
use crate::nvrtc::Nvrtc;

/// Registers and memory of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that a thread writes to memory for want of room.
    pub spill_bytes: u32,
    /// Bytes of the stack frame of a thread: arrays that are indexed at run time lie there.
    pub stack_bytes: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Whether ptxas makes each wgmma wait for the one before it, for want of registers or because of what stands between.
    pub serialized: bool,
}

impl Resources {
    /// Reads them out of what ptxas writes with `-v`.
    fn parse(log: &str) -> Option<Self> {
        let mut out = Self::default();
        let mut found = false;
        for line in log.lines() {
            out.serialized |= line.contains("wgmma.mma_async instructions are serialized");
            let number = |unit: &str| -> Option<u32> {
                line.split(unit).next().filter(|head| head.len() < line.len())?.split_whitespace().last()?.parse().ok()
            };
            if let Some(registers) = number(" registers") {
                out.registers = out.registers.max(registers);
                found = true;
            }
            out.shared_bytes = out.shared_bytes.max(number(" bytes smem").unwrap_or(0));
            out.stack_bytes = out.stack_bytes.max(number(" bytes stack frame").unwrap_or(0));
            let spilled = number(" bytes spill stores").unwrap_or(0) + number(" bytes spill loads").unwrap_or(0);
            out.spill_bytes = out.spill_bytes.max(spilled);
        }
        found.then_some(out)
    }
}

/// The compiler alone, for checks on machines without a GPU.
pub struct Compiler(Nvrtc);

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Compiler").field(&self.0.origin).finish()
    }
}

impl Compiler {
    /// The first NVRTC that is found, whatever the driver.
    ///
    /// # Errors
    /// What was tried.
    pub fn find() -> Result<Self, String> {
        Nvrtc::find(&Search::from_env(), None).map(Self)
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.0.version
    }

    /// Compiles `kernel` with the given constants for `arch`, such as `sm_90a`, and says what it takes.
    ///
    /// # Errors
    /// The compiler's words.
    pub fn resources(&self, kernel: &Kernel, constants: &[u32], arch: &str) -> Result<Resources, String> {
        let text = source("cuda", kernel, constants).map_err(|e| e.to_string())?;
        let mut options = options(arch);
        options.push("--ptxas-options=-v".to_owned());
        let compiled = self.0.compile(&text, &format!("{}.cu", kernel.name), &options)?;
        Resources::parse(&compiled.log).ok_or_else(|| format!("ptxas told nothing: {}", compiled.log))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stderr, reason = "a skip and a new table are printed")]

    use std::collections::BTreeMap;
    use std::path::Path;

    use seam_kernels::chain::{DECAY_SCALAR, ROTATION_NONE, UPDATE_DELTA};
    use seam_kernels::manifest::MANIFEST;

    use super::*;
    use crate::kernels::DECLARED;

    /// Registers, bytes of shared memory and bytes of spills by `kernel arch NAME=value…`.
    type Table = BTreeMap<String, [u32; 3]>;

    const ARCHS: [&str; 2] = ["sm_90a", "sm_80"];

    /// The compiler; `None`, with the reason printed, where there is none and none is required.
    fn compiler() -> Option<Compiler> {
        match Compiler::find() {
            Ok(found) => Some(found),
            Err(why) => {
                let required = std::env::var_os("SEAM_REQUIRE_NVRTC").is_some_and(|v| !v.is_empty());
                assert!(!required, "SEAM_REQUIRE_NVRTC is set: {why}");
                eprintln!("SKIPPED without NVRTC (SEAM_CUDA_LIBS names its folder): {why}");
                None
            }
        }
    }

    /// Constants to compile with: the first, the middle and the last of each one's legal values, and the usual width of
    /// a head.
    fn choices(kernel: &Kernel) -> Vec<Vec<u32>> {
        let pick = |at: fn(usize) -> usize| kernel.constants.iter().map(|c| c.legal[at(c.legal.len())]).collect();
        let mut all: Vec<Vec<u32>> = vec![pick(|_| 0), pick(|n| n / 2), pick(|n| n - 1)];
        let usual = |c: &seam_kernels::Constant| if c.legal.contains(&128) { 128 } else { c.legal[c.legal.len() / 2] };
        all.push(kernel.constants.iter().map(usual).collect());
        // The gated delta rule of Qwen3.5, where operators are not moved.
        if ["chain", "chunk_chain", "tile_chain"].contains(&kernel.name) {
            all.push(vec![128, DECAY_SCALAR, UPDATE_DELTA, ROTATION_NONE]);
        }
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn ptxas_is_understood() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
                   ptxas info    : Function properties for k\n    \
                   16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 2048 bytes smem";
        let found =
            Resources { registers: 40, spill_bytes: 20, stack_bytes: 16, shared_bytes: 2048, serialized: false };
        assert_eq!(Resources::parse(log), Some(found));
        let worse = format!(
            "ptxas info : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to\n{log}"
        );
        assert_eq!(Resources::parse(&worse), Some(Resources { serialized: true, ..found }));
        assert_eq!(Resources::parse("nothing"), None);
    }

    /// A source that does not compile gives the compiler's words with their line.
    #[test]
    fn errors_of_a_source_are_told() {
        let Some(compiler) = compiler() else { return };
        let options = options("sm_90a");
        let error = compiler.0.compile("__global__ void k() {\n  missing();\n}\n", "k.cu", &options).unwrap_err();
        assert!(error.contains("k.cu(2)") && error.contains("missing"), "{error}");
        let error = compiler.0.compile("", "k.cu", &["--no-such-option".to_owned()]).unwrap_err();
        assert!(!error.is_empty());
        let options = super::options("compute_90");
        let error = compiler.0.compile("extern \"C\" __global__ void k() {}", "k.cu", &options).unwrap_err();
        assert!(!error.is_empty(), "a virtual architecture has no cubin");
    }

    /// An entry point that takes other arguments than the manifest says does not compile.
    #[test]
    fn arguments_are_held_against_the_manifest() {
        let Some(compiler) = compiler() else { return };
        let kernel = &seam_kernels::elementwise::SWIGLU;
        let text = source("cuda", kernel, &[]).unwrap();
        let options = options("sm_90a");
        assert!(compiler.0.compile(&text, "k.cu", &options).is_ok());
        let size = format!("::params == {}", kernel.params);
        for (good, bad) in [(size.as_str(), "::params == 20"), ("::bindings == 3", "::bindings == 4")] {
            assert!(text.contains(good));
            let error = compiler.0.compile(&text.replace(good, bad), "k.cu", &options).unwrap_err();
            assert!(error.contains("the manifest"), "{error}");
        }
    }

    /// Every kernel compiles for Hopper and for Ampere (which is compiled only, never run), fits a block's registers and
    /// static shared memory, and takes no more than the table says. A spill that the table does not list fails.
    #[test]
    fn kernels_compile_within_the_table() {
        let Some(compiler) = compiler() else { return };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cuda/resources.json");
        let mut found = Table::new();
        let mut wrong = Vec::new();
        for kernel in MANIFEST.iter().filter(|k| k.cuda.is_some()) {
            for constants in choices(kernel) {
                for arch in ARCHS {
                    let named: Vec<String> =
                        kernel.constants.iter().zip(&constants).map(|(c, v)| format!(" {}={v}", c.name)).collect();
                    let name = format!("{} {arch}{}", kernel.name, named.concat());
                    match compiler.resources(kernel, &constants, arch) {
                        Err(why) => wrong.push(format!("{name}: {why}")),
                        Ok(r) => {
                            if r.registers * kernel.workgroup.invocations > 65536 {
                                wrong.push(format!("{name}: {} registers do not fit a block", r.registers));
                            }
                            if r.serialized {
                                wrong.push(format!("{name}: its wgmma are serialized"));
                            }
                            if r.shared_bytes > DECLARED {
                                wrong.push(format!("{name}: {} bytes of declared shared memory", r.shared_bytes));
                            }
                            found.insert(name, [r.registers, r.shared_bytes, r.spill_bytes]);
                        }
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        if std::env::var_os("SEAM_WRITE_RESOURCES").is_some() {
            let rows: Vec<String> = found.iter().map(|(name, row)| format!("  \"{name}\": {row:?}")).collect();
            std::fs::write(&file, format!("{{\n{}\n}}\n", rows.join(",\n"))).unwrap();
            return;
        }
        // Another compiler allocates in another way: the table is of the pinned one.
        if compiler.version() != (13, 0) {
            eprintln!("NVRTC {:?} is not 13.0: the table is not compared", compiler.version());
            return;
        }
        let table: Table = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let more = |now: &[u32; 3], was: &[u32; 3]| now.iter().zip(was).any(|(now, was)| now > was);
        let over = found.iter().filter(|(name, now)| table.get(*name).is_none_or(|was| more(now, was)));
        let over: Vec<String> = over.map(|(name, now)| format!("{name}: {now:?}, was {:?}", table.get(name))).collect();
        let gone: Vec<&String> = table.keys().filter(|name| !found.contains_key(*name)).collect();
        assert!(
            over.is_empty() && gone.is_empty(),
            "kernels take more [registers, shared bytes, spilled bytes] than cuda/resources.json says, or the table is old; if that is \
             meant, write it anew with SEAM_WRITE_RESOURCES=1 cargo test --release --workspace kernels_compile\n{}\n{gone:?}",
            over.join("\n")
        );
    }
}
