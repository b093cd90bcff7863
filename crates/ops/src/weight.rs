//! Weights: `[n, k]` matrices in one or more shards of rows.

use seam_device::{Buffer, DType, Device, HostBytes};

use seam_kernels::weights::{SCALE_COLUMNS, WEIGHT_BF16, WEIGHT_F32, WEIGHT_FP8};

use crate::error::OpError;

/// What the blocks of an FP8 matrix, or of several that lie behind each other, are multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockScales {
    /// A scale holds for `2^shift` rows and 128 columns.
    pub shift: u32,
    /// `[matrices, ⌈n / 2^shift⌉, ⌈k / 128⌉]`.
    pub values: Vec<f32>,
}

impl BlockScales {
    /// Blocks of a matrix `[n, k]`.
    #[must_use]
    pub fn blocks(&self, n: u32, k: u32) -> u64 {
        let rows = u64::from(n).div_ceil(1 << self.shift.min(31));
        rows * u64::from(k).div_ceil(SCALE_COLUMNS as u64)
    }
}

/// How kernels call weights of a dtype.
pub(crate) fn weight_constant(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F32 => Some(WEIGHT_F32),
        DType::BF16 => Some(WEIGHT_BF16),
        DType::F8E4M3 => Some(WEIGHT_FP8),
        _ => None,
    }
}

/// Rows `first..first+count` of a weight, in a buffer of their own.
#[derive(Clone, Debug)]
pub struct Shard {
    /// First row.
    pub first: u32,
    /// Rows.
    pub count: u32,
    /// `[count, k]`.
    pub buffer: Buffer,
}

/// A `[n, k]` weight, bf16 or f32, split by rows where a shard would pass the device's binding limit.
#[derive(Clone, Debug)]
pub struct Weight {
    name: String,
    dtype: DType,
    n: u32,
    k: u32,
    shards: Vec<Shard>,
}

impl Weight {
    /// Puts `bytes` (`[n, k]`, row-major) on the device. A CPU uses them in place.
    ///
    /// # Errors
    /// [`OpError::Shape`] if the bytes do not fit `[n, k]`, or if one row passes the binding limit; otherwise what the
    /// device says.
    pub fn load(
        device: &dyn Device,
        name: &str,
        dtype: DType,
        n: u32,
        k: u32,
        bytes: &HostBytes,
    ) -> Result<Self, OpError> {
        let row = u64::from(k) * dtype.size() as u64;
        if n == 0 || k == 0 || bytes.len() as u64 != row * u64::from(n) {
            return Err(OpError::shape("weight", format!("{name} [{n}, {k}] {dtype} has {} bytes", bytes.len())));
        }
        let limit = device.caps().max_binding.min(device.caps().max_buffer);
        let fit = u32::try_from(limit / row).unwrap_or(u32::MAX);
        if fit == 0 {
            return Err(OpError::shape("weight", format!("{name}: a row of {row} bytes passes the limit {limit}")));
        }
        let per_shard = if fit >= n { n } else { (fit / 64 * 64).max(fit.min(64)) };
        let mut shards = Vec::new();
        for first in (0..n).step_by(per_shard as usize) {
            let count = per_shard.min(n - first);
            let from = (u64::from(first) * row) as usize;
            let part = bytes
                .slice(from..from + (u64::from(count) * row) as usize)
                .ok_or_else(|| OpError::shape("weight", format!("{name}: rows {first}+{count} are missing")))?;
            shards.push(Shard { first, count, buffer: device.constant(name, part)? });
        }
        Ok(Self { name: name.to_owned(), dtype, n, k, shards })
    }

    /// The tensor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// dtype of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Rows: output features.
    #[must_use]
    pub fn n(&self) -> u32 {
        self.n
    }

    /// Columns: input features.
    #[must_use]
    pub fn k(&self) -> u32 {
        self.k
    }

    /// The shards, in the order of their rows.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }
}
