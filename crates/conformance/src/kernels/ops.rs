//! Goldens of single operations.

mod conv;
mod elementwise;
mod gates;
mod host;
mod rope;
mod router;

use std::sync::Arc;

use seam_device::{Buffer, BufferRange, BufferUse, Device, Lane, Recorder, align_up};
use seam_ops::{OpError, OutputGate, Pairing, PassBuilder, PassTables, RunSpec, Scoring, Tensor};

use super::golden::{Golden, GoldenError};
use crate::chains::read;
use crate::model::CheckError;
use crate::report::{Check, Report};

/// Checks every operation; decays that models fix are values of the host, and checked as such.
pub(super) fn check(device: &Arc<dyn Device>, golden: &Golden, report: &mut Report) -> Result<(), GoldenError> {
    let on = OnDevice { device };
    for name in golden.cases.keys() {
        let case = Case { golden, name };
        let checks = match name.as_str() {
            "rmsnorm" => elementwise::rms_norm(&on, &case, false)?,
            "rmsnorm_zero_centred" => elementwise::rms_norm(&on, &case, true)?,
            "rmsnorm_gated_silu" => elementwise::gated_heads(&on, &case, OutputGate::Silu)?,
            "rmsnorm_gated_sigmoid" => elementwise::gated_heads(&on, &case, OutputGate::Sigmoid)?,
            "gate_then_group_rmsnorm_g1" => elementwise::gated_groups(&on, &case, 1, true)?,
            "gate_then_group_rmsnorm_g4" => elementwise::gated_groups(&on, &case, 4, true)?,
            "group_rmsnorm_then_sigmoid_g1" => elementwise::gated_groups(&on, &case, 1, false)?,
            "group_rmsnorm_then_sigmoid_g4" => elementwise::gated_groups(&on, &case, 4, false)?,
            "l2norm" => elementwise::l2_norm(&on, &case)?,
            "gdn_gate" => gates::gdn(&on, &case)?,
            "gla_gate" => gates::gla(&on, &case)?,
            "kda_gate" => gates::kda(&on, &case, None)?,
            "kda_safe_gate" => gates::kda(&on, &case, Some(-5.0))?,
            "mamba_dt" => gates::mamba(&on, &case)?,
            "rope_neox_full" => rope::halves(&on, &case, 16, 1e4)?,
            "rope_neox_partial" => rope::halves(&on, &case, 8, 6e5)?,
            "rope_interleaved" => rope::rows(&on, &case, 16, 6e6, Pairing::Interleaved)?,
            "router_softmax_topk" => router::router(&on, &case, |_| Scoring::Softmax { renormalise: true })?,
            "router_topk_softmax" => router::router(&on, &case, |_| Scoring::ChosenSoftmax)?,
            "router_grouped_sigmoid" => router::router(&on, &case, router::GROUPED)?,
            "retnet_gamma" => host::gamma(&case)?,
            _ if name.starts_with("slopes_") => host::slopes(&case)?,
            _ if name.starts_with("conv_fresh_") || name.starts_with("conv_continued_") => {
                conv::conv(&on, &case, name.starts_with("conv_continued_"))?
            }
            _ => return Err(CheckError::Unknown(name.clone()).into()),
        };
        report.checks.extend(checks);
    }
    Ok(())
}

/// One operation's tensors.
struct Case<'a> {
    golden: &'a Golden,
    name: &'a str,
}

impl Case<'_> {
    fn only(&self, known: &[&str]) -> Result<(), GoldenError> {
        self.golden.only(self.name, known)
    }

    fn shape<const N: usize>(&self, tensor: &str) -> Result<[usize; N], GoldenError> {
        self.golden.shape(self.name, tensor)
    }

    fn floats(&self, tensor: &str, shape: &[usize]) -> Result<Vec<f64>, GoldenError> {
        self.golden.floats(self.name, tensor, shape)
    }

    fn singles(&self, tensor: &str, shape: &[usize]) -> Result<Vec<f32>, GoldenError> {
        self.golden.singles(self.name, tensor, shape)
    }

    fn tensor(&self, tensor: &str) -> String {
        format!("{}/{tensor}", self.name)
    }

    /// A size as kernels take it.
    fn narrow(&self, size: usize) -> Result<u32, GoldenError> {
        let narrow = u32::try_from(size).ok().filter(|&n| n < 1 << 20);
        narrow.ok_or_else(|| self.golden.not_understood(format!("{} has a size of {size}", self.name)))
    }
}

/// Puts tensors on a device and runs lists there.
struct OnDevice<'a> {
    device: &'a Arc<dyn Device>,
}

type Recording<'a> = dyn Fn(&mut dyn Recorder, &BufferRange) -> Result<(), OpError> + 'a;

impl OnDevice<'_> {
    /// A pass of `rows` rows without convolution and attention.
    fn rows(&self, rows: usize) -> Result<PassTables, OpError> {
        let mut pass = PassBuilder::new(0, 0, 1.0);
        pass.run(&RunSpec { tokens: &vec![0; rows], pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
        pass.finish()
    }

    /// A matrix with room for the rows of the pass, holding `values`.
    fn tensor(&self, pass: &PassTables, label: &str, cols: u32, values: &[f32]) -> Result<Tensor, OpError> {
        let tensor = Tensor::new(&**self.device, label, pass.shape.rows, cols)?;
        self.device.write(&tensor.range(), bytemuck::cast_slice(values))?;
        Ok(tensor)
    }

    /// A matrix with room for the rows of the pass, for results.
    fn result(&self, pass: &PassTables, label: &str, cols: u32) -> Result<Tensor, OpError> {
        self.tensor(pass, label, cols, &vec![f32::NAN; pass.shape.rows as usize * cols as usize])
    }

    /// Weights of one row.
    fn weight(&self, label: &str, values: &[f32]) -> Result<Tensor, OpError> {
        Tensor::constant(&**self.device, label, 1, values.len() as u32, values)
    }

    /// A slab of `words` words that begins with `values`, the rest NaN.
    fn slab(&self, label: &str, words: usize, values: &[f32]) -> Result<Buffer, OpError> {
        let mut content = vec![f32::NAN; words];
        content.iter_mut().zip(values).for_each(|(c, v)| *c = *v);
        let buffer = self.device.alloc(label, align_up(words as u64 * 4), BufferUse::Storage)?;
        self.device.write(&buffer.all(), bytemuck::cast_slice(&content))?;
        Ok(buffer)
    }

    /// Writes the tables, records and submits; reads see the results.
    fn run(&self, pass: &PassTables, record: &Recording<'_>) -> Result<(), OpError> {
        let bytes = u64::from(pass.shape.words) * 4;
        let tables = self.device.alloc("tables", bytes, BufferUse::Storage)?.all();
        self.device.write(&tables, bytemuck::cast_slice(&pass.words))?;
        let mut recorder = self.device.recorder();
        record(&mut *recorder, &tables)?;
        let ticket = self.device.submit(&recorder.finish()?, Lane::Compute, &[])?;
        Ok(self.device.wait(ticket)?)
    }

    /// The first `rows` rows of a result.
    fn read(&self, tensor: &Tensor, rows: usize) -> Result<Vec<f64>, OpError> {
        Ok(read(&**self.device, &tensor.first(rows as u32).range())?)
    }

    /// The first `rows` rows of a result that holds words.
    fn bits(&self, tensor: &Tensor, rows: usize) -> Result<Vec<u32>, OpError> {
        let bytes = self.device.read(&tensor.first(rows as u32).range(), &[])?.wait()?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// `len` words of a slab.
    fn words(&self, slab: &Buffer, from: usize, len: usize) -> Result<Vec<f64>, OpError> {
        Ok(read(&**self.device, &slab.range(from as u64 * 4, len as u64 * 4)?)?)
    }
}

type Checks = Result<Vec<Check>, GoldenError>;
