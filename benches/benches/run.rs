//! Verifies and times the benches of the registry:
//! `cargo bench --workspace --bench run -- [--device cpu|wgpu|cuda] [--filter SUBSTR] [--scale small|real] [--json] [--list]`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report is what a bench is for")]

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use seam_benches::{BENCHES, Bench, BenchError, Plan, Scale, run};
use seam_cpu::CpuDevice;
use seam_cuda::CudaDevice;
use seam_device::{Device, DeviceError, Precision};
use seam_wgpu::WgpuDevice;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum DeviceName {
    /// The processor.
    #[default]
    Cpu,
    /// The best usable adapter, with trusted shaders.
    Wgpu,
    /// The first usable NVIDIA GPU.
    Cuda,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ScaleName {
    /// For software devices: seconds.
    #[default]
    Small,
    /// The sizes of one layer of Qwen3.5-9B: for a GPU.
    Real,
}

/// Verifies and times operations and requests on one device.
#[derive(Debug, Parser)]
struct Args {
    /// Where to compute.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceName,
    /// Only benches whose name contains this.
    #[arg(long, value_name = "SUBSTR", default_value = "")]
    filter: String,
    /// How large the cases are.
    #[arg(long, value_enum, default_value_t)]
    scale: ScaleName,
    /// CUDA: replay lists command by command instead of as graphs.
    #[arg(long)]
    no_graphs: bool,
    /// CUDA: round operands of products, keys and values to bf16.
    #[arg(long)]
    bf16: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Print what there is, and run nothing.
    #[arg(long)]
    list: bool,
    /// What cargo passes to every bench target.
    #[arg(long, hide = true)]
    bench: bool,
}

fn open(args: &Args) -> Result<Arc<dyn Device>, DeviceError> {
    let precision = if args.bf16 { Precision::Bf16 } else { Precision::F32 };
    let cuda = seam_cuda::Options { graphs: !args.no_graphs, precision, ..Default::default() };
    Ok(match args.device {
        DeviceName::Cpu => CpuDevice::open(seam_cpu::Options::default()),
        DeviceName::Wgpu => WgpuDevice::open(&seam_wgpu::Options::default())?,
        DeviceName::Cuda => CudaDevice::open(&cuda)?,
    })
}

fn report(args: &Args, benches: &[&Bench], scale: Scale) -> Result<(String, bool), BenchError> {
    let device = open(args)?;
    let (benches, absent): (Vec<&Bench>, Vec<&Bench>) = benches.iter().partition(|b| b.available(device.caps()));
    absent.iter().for_each(|bench| eprintln!("{}: no kernel on {}", bench.name, device.caps().kind));
    let benches = benches.as_slice();
    let report = run(&device, benches, scale, &Plan::default(), &mut |name| eprintln!("{name}"))?;
    let text = if args.json { report.json().unwrap_or_default() } else { report.table() };
    Ok((text, report.passed()))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let scale = match args.scale {
        ScaleName::Small => Scale::Small,
        ScaleName::Real => Scale::Real,
    };
    let benches: Vec<&Bench> = BENCHES.iter().filter(|b| b.name.contains(&args.filter)).collect();
    if benches.is_empty() {
        eprintln!("no bench has {:?} in its name; --list shows all", args.filter);
        return ExitCode::FAILURE;
    }
    if args.list {
        for bench in benches {
            println!("{:<48}{}: {}", bench.name, bench.shape(scale), bench.what);
        }
        return ExitCode::SUCCESS;
    }
    match report(&args, &benches, scale) {
        Ok((text, passed)) => {
            println!("{text}");
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
