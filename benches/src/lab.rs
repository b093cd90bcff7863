//! Tensors, tables and lists of a case on a device.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use seam_conformance::tolerance::Tolerance;
use seam_device::{Buffer, BufferRange, BufferUse, Command, CommandList, Copy, Device, HostBytes, Lane, align_up};
use seam_ops::{OpError, Operation, PassBuilder, PassTables, RunSpec, Tensor, Weight};

use crate::case::{Case, Cost, Reference, Sample, Work};
use crate::error::BenchError;
use crate::random::Random;

/// Builds the list of a case, and remembers what it writes.
pub(crate) struct Lab {
    device: Arc<dyn Device>,
    commands: Vec<Command>,
    /// What a run changes in place, and where it is put back from.
    resets: Vec<Copy>,
    outputs: Vec<BufferRange>,
}

impl Lab {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Self {
        Self { device: Arc::clone(device), commands: Vec::new(), resets: Vec::new(), outputs: Vec::new() }
    }

    /// The tables of a pass.
    pub(crate) fn tables(&self, pass: &PassTables) -> Result<BufferRange, BenchError> {
        let tables = self.device.alloc("tables", u64::from(pass.shape.words) * 4, BufferUse::Storage)?.all();
        self.device.write(&tables, bytemuck::cast_slice(&pass.words))?;
        Ok(tables)
    }

    /// A matrix with room for `capacity` rows that begins with `values`. The rest is NaN: nothing may read it.
    pub(crate) fn input(&self, label: &str, capacity: u32, cols: u32, values: &[f32]) -> Result<Tensor, BenchError> {
        let mut padded = values.to_vec();
        padded.resize(padded.len().max(capacity as usize * cols as usize), f32::NAN);
        Ok(Tensor::constant(&*self.device, label, capacity, cols, &padded)?)
    }

    /// A matrix of weights that is not split.
    pub(crate) fn small(&self, label: &str, rows: u32, cols: u32, values: &[f32]) -> Result<Tensor, BenchError> {
        Ok(Tensor::constant(&*self.device, label, rows, cols, values)?)
    }

    /// A weight `[n, k]` from bf16 values.
    pub(crate) fn weight(&self, label: &str, n: u32, k: u32, values: &[half::bf16]) -> Result<Weight, BenchError> {
        let bytes = HostBytes::from_vec(bytemuck::cast_slice(values).to_vec());
        Ok(Weight::load(&*self.device, label, seam_device::DType::BF16, n, k, &bytes, None)?)
    }

    /// A matrix with room for `capacity` rows, of which the first `rows` are an output.
    pub(crate) fn output(&mut self, label: &str, capacity: u32, rows: u32, cols: u32) -> Result<Tensor, BenchError> {
        let tensor = Tensor::new(&*self.device, label, capacity, cols)?;
        self.outputs.push(tensor.first(rows).range());
        Ok(tensor)
    }

    /// A matrix with room for `capacity` rows that is no output.
    pub(crate) fn scratch(&self, label: &str, capacity: u32, cols: u32) -> Result<Tensor, BenchError> {
        Ok(Tensor::new(&*self.device, label, capacity, cols)?)
    }

    /// A matrix that begins with `values` before every run and is changed by it: an output of as many rows.
    pub(crate) fn in_place(
        &mut self,
        label: &str,
        capacity: u32,
        cols: u32,
        values: &[f32],
    ) -> Result<Tensor, BenchError> {
        let rows = values.len() as u32 / cols.max(1);
        let before = self.input(label, capacity, cols, values)?;
        let tensor = self.output(label, capacity, rows, cols)?;
        self.resets.push(Copy { src: before.range(), dst: tensor.range() });
        Ok(tensor)
    }

    /// A slab that holds `values`.
    pub(crate) fn slab(&self, label: &str, values: &[f32]) -> Result<Buffer, BenchError> {
        let buffer = self.device.alloc(label, align_up(values.len().max(1) as u64 * 4), BufferUse::Storage)?;
        if !values.is_empty() {
            self.device.write(&buffer.all(), bytemuck::cast_slice(values))?;
        }
        Ok(buffer)
    }

    /// A slab that holds `values` before every run and is changed by it: all of it is an output.
    pub(crate) fn slab_in_place(&mut self, label: &str, values: &[f32]) -> Result<Buffer, BenchError> {
        let (before, slab) = (self.slab(label, values)?, self.slab(label, values)?);
        let len = values.len() as u64 * 4;
        self.resets.push(Copy { src: before.range(0, len)?, dst: slab.range(0, len)? });
        self.outputs.push(slab.range(0, len)?);
        Ok(slab)
    }

    /// A tolerance of results of products, at the precision of the device.
    pub(crate) fn tolerance(&self, tolerance: Tolerance) -> Tolerance {
        tolerance.in_precision(self.device.caps().precision)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// A matrix with room for `capacity` rows, of which `rows` hold numbers in `[low, high)` of a fixed sequence that
    /// repeats: large ones are made as fast as memory is copied. The rest is NaN: nothing may read it.
    pub(crate) fn noise(
        &self,
        label: &str,
        [capacity, rows, cols]: [u32; 3],
        (seed, low, high): (u64, f32, f32),
    ) -> Result<Tensor, BenchError> {
        let len = rows as usize * cols as usize;
        let block = Random::new(seed).reals(len.min(NOISE) as u32, low, high);
        let mut values = repeated(&block, len);
        values.resize(len.max(capacity as usize * cols as usize), f32::NAN);
        Ok(Tensor::constant(&*self.device, label, capacity, cols, &values)?)
    }

    /// The same, put back before every run and changed by it: an output.
    pub(crate) fn noise_in_place(
        &mut self,
        label: &str,
        [capacity, rows, cols]: [u32; 3],
        (seed, low, high): (u64, f32, f32),
    ) -> Result<Tensor, BenchError> {
        let len = rows as usize * cols as usize;
        let block = Random::new(seed).reals(len.min(NOISE) as u32, low, high);
        self.in_place(label, capacity, cols, &repeated(&block, len))
    }

    /// A weight `[n, k]` of such numbers in bf16.
    pub(crate) fn noise_weight(&self, label: &str, n: u32, k: u32, seed: u64) -> Result<Weight, BenchError> {
        let len = n as usize * k as usize;
        let block: Vec<half::bf16> =
            Random::new(seed).signed(len.min(NOISE) as u32).into_iter().map(half::bf16::from_f32).collect();
        self.weight(label, n, k, &repeated(&block, len))
    }

    /// What stands for a slab that no step names.
    pub(crate) fn no_slab(&self) -> Result<BufferRange, BenchError> {
        Ok(self.slab("no slab", &[])?.all())
    }

    /// `words` words of a slab from word `from` are an output.
    pub(crate) fn written(&mut self, slab: &Buffer, from: u32, words: u32) -> Result<(), BenchError> {
        self.outputs.push(slab.range(u64::from(from) * 4, u64::from(words) * 4)?);
        Ok(())
    }

    /// Records an operation.
    pub(crate) fn record(&mut self, operation: &dyn Operation) -> Result<(), OpError> {
        operation.check()?;
        self.commands.extend(operation.plan(self.device.caps())?);
        Ok(())
    }

    /// Records commands that were planned elsewhere.
    pub(crate) fn commands(&mut self, commands: Vec<Command>) {
        self.commands.extend(commands);
    }

    /// Records a copy.
    pub(crate) fn copy(&mut self, src: BufferRange, dst: BufferRange) {
        self.commands.push(Command::Copy(Copy { src, dst }));
    }

    /// Ends recording without a list: what was recorded, to be repeated in lists of other lengths.
    pub(crate) fn parts(self) -> Parts {
        Parts { commands: self.commands, resets: self.resets, outputs: self.outputs }
    }

    fn list(&self, commands: impl IntoIterator<Item = Command>) -> Result<CommandList, BenchError> {
        list(&self.device, commands)
    }

    /// Ends recording. The reference receives the outputs in the order in which they were declared.
    pub(crate) fn finish(
        mut self,
        name: &'static str,
        cost: Cost,
        reference: impl Fn(&[Vec<f32>]) -> Result<Vec<seam_conformance::Check>, BenchError> + 'static,
    ) -> Result<Case, BenchError> {
        let kernels: BTreeSet<&'static str> = self.commands.iter().flat_map(kernels).collect();
        let commands = std::mem::take(&mut self.commands);
        let list = self.list(commands)?;
        let resets = std::mem::take(&mut self.resets);
        let reset = if resets.is_empty() { None } else { Some(self.list(resets.into_iter().map(Command::Copy))?) };
        let reference: Reference = Box::new(reference);
        let work = Box::new(ListWork { device: self.device, list, reset, outputs: self.outputs });
        Ok(Case { name, cost, kernels: kernels.into_iter().collect(), work, reference })
    }
}

/// What a case records.
pub(crate) struct Parts {
    pub(crate) commands: Vec<Command>,
    pub(crate) resets: Vec<Copy>,
    pub(crate) outputs: Vec<BufferRange>,
}

/// Numbers of a sequence before it repeats: a prime, so that rows of no width are alike.
const NOISE: usize = 65_537;

/// A block over and over, `len` values in all.
pub(crate) fn repeated<T: Clone>(block: &[T], len: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len && !block.is_empty() {
        let more = block.len().min(len - out.len());
        out.extend_from_slice(&block[..more]);
    }
    out
}

/// A list of commands.
pub(crate) fn list(
    device: &Arc<dyn Device>,
    commands: impl IntoIterator<Item = Command>,
) -> Result<CommandList, BenchError> {
    let mut recorder = device.recorder();
    for command in commands {
        match command {
            Command::Dispatch(dispatch) => recorder.dispatch(dispatch)?,
            Command::Gemm(gemm) => recorder.gemm(gemm)?,
            Command::Copy(copy) => recorder.copy(&copy.src, &copy.dst)?,
            Command::Zero(range) => recorder.zero(&range)?,
        }
    }
    Ok(recorder.finish()?)
}

/// The names of the kernels that a command launches. A product runs in one of two, which devices choose by its rows; where
/// a library multiplies, its operand is converted.
pub(crate) fn kernels(command: &Command) -> Vec<&'static str> {
    match command {
        Command::Dispatch(dispatch) => seam_kernels::kernel(dispatch.kernel).map(|k| k.name).into_iter().collect(),
        Command::Gemm(gemm) if gemm.m <= seam_kernels::gemm::FEW_ROWS => vec![seam_kernels::gemm::GEMM_FEW.name],
        Command::Gemm(_) => vec![seam_kernels::gemm::GEMM.name, seam_kernels::gemm::parts::GEMM_PARTS.name],
        Command::Copy(_) | Command::Zero(_) => Vec::new(),
    }
}

/// A pass of `rows` rows without convolution, attention and chains.
pub(crate) fn plain_pass(rows: u32) -> Result<PassTables, BenchError> {
    let mut pass = PassBuilder::new(0, 0, 1.0);
    let tokens = vec![0; rows as usize];
    pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    Ok(pass.finish()?)
}

struct ListWork {
    device: Arc<dyn Device>,
    list: CommandList,
    reset: Option<CommandList>,
    outputs: Vec<BufferRange>,
}

impl ListWork {
    fn put_back(&self) -> Result<(), BenchError> {
        if let Some(reset) = &self.reset {
            let ticket = self.device.submit(reset, Lane::Compute, &[])?;
            self.device.wait(ticket)?;
        }
        Ok(())
    }
}

impl Work for ListWork {
    fn run(&mut self) -> Result<Sample, BenchError> {
        self.put_back()?;
        let start = Instant::now();
        let ticket = self.device.submit(&self.list, Lane::Compute, &[])?;
        self.device.wait(ticket)?;
        let host = start.elapsed();
        Ok(Sample { host, device: self.device.elapsed(ticket) })
    }

    fn outputs(&mut self) -> Result<Vec<Vec<f32>>, BenchError> {
        for range in &self.outputs {
            let nothing = vec![f32::NAN; range.len as usize / 4];
            self.device.write(range, bytemuck::cast_slice(&nothing))?;
        }
        self.run()?;
        let read = |range: &BufferRange| Ok(floats(&self.device.read(range, &[])?.wait()?));
        self.outputs.iter().map(read).collect()
    }
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
