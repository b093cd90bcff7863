//! `seam bench`: how fast kernels are on a device, beside what its memory and its products can do.

mod plot;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use seam_benches::Scale;
use seam_benches::kernels::{KernelCase, KernelReport, Options, kernel_cases, run as measure};

use super::Verdict;
use crate::device::DeviceArgs;
use crate::report::{OutputArgs, Progress, note};

/// Measure a device.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Kernels(KernelArgs),
}

/// Measure every kernel alone, beside the roofline of the device
///
/// Each case is held against its reference at the small size first, and must overwrite its outputs with finite numbers;
/// what is wrong is not timed, and the command then exits with 1. The ceilings, a copy within the device and a large
/// product, are measured in the same run. `ratio` is the time of a kernel over the time of its bytes or its operations at
/// the ceilings, whichever is longer.
#[derive(Debug, clap::Args)]
struct KernelArgs {
    /// Only cases whose name contains one of these, comma separated.
    #[arg(long, value_name = "TEXTS", default_value = "")]
    filter: String,
    /// Sizes: small (moments on any device) or real (layers of Qwen3.5-35B-A3B and others, for a GPU).
    #[arg(long, value_name = "SIZE", value_enum, default_value_t)]
    size: Size,
    /// Samples of each case; fewer, but three at least, where they take longer than two seconds.
    #[arg(long, value_name = "N", default_value_t = Options::default().repeats as u32,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Print the names of the cases, and run nothing.
    #[arg(long)]
    list: bool,
    /// Also draw the roofline: operations a second over operations a byte.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write the JSON document to a file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Size {
    #[default]
    Small,
    Real,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    match &args.what {
        What::Kernels(args) => kernels(args),
    }
}

fn kernels(args: &KernelArgs) -> Result<Verdict> {
    let scale = match args.size {
        Size::Small => Scale::Small,
        Size::Real => Scale::Real,
    };
    let cases = chosen(kernel_cases(scale), &args.filter)?;
    if args.list {
        let names: Vec<(String, String)> = cases.iter().map(|c| (c.name(), c.shape.clone())).collect();
        args.output.emit(&names, || show::list(&names))?;
        return Ok(Verdict::Passed);
    }
    let device = args.device.open()?;
    let options = Options { scale, repeats: args.repeats as usize, ..Options::default() };
    let report = timed(&cases, &device, &options)?;
    if let Some(path) = &args.svg {
        write(path, &plot::roofline(&report)?)?;
    }
    if let Some(path) = &args.out {
        write(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    args.output.emit(&report, || show::text(&report))?;
    Ok(report.passed.into())
}

fn timed(
    cases: &[KernelCase],
    device: &std::sync::Arc<dyn seam_device::Device>,
    options: &Options,
) -> Result<KernelReport> {
    let progress = Progress::bar(cases.len(), "kernels");
    let mut begun = false;
    // The first name is that of the ceilings.
    let mut say = |name: &str| {
        if begun && name != "ceilings" {
            progress.step();
        }
        begun = name != "ceilings";
        progress.say(name);
    };
    Ok(measure(device, cases, options, &mut say)?)
}

/// The cases whose names contain one of some texts, which commas separate.
///
/// # Errors
/// There are none for one of them: the error names it and lists the groups.
fn chosen(cases: Vec<KernelCase>, filter: &str) -> Result<Vec<KernelCase>> {
    let mut groups: Vec<String> = cases.iter().map(|c| c.group.clone()).collect();
    groups.dedup();
    let texts: Vec<&str> = filter.split(',').map(str::trim).collect();
    if let Some(text) = texts.iter().find(|text| !cases.iter().any(|c| c.name().contains(**text))) {
        bail!("no kernel case has {text:?} in its name; there are {}", groups.join(", "));
    }
    Ok(cases.into_iter().filter(|c| texts.iter().any(|text| c.name().contains(text))).collect())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_finds_nothing_lists_the_groups() {
        let error = chosen(kernel_cases(Scale::Small), "flash").expect_err("no such case").to_string();
        assert!(error.contains("\"flash\"") && error.contains("rms_norm") && error.contains("decode/chunk"), "{error}");
        let some = chosen(kernel_cases(Scale::Real), "rms_norm/512").expect("cases");
        assert_eq!(some.len(), 2, "{some:?}");
        let some = chosen(kernel_cases(Scale::Real), "gemm/few, rms_norm/512").expect("cases");
        assert_eq!(some.len(), 4, "{some:?}");
        let error = chosen(kernel_cases(Scale::Small), "rms_norm,flash").expect_err("no such case").to_string();
        assert!(error.contains("\"flash\""), "{error}");
    }
}
