//! Recording and running command lists.

use std::panic::{AssertUnwindSafe, catch_unwind};

use seam_device::{
    Access, BufferRange, Command, CommandList, Copy, DeviceError, DeviceId, Dispatch, Gemm, Recorder, check_dispatch,
    check_gemm,
};
use seam_kernels::{Args, Slot, validate};

use crate::gemm;
use crate::memory::{read, write};

/// Records for the cpu device.
pub(crate) struct CpuRecorder {
    pub(crate) id: DeviceId,
    pub(crate) max_binding: u64,
    pub(crate) commands: Vec<Command>,
}

impl CpuRecorder {
    fn device(&self) -> (DeviceId, &'static str) {
        (self.id, "cpu")
    }
}

impl Recorder for CpuRecorder {
    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), DeviceError> {
        let kernel = validate(&dispatch)?;
        if kernel.twin.is_none() {
            return Err(DeviceError::Unsupported { device: "cpu".to_owned(), what: format!("kernel {}", kernel.name) });
        }
        let bindings: Vec<(Access, &BufferRange)> =
            kernel.bindings.iter().map(|b| b.access).zip(&dispatch.bindings).collect();
        check_dispatch(self.device(), self.max_binding, kernel.name, &bindings)?;
        self.commands.push(Command::Dispatch(dispatch));
        Ok(())
    }

    fn gemm(&mut self, gemm: Gemm) -> Result<(), DeviceError> {
        check_gemm(self.device(), self.max_binding, &gemm)?;
        if !crate::device::GEMM_WEIGHTS.contains(&gemm.weight) {
            return Err(DeviceError::Unsupported {
                device: "cpu".to_owned(),
                what: format!("a product with {} weights", gemm.weight),
            });
        }
        self.commands.push(Command::Gemm(gemm));
        Ok(())
    }

    fn copy(&mut self, src: &BufferRange, dst: &BufferRange) -> Result<(), DeviceError> {
        let copy = Copy { src: src.clone(), dst: dst.clone() };
        copy.check(self.device())?;
        self.commands.push(Command::Copy(copy));
        Ok(())
    }

    fn zero(&mut self, dst: &BufferRange) -> Result<(), DeviceError> {
        check_dispatch(self.device(), u64::MAX, "zero", &[])?;
        if dst.buffer.device() != self.id {
            return Err(DeviceError::ForeignBuffer { device: "cpu".to_owned(), label: dst.buffer.label().to_owned() });
        }
        dst.buffer.range(dst.offset, dst.len)?;
        self.commands.push(Command::Zero(dst.clone()));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<CommandList, DeviceError> {
        let launches = self.commands.iter().filter(|c| matches!(c, Command::Dispatch(_) | Command::Gemm(_))).count();
        Ok(CommandList::new(self.id, launches, Box::new(self.commands)))
    }
}

/// Runs one command; returns the bytes it copied.
pub(crate) fn run(command: &Command) -> Result<u64, DeviceError> {
    match command {
        Command::Dispatch(dispatch) => run_dispatch(dispatch).map(|()| 0),
        Command::Gemm(g) => caught("gemm", || gemm::run(g)).map(|()| 0),
        Command::Copy(copy) => run_copy(copy),
        Command::Zero(range) => {
            let mut words = write(&range.buffer)?;
            words[range.offset as usize / 4..][..range.len as usize / 4].fill(0);
            Ok(0)
        }
    }
}

/// A twin that meets broken tables stops with an error, not with the process.
fn caught(kernel: &str, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let words = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default();
        Err(DeviceError::BadDispatch { kernel: kernel.to_owned(), reason: format!("the twin stopped: {words}") })
    })
}

fn run_dispatch(dispatch: &Dispatch) -> Result<(), DeviceError> {
    let kernel = validate(dispatch)?;
    let Some(twin) = kernel.twin else { return Ok(()) };
    let writes = |i: usize| kernel.bindings[i].access == Access::ReadWrite;
    // A buffer that is bound for reading twice is locked once: a second lock could wait for a writer between them.
    let mut reads = Vec::new();
    let mut guards = Vec::new();
    for (i, range) in dispatch.bindings.iter().enumerate() {
        if writes(i) {
            guards.push(write(&range.buffer)?);
        } else if !reads.iter().any(|(address, _)| *address == range.buffer.address()) {
            reads.push((range.buffer.address(), read(&range.buffer)?));
        }
    }
    let mut writable = guards.iter_mut();
    let mut slots = Vec::new();
    for (i, range) in dispatch.bindings.iter().enumerate() {
        let words = range.offset as usize / 4..(range.offset + range.len) as usize / 4;
        slots.push(if writes(i) {
            writable.next().map_or(Slot::Taken, |guard| Slot::Write(&mut guard[words]))
        } else {
            let found = reads.iter().find(|(address, _)| *address == range.buffer.address());
            found.map_or(Slot::Taken, |(_, reading)| Slot::Read(&reading.words()[words]))
        });
    }
    let mut args = Args::new(&dispatch.params, &dispatch.constants, slots);
    caught(kernel.name, || {
        twin(&mut args);
        Ok(())
    })
}

fn run_copy(copy: &Copy) -> Result<u64, DeviceError> {
    let from = copy.src.offset as usize / 4..(copy.src.offset + copy.src.len) as usize / 4;
    let to = copy.dst.offset as usize / 4;
    if copy.src.buffer.same(&copy.dst.buffer) {
        write(&copy.dst.buffer)?.copy_within(from, to);
    } else {
        let src = read(&copy.src.buffer)?;
        let words = &src.words()[from];
        write(&copy.dst.buffer)?[to..to + words.len()].copy_from_slice(words);
    }
    Ok(copy.src.len)
}
