//! Looking at intermediate results, for checks against a reference and for drift reports.

use seam_device::{Buffer, BufferUse, Device, Recorder};
use seam_ops::{OpError, Tensor};

/// Sees named intermediate results while a pass is recorded.
pub trait Probe {
    /// `x` now holds the result called `name`.
    ///
    /// # Errors
    /// What recording a copy gives.
    fn tap(&mut self, recorder: &mut dyn Recorder, name: &str, x: &Tensor) -> Result<(), OpError>;
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn tap(&mut self, _: &mut dyn Recorder, _: &str, _: &Tensor) -> Result<(), OpError> {
        Ok(())
    }
}

/// Copies every result whose name the filter admits into memory of its own.
pub struct Capture<'a> {
    device: &'a dyn Device,
    filter: &'a dyn Fn(&str) -> bool,
    taken: Vec<(String, u32, Buffer)>,
}

impl<'a> Capture<'a> {
    /// Captures the results that `filter` admits.
    #[must_use]
    pub fn new(device: &'a dyn Device, filter: &'a dyn Fn(&str) -> bool) -> Self {
        Self { device, filter, taken: Vec::new() }
    }

    /// Reads the captured results after the pass ran: name, columns and values (`[rows, columns]`, with rows past the
    /// pass's count undefined).
    ///
    /// # Errors
    /// What reading gives.
    pub fn read(self) -> Result<Vec<(String, u32, Vec<f32>)>, OpError> {
        self.taken
            .into_iter()
            .map(|(name, cols, buffer)| {
                let bytes = self.device.read(&buffer.all(), &[])?.wait()?;
                Ok((name, cols, bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
            })
            .collect()
    }
}

impl Probe for Capture<'_> {
    fn tap(&mut self, recorder: &mut dyn Recorder, name: &str, x: &Tensor) -> Result<(), OpError> {
        if (self.filter)(name) {
            let buffer = self.device.alloc(name, x.range().len, BufferUse::Storage)?;
            recorder.copy(&x.range(), &buffer.all())?;
            self.taken.push((name.to_owned(), x.cols(), buffer));
        }
        Ok(())
    }
}
