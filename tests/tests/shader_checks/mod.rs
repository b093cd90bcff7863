//! The rules that every portable shader keeps, as functions that name what is broken.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use naga::back::{hlsl, msl, spv};
use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ResourceBinding, ScalarKind, StorageAccess, TypeInner};
use seam_device::Access;
use seam_kernels::Kernel;
use seam_kernels::source::Source;

/// Workgroup memory that every device has.
pub(crate) const WORKGROUP_BYTES: u32 = 16 << 10;
/// Invocations of a workgroup that every device takes.
pub(crate) const INVOCATIONS: u32 = 256;

/// A parsed and validated shader.
pub(crate) struct Shader {
    pub(crate) module: Module,
    pub(crate) info: ModuleInfo,
    layouter: Layouter,
}

/// The two scalar types of a parameter struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    U32,
    F32,
}

/// A field of a Rust parameter struct.
pub(crate) type Field = (&'static str, usize, Scalar);

/// Parses and validates; an error names the shader file and line.
pub(crate) fn parse(source: &Source) -> Result<Shader, String> {
    let at = |line: Option<u32>| line.map_or_else(|| "?".to_owned(), |line| source.origin(line));
    let module = naga::front::wgsl::parse_str(&source.text).map_err(|e| {
        format!("{}: {}", at(e.location(&source.text).map(|l| l.line_number)), e.emit_to_string(&source.text))
    })?;
    // No capability beyond WGSL's core: no f16, no subgroups, no f64.
    let info = Validator::new(ValidationFlags::all(), Capabilities::default()).validate(&module).map_err(|e| {
        format!("{}: {}", at(e.location(&source.text).map(|l| l.line_number)), e.emit_to_string(&source.text))
    })?;
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).map_err(|e| e.to_string())?;
    Ok(Shader { module, info, layouter })
}

impl Shader {
    /// Bytes of all workgroup variables. naga and wgpu leave this sum to us.
    pub(crate) fn workgroup_bytes(&self) -> u32 {
        let workgroup = self.module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::WorkGroup);
        workgroup.map(|(_, v)| self.layouter[v.ty].size.next_multiple_of(16)).sum()
    }

    /// Limits that hold on every device.
    pub(crate) fn check_limits(&self) -> Result<(), String> {
        let bytes = self.workgroup_bytes();
        if bytes > WORKGROUP_BYTES {
            return Err(format!("{bytes} bytes of workgroup memory, at most {WORKGROUP_BYTES}"));
        }
        let [entry] = self.module.entry_points.as_slice() else {
            return Err(format!("{} entry points", self.module.entry_points.len()));
        };
        let invocations: u32 = entry.workgroup_size.iter().product();
        if entry.name != "main" || invocations > INVOCATIONS || entry.workgroup_size_overrides.is_some() {
            return Err(format!("entry point {} of {:?} invocations", entry.name, entry.workgroup_size));
        }
        if self.module.overrides.iter().next().is_some() {
            return Err("overrides: constants are lines in front of the source".to_owned());
        }
        Ok(())
    }

    /// Invocations and workgroup memory against the manifest entry, whose memory is the most over all constants.
    pub(crate) fn check_workgroup(&self, kernel: &Kernel) -> Result<(), String> {
        let invocations: u32 = self.module.entry_points.iter().flat_map(|e| e.workgroup_size).product();
        let (bytes, listed) = (self.workgroup_bytes(), kernel.workgroup);
        if invocations == listed.invocations && bytes <= listed.bytes {
            return Ok(());
        }
        Err(format!("workgroups of {invocations} invocations and {bytes} bytes, the manifest has {listed:?}"))
    }

    /// The globals against the manifest entry: numbers, names, access, and the size of the parameter struct.
    pub(crate) fn check_bindings(&self, kernel: &Kernel) -> Result<(), String> {
        let mut bound: BTreeMap<u32, &naga::GlobalVariable> = BTreeMap::new();
        for (_, variable) in self.module.global_variables.iter() {
            match &variable.binding {
                Some(ResourceBinding { group: 0, binding }) if bound.insert(*binding, variable).is_none() => {}
                None if matches!(variable.space, AddressSpace::WorkGroup | AddressSpace::Private) => {}
                other => return Err(format!("{:?} at {other:?}", variable.name)),
            }
        }
        let numbers: Vec<u32> = bound.keys().copied().collect();
        let wanted: Vec<u32> = (0..=kernel.bindings.len() as u32).collect();
        if numbers != wanted {
            return Err(format!("bindings {numbers:?}, the manifest has {wanted:?}"));
        }
        if bound[&0].space != AddressSpace::Uniform || bound[&0].name.as_deref() != Some("p") {
            return Err("binding 0 is not the uniform p".to_owned());
        }
        for (i, binding) in kernel.bindings.iter().enumerate() {
            let variable = bound[&(i as u32 + 1)];
            let access = match variable.space {
                AddressSpace::Storage { access } if access == StorageAccess::LOAD => Access::Read,
                AddressSpace::Storage { access } if access == StorageAccess::LOAD | StorageAccess::STORE => {
                    Access::ReadWrite
                }
                other => return Err(format!("{} is in {other:?}", binding.name)),
            };
            if variable.name.as_deref() != Some(binding.name) || access != binding.access {
                return Err(format!(
                    "binding {} is {:?} {access:?}, the manifest has {} {:?}",
                    i + 1,
                    variable.name,
                    binding.name,
                    binding.access
                ));
            }
        }
        let size = self.layouter[bound[&0].ty].size as usize;
        if size != kernel.params {
            return Err(format!("parameters of {size} bytes, the manifest has {}", kernel.params));
        }
        Ok(())
    }

    /// Name, offset and type of the parameters against those of the Rust struct; padding is left out on both sides.
    pub(crate) fn check_params(&self, fields: &[Field]) -> Result<(), String> {
        let uniform = self.module.global_variables.iter().find(|(_, v)| v.space == AddressSpace::Uniform);
        let (_, uniform) = uniform.ok_or("no uniform")?;
        let TypeInner::Struct { members, .. } = &self.module.types[uniform.ty].inner else {
            return Err("the uniform is no struct".to_owned());
        };
        let mut seen = Vec::new();
        for member in members {
            let name = member.name.as_deref().unwrap_or_default();
            if name.starts_with("pad") {
                continue;
            }
            let scalar = match &self.module.types[member.ty].inner {
                TypeInner::Scalar(s) if s.kind == ScalarKind::Uint && s.width == 4 => Scalar::U32,
                TypeInner::Scalar(s) if s.kind == ScalarKind::Float && s.width == 4 => Scalar::F32,
                other => return Err(format!("{name} is {other:?}")),
            };
            seen.push((name, member.offset as usize, scalar));
        }
        if seen != fields {
            return Err(format!("parameters {seen:?}, the Rust struct has {fields:?}"));
        }
        Ok(())
    }

    /// Translation to the three languages of the drivers, with every binding placed.
    pub(crate) fn translate(&self, kernel: &Kernel) -> Result<(), String> {
        let (module, info) = (&self.module, &self.info);
        let spv_options = spv::Options { lang_version: (1, 3), ..Default::default() };
        spv::write_vec(module, info, &spv_options, None).map_err(|e| format!("SPIR-V: {e}"))?;

        let slots = 0..=kernel.bindings.len() as u32;
        let writable = |i: u32| i > 0 && kernel.bindings[i as usize - 1].access == Access::ReadWrite;
        let resources = slots.clone().map(|i| {
            let slot = msl::BindTarget { buffer: Some(i as u8), mutable: writable(i), ..Default::default() };
            (ResourceBinding { group: 0, binding: i }, slot)
        });
        let entry =
            msl::EntryPointResources { resources: resources.collect(), sizes_buffer: Some(30), ..Default::default() };
        let msl_options = msl::Options {
            lang_version: (2, 4),
            per_entry_point_map: [("main".to_owned(), entry)].into(),
            fake_missing_bindings: false,
            ..Default::default()
        };
        msl::write_string(module, info, &msl_options, &msl::PipelineOptions::default())
            .map_err(|e| format!("MSL: {e}"))?;

        let hlsl_options = hlsl::Options {
            shader_model: hlsl::ShaderModel::V6_0,
            binding_map: slots
                .map(|i| {
                    let target = hlsl::BindTarget { register: i, ..Default::default() };
                    (ResourceBinding { group: 0, binding: i }, target)
                })
                .collect(),
            fake_missing_bindings: false,
            ..Default::default()
        };
        let mut text = String::new();
        let pipeline_options = hlsl::PipelineOptions::default();
        hlsl::Writer::new(&mut text, &hlsl_options, &pipeline_options)
            .write(module, info, None)
            .map(drop)
            .map_err(|e| format!("HLSL: {e}"))
    }
}

/// The uniformity analysis, which naga lacks: barriers in divergent control flow are found by tint only.
pub(crate) struct Tint(PathBuf);

impl Tint {
    /// `tint` of the path, if it is there.
    pub(crate) fn find() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("tint")).find(|file| file.is_file()).map(Self)
    }

    /// What tint says about a shader.
    pub(crate) fn check(&self, name: &str, source: &Source) -> Result<(), String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let file = dir.path().join(format!("{name}.wgsl"));
        std::fs::File::create(&file)
            .and_then(|mut f| f.write_all(source.text.as_bytes()))
            .map_err(|e| e.to_string())?;
        let run = Command::new(&self.0)
            .args(["--format", "wgsl", "-o"])
            .arg(dir.path().join("out.wgsl"))
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| e.to_string())?;
        if run.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&run.stderr).into_owned()) }
    }
}
