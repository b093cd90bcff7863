//! Every shader, for every legal value of its constants, without a GPU: it composes, naga accepts it, its bindings and
//! parameters are those of the manifest, it keeps to the limits of every device, and it translates to SPIR-V, MSL and
//! HLSL.

#![allow(clippy::print_stderr, reason = "a skipped check says so")]

use std::collections::BTreeMap;
use std::mem::offset_of;

use seam_kernels::activation::ActivationParams;
use seam_kernels::attention::AttentionParams;
use seam_kernels::blend::BlendParams;
use seam_kernels::chain::ChainParams;
use seam_kernels::conv::ConvParams;
use seam_kernels::elementwise::ElementParams;
use seam_kernels::embed::EmbedParams;
use seam_kernels::experts::{CombineParams, ProductParams, SortParams};
use seam_kernels::gate::{GlaGateParams, KdaGateParams, MambaGateParams};
use seam_kernels::gather::GatherParams;
use seam_kernels::gemm::GemmParams;
use seam_kernels::head_norm::HeadNormParams;
use seam_kernels::kv_write::KvParams;
use seam_kernels::manifest::{Kernel, MANIFEST};
use seam_kernels::norm::{L2Params, NormParams};
use seam_kernels::rope::RopeParams;
use seam_kernels::router::RouterParams;
use seam_kernels::sample::SampleParams;
use seam_kernels::scan::ScanParams;
use seam_kernels::skip::SkipParams;
use seam_kernels::source::{FILES, Source, wgsl};

#[path = "shader_checks/mod.rs"]
mod checks;

use checks::{Field, Scalar, Tint, parse};

trait IsScalar {
    const SCALAR: Scalar;
}

impl IsScalar for u32 {
    const SCALAR: Scalar = Scalar::U32;
}

impl IsScalar for f32 {
    const SCALAR: Scalar = Scalar::F32;
}

fn scalar_of<P, T: IsScalar>(_: fn(&P) -> &T) -> Scalar {
    T::SCALAR
}

/// Size and fields of a parameter struct, without its padding.
macro_rules! params {
    ($ty:ty: $($field:ident),*) => {
        (size_of::<$ty>(), vec![$((stringify!($field), offset_of!($ty, $field), scalar_of(|p: &$ty| &p.$field))),*])
    };
}

/// The parameter struct of a kernel.
fn params(kernel: &Kernel) -> (usize, Vec<Field>) {
    match kernel.name {
        "embed" => params!(EmbedParams: width, first, count),
        "rms_norm" | "gated_rms_norm" => {
            params!(NormParams: groups, width, x_row, x_group, count, centred, eps, w_group)
        }
        "l2_norm" => params!(L2Params: row, groups, width, scaled, eps, scale),
        "gather_rows" => params!(GatherParams: width),
        "gdn_gate" | "sigmoid_gate" | "swiglu" => params!(ElementParams: width, head),
        "conv_silu" | "conv_tail" => params!(ConvParams: channels, launch),
        "chain" | "chunk_prepare" | "chunk_chain" => {
            params!(ChainParams: heads, value_heads, value, row, gate_row, strength, launch, rot)
        }
        "blend" => params!(BlendParams: width, count, a, b),
        "head_norm" => params!(HeadNormParams: row, groups, width, eps),
        "kv_write" => params!(KvParams: heads, head, rot, slab, eps, norm),
        "attention" => params!(AttentionParams: heads, kv_heads, rot, launch, first, last, scale),
        "gemm" | "gemm_few" => params!(GemmParams: m, n, k, lda, ldc, column, count, shift),
        "gla_gate" => params!(GlaGateParams: width, row, normaliser),
        "kda_gate" => params!(KdaGateParams: width, head, row, bound),
        "mamba_gate" => params!(MambaGateParams: heads, row, low, high),
        "rope" => params!(RopeParams: row, heads, head, rot),
        "sample" => params!(SampleParams: vocab),
        "router" => params!(RouterParams: experts, top, groups, keep, renormalise, scale),
        "activation" => params!(ActivationParams: width, top),
        "expert_sort" => params!(SortParams: experts, top, tile, pairs),
        "expert_few" | "expert_tiles" => params!(
            ProductParams: n, k, lda, ldc, column, top, share, experts, first, count, tile, pairs, shift
        ),
        "expert_combine" => params!(CombineParams: width, top, accumulate, scale),
        "skip" => params!(SkipParams: width, head, row, offset),
        "scan" => params!(ScanParams: offset, cols, row, count, tag),
        other => panic!("the parameter struct of {other} is not listed here"),
    }
}

/// Every combination of legal constants.
fn permutations(kernel: &Kernel) -> Vec<Vec<u32>> {
    kernel.constants.iter().fold(vec![vec![]], |all, constant| {
        all.iter().flat_map(|head| constant.legal.iter().map(|&value| [head.as_slice(), &[value]].concat())).collect()
    })
}

/// Runs `check` for every kernel and permutation, and fails with all that it found.
fn for_all(mut check: impl FnMut(&Kernel, &[u32], &Source) -> Result<(), String>) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for kernel in MANIFEST.iter().filter(|k| k.wgsl.is_some()) {
        for values in permutations(kernel) {
            count += 1;
            let result = wgsl(kernel, &values).map_err(|e| e.to_string()).and_then(|s| check(kernel, &values, &s));
            if let Err(reason) = result {
                wrong.push(format!("{} {values:?}: {reason}", kernel.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > MANIFEST.len(), "only {count} shaders were checked");
}

#[test]
fn every_permutation_is_valid_and_fits_the_manifest() {
    for_all(|kernel, _, source| {
        let shader = parse(source)?;
        shader.check_limits()?;
        shader.check_bindings(kernel)?;
        shader.check_workgroup(kernel)?;
        let (size, fields) = params(kernel);
        if size != kernel.params {
            return Err(format!("the Rust struct has {size} bytes, the manifest {}", kernel.params));
        }
        shader.check_params(&fields)
    });
}

#[test]
fn every_permutation_translates() {
    for_all(|kernel, _, source| parse(source)?.translate(kernel));
}

#[test]
fn every_permutation_is_uniform_for_tint() {
    let Some(tint) = Tint::find() else {
        assert!(std::env::var_os("SEAM_REQUIRE_TINT").is_none(), "tint is required and not on the path");
        eprintln!("skipped: no tint on the path, uniformity of barriers is not checked");
        return;
    };
    for_all(|kernel, values, source| {
        let name = values.iter().fold(kernel.name.to_owned(), |name, value| format!("{name}_{value}"));
        tint.check(&name, source)
    });
}

#[test]
fn every_file_is_used_and_opens_with_a_comment() {
    let mut used: Vec<&str> = Vec::new();
    for_all(|_, _, source| {
        used.extend(source.lines.iter().map(|(file, _)| *file));
        Ok(())
    });
    for (file, text) in FILES {
        assert!(used.contains(file), "no kernel uses {file}");
        assert!(text.starts_with("// "), "{file} does not open with a comment");
    }
}

/// `const NAME: type = value` lines of a Rust or WGSL file.
fn constants(text: &str) -> BTreeMap<&str, u32> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.trim_start_matches("pub ").strip_prefix("const ")?.split_once(": ")?;
            let value = rest.split_once(" = ")?.1.trim_end_matches([';', 'u']);
            Some((name, value.parse().unwrap_or_else(|_| panic!("not a number: {line}"))))
        })
        .collect()
}

#[test]
fn table_constants_are_those_of_the_kernels_crate() {
    let rust = constants(include_str!("../../crates/kernels/src/tables.rs"));
    let shader = FILES.iter().find(|(file, _)| *file == "shared/tables.wgsl").map(|(_, text)| constants(text));
    assert_eq!(Some(&rust), shader.as_ref());
    assert!(rust.len() > 30 && rust["STEP_TABLE"] == 15, "the constants were not found: {rust:?}");
}

/// A shader of the test itself, as if it were one file.
fn own(text: &str) -> Source {
    let lines = (1..=text.lines().count() as u32).map(|line| ("own.wgsl", line)).collect();
    Source { text: text.to_owned(), lines }
}

/// A kernel with the bindings of `gather_rows` and the given body and globals.
fn gather_like(x_access: &str, globals: &str, body: &str) -> Source {
    own(&format!(
        "struct Params {{ width: u32, pad0: u32, pad1: u32, pad2: u32 }}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, {x_access}> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
{globals}
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {{
{body}
}}
"
    ))
}

#[test]
fn the_checks_can_fail() {
    let gather = &seam_kernels::gather::GATHER_ROWS;
    let (_, fields) = params(gather);
    let body = "out[lane] = x[lane] + f32(tables[0] + p.width);";

    let good = parse(&gather_like("read", "", body)).unwrap();
    good.check_limits().unwrap();
    good.check_bindings(gather).unwrap();
    good.check_params(&fields).unwrap();
    good.translate(gather).unwrap();

    let access = parse(&gather_like("read_write", "", body)).unwrap();
    let reason = access.check_bindings(gather).unwrap_err();
    assert!(reason.contains("binding 2"), "{reason}");

    let missing = parse(&own("@compute @workgroup_size(64)\nfn main() {}")).unwrap();
    assert!(missing.check_bindings(gather).is_err());

    let large = parse(&gather_like("read", "var<workgroup> big: array<f32, 5120>;", "big[lane] = x[lane];")).unwrap();
    assert_eq!(large.workgroup_bytes(), 20 << 10);
    assert!(large.check_limits().is_err(), "20 KiB of workgroup memory");

    let wide = parse(&own("@compute @workgroup_size(16, 32)\nfn main() {}")).unwrap();
    assert!(wide.check_limits().is_err(), "512 invocations");

    let reordered = own("struct Params { pad0: u32, width: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> p: Params;
@compute @workgroup_size(1)
fn main() {}");
    assert!(parse(&reordered).unwrap().check_params(&fields).is_err(), "width has moved");

    let reason = parse(&own("@compute @workgroup_size(1)\nfn main() {\n    let x: u32 = 1.5f;\n}")).err().unwrap();
    assert!(reason.contains("own.wgsl:3"), "{reason}");

    let halves = own("enable f16;\n@compute @workgroup_size(1)\nfn main() { var x: f16; x = 1h; }");
    assert!(parse(&halves).is_err(), "f16 is not portable");
}

#[test]
fn tint_finds_a_divergent_barrier() {
    let barrier = "if (lane < 32u) { workgroupBarrier(); }\nout[lane] = shared_value[0];";
    let source = gather_like("read", "var<workgroup> shared_value: array<f32, 64>;", barrier);
    assert!(parse(&source).is_ok(), "naga has no uniformity analysis: if this fails, tint may go");
    let Some(tint) = Tint::find() else {
        assert!(std::env::var_os("SEAM_REQUIRE_TINT").is_none(), "tint is required and not on the path");
        eprintln!("skipped: no tint on the path");
        return;
    };
    let reason = tint.check("divergent", &source).unwrap_err();
    assert!(reason.contains("workgroupBarrier"), "{reason}");
    // The same barrier outside the branch is fine, so it is not the rest of the shader that tint refuses.
    let straight = barrier.replace("if (lane < 32u) { workgroupBarrier(); }", "workgroupBarrier();");
    tint.check("straight", &gather_like("read", "var<workgroup> shared_value: array<f32, 64>;", &straight)).unwrap();
}
