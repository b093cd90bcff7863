//! Checked mode: tensors of a pass are looked through for values that must not be.

use seam_device::{BufferRange, BufferUse, Caps, Command, Device, Recorder, Ticket, align_up};
use seam_kernels::scan::{CLEAN, SCAN, ScanParams, TEST_NON_FINITE, TEST_POSITIVE};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Values that are not finite.
    NonFinite,
    /// Log-gates above 0, which would let a state grow.
    PositiveLogGate,
}

/// A value that must not be: the first of its tensor, row by row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// It is not a number, or infinite.
    #[error("{tensor}: the value at row {row}, column {col} is not finite")]
    NonFinite {
        /// The tensor.
        tensor: String,
        /// Row of the pass.
        row: u32,
        /// Column of the tensor.
        col: u32,
    },
    /// A log-gate above 0.
    #[error("{tensor}: the log-gate at row {row}, column {col} is above 0")]
    PositiveLogGate {
        /// The tensor.
        tensor: String,
        /// Row of the pass.
        row: u32,
        /// Column of the tensor.
        col: u32,
    },
}

/// Looks through some columns of a tensor and lowers a flag to the index `row·cols + column` of what it finds, the column
/// counted from the first that is looked at.
#[derive(Debug)]
pub struct Scan<'a> {
    /// Tables of the pass, with the header word that holds the number of rows.
    pub rows: (&'a BufferRange, usize),
    /// `[rows, ≥ first + cols]`.
    pub x: &'a Tensor,
    /// First column, and columns.
    pub part: (u32, u32),
    /// What is looked for.
    pub test: Test,
    /// u32 flags, and which of them. Before a pass a flag is `u32::MAX`: nothing found.
    pub flag: (&'a BufferRange, u32),
}

impl Operation for Scan<'_> {
    fn check(&self) -> Result<(), OpError> {
        let ((first, cols), row) = (self.part, self.x.cols());
        let inside = cols > 0 && first.checked_add(cols).is_some_and(|end| end <= row);
        let numbered = u64::from(self.x.rows()) * u64::from(cols) <= u64::from(CLEAN);
        let (flags, tag) = (self.flag.0.len / 4, self.flag.1);
        ensure("scan", inside && numbered && u64::from(tag) < flags, || {
            format!("columns {first} + {cols} of [{}, {row}], flag {tag} of {flags}", self.x.rows())
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (offset, cols) = self.part;
        let params =
            ScanParams { offset, cols, row: self.x.cols(), count: self.rows.1 as u32, tag: self.flag.1, pad: [0; 3] };
        let test = match self.test {
            Test::NonFinite => TEST_NON_FINITE,
            Test::PositiveLogGate => TEST_POSITIVE,
        };
        let bindings = vec![self.rows.0.clone(), self.x.range(), self.flag.0.clone()];
        let grid = [cols.div_ceil(64), self.x.rows(), 1];
        Ok(vec![launch("scan", caps, SCAN.id, vec![test], &params, bindings, grid)?])
    }
}

struct Watch {
    tensor: String,
    first: u32,
    cols: u32,
    test: Test,
}

/// The flags of a recorded list, and what each of them stands for.
///
/// [`Checked::scan`] while the list is recorded, [`Checked::reset`] before each submission, [`Checked::findings`] or
/// [`Checked::verify`] after it.
pub struct Checked {
    flags: BufferRange,
    watches: Vec<Watch>,
}

impl Checked {
    /// Room for `most` scans, all clean.
    ///
    /// # Errors
    /// [`OpError::Shape`] for none, or what the device says.
    pub fn new(device: &dyn Device, most: u32) -> Result<Self, OpError> {
        ensure("checked", most > 0, || "no room for a scan".to_owned())?;
        let flags = device.alloc("flags", align_up(u64::from(most) * 4), BufferUse::Storage)?;
        let checked = Self { flags: flags.range(0, u64::from(most) * 4)?, watches: Vec::new() };
        checked.reset(device)?;
        Ok(checked)
    }

    /// Records a scan of columns `part.0 .. part.0 + part.1` of `x`, called `tensor` in findings.
    ///
    /// # Errors
    /// [`OpError::Shape`] if there is no more room or the columns do not fit, or what the recorder says.
    #[allow(clippy::too_many_arguments, reason = "where it is recorded, and what is looked at")]
    pub fn scan(
        &mut self,
        recorder: &mut dyn Recorder,
        caps: &Caps,
        rows: (&BufferRange, usize),
        tensor: impl Into<String>,
        x: &Tensor,
        part: (u32, u32),
        test: Test,
    ) -> Result<(), OpError> {
        let tag = self.watches.len() as u32;
        Scan { rows, x, part, test, flag: (&self.flags, tag) }.record(recorder, caps)?;
        self.watches.push(Watch { tensor: tensor.into(), first: part.0, cols: part.1, test });
        Ok(())
    }

    /// Cleans the flags. Nothing that is submitted may still use them.
    ///
    /// # Errors
    /// What the device says.
    pub fn reset(&self, device: &dyn Device) -> Result<(), OpError> {
        Ok(device.write(&self.flags, &vec![0xff; self.flags.len as usize])?)
    }

    /// What the scans found, in the order in which they were recorded: the first is nearest to the cause.
    ///
    /// # Errors
    /// What the device says.
    pub fn findings(&self, device: &dyn Device, after: &[Ticket]) -> Result<Vec<Finding>, OpError> {
        let bytes = device.read(&self.flags, after)?.wait()?;
        let flags = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let found = flags.zip(&self.watches).filter(|(flag, _)| *flag != CLEAN);
        Ok(found.map(|(flag, watch)| watch.finding(flag)).collect())
    }

    /// Fails with the first finding.
    ///
    /// # Errors
    /// [`OpError::Value`], or what the device says.
    pub fn verify(&self, device: &dyn Device, after: &[Ticket]) -> Result<(), OpError> {
        match self.findings(device, after)?.into_iter().next() {
            Some(finding) => Err(finding.into()),
            None => Ok(()),
        }
    }
}

impl Watch {
    fn finding(&self, flag: u32) -> Finding {
        let (tensor, row, col) = (self.tensor.clone(), flag / self.cols, self.first + flag % self.cols);
        match self.test {
            Test::NonFinite => Finding::NonFinite { tensor, row, col },
            Test::PositiveLogGate => Finding::PositiveLogGate { tensor, row, col },
        }
    }
}
