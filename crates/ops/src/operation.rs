//! What every operation can do.

use bytemuck::Pod;
use seam_device::{BufferRange, Caps, Command, Dispatch, KernelId, Recorder};

use crate::error::OpError;

/// An operation over borrowed tensors.
pub trait Operation {
    /// Checks shapes and sizes.
    ///
    /// # Errors
    /// [`OpError::Shape`] naming the operation and the sizes.
    fn check(&self) -> Result<(), OpError>;

    /// The commands it needs on a device with these capabilities. Pure: kernel choice and grids, no device.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where the device lacks a kernel or a size.
    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError>;

    /// Checks, plans and records.
    ///
    /// # Errors
    /// As [`Operation::check`] and [`Operation::plan`], or what the recorder says.
    fn record(&self, recorder: &mut dyn Recorder, caps: &Caps) -> Result<(), OpError> {
        self.check()?;
        record(recorder, self.plan(caps)?)
    }
}

/// Records commands.
///
/// # Errors
/// What the recorder says.
pub fn record(recorder: &mut dyn Recorder, commands: Vec<Command>) -> Result<(), OpError> {
    for command in commands {
        match command {
            Command::Dispatch(d) => recorder.dispatch(d)?,
            Command::Gemm(g) => recorder.gemm(g)?,
            Command::Copy(c) => recorder.copy(&c.src, &c.dst)?,
            Command::Zero(r) => recorder.zero(&r)?,
        }
    }
    Ok(())
}

/// A dispatch of `kernel`, if the device has it.
pub(crate) fn launch<P: Pod>(
    op: &'static str,
    caps: &Caps,
    kernel: KernelId,
    constants: Vec<u32>,
    params: &P,
    bindings: Vec<BufferRange>,
    grid: [u32; 3],
) -> Result<Command, OpError> {
    let unsupported = |what: String| OpError::Unsupported { op, device: caps.name.clone(), what };
    if !caps.kernels.contains(kernel) {
        return Err(unsupported("the device has no such kernel".to_owned()));
    }
    if let Some(entry) = seam_kernels::kernel(kernel) {
        for (value, constant) in constants.iter().zip(entry.constants) {
            if !constant.legal.contains(value) {
                return Err(unsupported(format!(
                    "{} = {value}, kernels exist for {:?}",
                    constant.name, constant.legal
                )));
            }
        }
    }
    if let Some(entry) = seam_kernels::kernel(kernel) {
        let (needs, has) = (entry.workgroup, (caps.max_invocations, caps.max_workgroup_bytes));
        if needs.invocations > has.0 || needs.bytes > has.1 {
            return Err(unsupported(format!(
                "workgroups of {} invocations with {} bytes of memory, at most {} and {}",
                needs.invocations, needs.bytes, has.0, has.1
            )));
        }
    }
    if grid.iter().any(|&n| n > caps.max_grid) {
        return Err(unsupported(format!("a grid of {grid:?}, at most {} along an axis", caps.max_grid)));
    }
    let params = bytemuck::bytes_of(params).to_vec();
    Ok(Command::Dispatch(Dispatch { kernel, constants, params, bindings, grid }))
}
