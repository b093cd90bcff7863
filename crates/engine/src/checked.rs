//! Checked mode: every intermediate result of a pass is looked through while it runs.

use seam_device::{BufferRange, Caps, Device, Recorder};
use seam_model::Probe;
use seam_ops::header::{LOGITS, ROWS};
use seam_ops::{Checked, OpError, Tensor, Test};

/// Scans that a layer may ask for.
const SCANS_OF_A_LAYER: u32 = 8;

/// Records a scan of whatever a stack shows: nothing may be infinite or no number, and no log-gate above 0.
pub(crate) struct ScanProbe<'a> {
    checked: Checked,
    caps: &'a Caps,
    tables: &'a BufferRange,
    /// Columns of log-gates in a row of gates.
    log_gates: u32,
}

impl<'a> ScanProbe<'a> {
    /// For a stack of so many layers.
    pub(crate) fn new(
        device: &'a dyn Device,
        tables: &'a BufferRange,
        layers: usize,
        log_gates: u32,
    ) -> Result<Self, OpError> {
        let most = (layers as u32 + 2).saturating_mul(SCANS_OF_A_LAYER);
        Ok(Self { checked: Checked::new(device, most)?, caps: device.caps(), tables, log_gates })
    }

    /// The flags of what was recorded.
    pub(crate) fn finish(self) -> Checked {
        self.checked
    }
}

impl Probe for ScanProbe<'_> {
    fn tap(&mut self, recorder: &mut dyn Recorder, name: &str, x: &Tensor) -> Result<(), OpError> {
        let rows = (self.tables, if name == "final_norm" { LOGITS } else { ROWS });
        self.checked.scan(recorder, self.caps, rows, name, x, (0, x.cols()), Test::NonFinite)?;
        if name.ends_with(".gates") && self.log_gates > 0 {
            let gates = (0, self.log_gates);
            self.checked.scan(recorder, self.caps, rows, name, x, gates, Test::PositiveLogGate)?;
        }
        Ok(())
    }
}
