//! Activations: row-major f32 matrices in device memory.

use seam_device::{BufferRange, BufferUse, Device, HostBytes};

use crate::error::OpError;

/// A contiguous `[rows, cols]` f32 matrix. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    range: BufferRange,
    rows: u32,
    cols: u32,
}

impl Tensor {
    /// New zeroed memory.
    ///
    /// # Errors
    /// [`OpError::Shape`] for an empty or overlarge shape, or what the device says.
    pub fn new(device: &dyn Device, label: &str, rows: u32, cols: u32) -> Result<Self, OpError> {
        let bytes = u64::from(rows) * u64::from(cols) * 4;
        if bytes == 0 || bytes > device.caps().max_binding {
            return Err(OpError::shape(
                "tensor",
                format!("{label} [{rows}, {cols}]: {bytes} bytes, a binding takes {}", device.caps().max_binding),
            ));
        }
        Ok(Self { range: device.alloc(label, bytes, BufferUse::Storage)?.all(), rows, cols })
    }

    /// Constant values, row by row.
    ///
    /// # Errors
    /// [`OpError::Shape`] if there are not `rows·cols` values, or what the device says.
    pub fn constant(device: &dyn Device, label: &str, rows: u32, cols: u32, values: &[f32]) -> Result<Self, OpError> {
        if values.len() as u64 != u64::from(rows) * u64::from(cols) || values.is_empty() {
            return Err(OpError::shape("tensor", format!("{label} [{rows}, {cols}] of {} values", values.len())));
        }
        let bytes = HostBytes::from_vec(bytemuck::cast_slice(values).to_vec());
        Ok(Self { range: device.constant(label, bytes)?.all(), rows, cols })
    }

    /// The first `rows` rows (at most what there are).
    #[must_use]
    pub fn first(&self, rows: u32) -> Self {
        let rows = rows.min(self.rows);
        let mut range = self.range.clone();
        range.len = u64::from(rows) * u64::from(self.cols) * 4;
        Self { range, rows, cols: self.cols }
    }

    /// The start of its memory as a matrix of another shape.
    ///
    /// # Errors
    /// [`OpError::Shape`] for an empty shape, or one with more elements.
    pub fn reshape(&self, rows: u32, cols: u32) -> Result<Self, OpError> {
        let mut range = self.range.clone();
        range.len = u64::from(rows) * u64::from(cols) * 4;
        if range.len == 0 || range.len > self.range.len {
            let what = format!("[{rows}, {cols}] in the memory of [{}, {}]", self.rows, self.cols);
            return Err(OpError::shape("tensor", what));
        }
        Ok(Self { range, rows, cols })
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Columns.
    #[must_use]
    pub fn cols(&self) -> u32 {
        self.cols
    }

    /// Its memory.
    #[must_use]
    pub fn range(&self) -> BufferRange {
        self.range.clone()
    }
}
