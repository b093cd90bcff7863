//! `seam laws`: the laws of the state algebra, held against the oracles of families and against a device's kernels.

mod choice;
mod form;
mod measure;
mod plan;
mod plot;
mod summary;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use seam_algebra::laws::Options;

use self::choice::Choice;
use self::form::FormChoice;
use super::Verdict;
use crate::device::DeviceArgs;
use crate::report::{OutputArgs, note};

/// Hold families of recurrences against the laws of the state algebra, on their float64 oracles and on a device
///
/// Each law is tried on generated cases against the sequential float64 oracle of its family, first on the oracle itself, then
/// on each form of the device's kernels. A failing case is shrunk and printed as a test to paste. Beside the laws the error
/// of a composed state is measured over the number of segments and the decay. Exits with 1 if a law fails or an error is
/// above its tolerance.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Families, comma separated; `all` for all of them, `list` to print what there is.
    #[arg(long, value_name = "NAMES", default_value = "all")]
    family: Choice,
    /// Forms of the device's kernels: recurrent (token by token), chunk (by chunks of tokens), or all.
    #[arg(long, value_name = "FORM", default_value_t)]
    form: FormChoice,
    /// Cases in all, divided evenly over families, subjects and laws; each gets at least one. A slow device takes fewer.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    cases: u32,
    /// Seed of the cases: the same seed gives the same cases.
    #[arg(long, value_name = "S", default_value_t = Options::default().seed)]
    seed: u64,
    /// Most tokens of a case.
    #[arg(long, value_name = "N", default_value_t = Options::default().max_len as u32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_len: u32,
    /// Print every law of every family, also where that is long.
    #[arg(long)]
    verbose: bool,
    /// Also draw the error of a composed state over the number of segments, and below it each law's worst error.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let names = match &args.family {
        Choice::List => {
            let list = choice::list();
            args.output.emit(&list, || choice::text(&list))?;
            return Ok(Verdict::Passed);
        }
        Choice::These(names) => names,
    };
    let device = args.device.open_exact()?;
    let document = measure::measure(args, names, &device);
    if let Some(path) = &args.svg {
        write_svg(path, &plot::svg(&document)?)?;
    }
    args.output.emit(&document, || summary::text(&document, args.verbose))?;
    Ok(document.passed.into())
}

/// Writes an SVG file and says so.
fn write_svg(path: &Path, svg: &str) -> Result<()> {
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}
