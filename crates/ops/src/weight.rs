//! Weights: `[n, k]` matrices in one or more shards of rows.

use seam_device::{Buffer, DType, Device, HostBytes, Scales};

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
        Scales::count(n, k, self.shift)
    }

    /// Those of one matrix `[n, k]` with a scale for `2^shift` rows, `shift` being at most what it is.
    fn finer(&self, n: u32, k: u32, shift: u32) -> Self {
        let columns = k.div_ceil(Scales::COLUMNS) as usize;
        let row = |i: u32| (i << shift >> self.shift) as usize * columns;
        let rows = (0..n.div_ceil(1 << shift)).map(row);
        let values = rows.flat_map(|at| self.values.iter().skip(at).take(columns).copied()).collect();
        Self { shift, values }
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
    /// FP8: `[⌈count / 2^shift⌉, ⌈k / 128⌉]` f32.
    pub scales: Option<Buffer>,
}

/// A `[n, k]` weight, bf16, f32 or FP8, split by rows where a shard would pass the device's binding limit.
#[derive(Clone, Debug)]
pub struct Weight {
    name: String,
    dtype: DType,
    n: u32,
    k: u32,
    shift: u32,
    shards: Vec<Shard>,
}

impl Weight {
    /// Puts `bytes` (`[n, k]`, row-major) on the device; FP8 with the scales of its blocks. A CPU uses the bytes in place.
    ///
    /// # Errors
    /// [`OpError::Shape`] if the bytes or scales do not fit `[n, k]`, or if one row passes the binding limit; otherwise what the
    /// device says.
    pub fn load(
        device: &dyn Device,
        name: &str,
        dtype: DType,
        n: u32,
        k: u32,
        bytes: &HostBytes,
        scales: Option<&BlockScales>,
    ) -> Result<Self, OpError> {
        let row = u64::from(k) * dtype.size() as u64;
        if n == 0 || k == 0 || bytes.len() as u64 != row * u64::from(n) {
            return Err(OpError::shape("weight", format!("{name} [{n}, {k}] {dtype} has {} bytes", bytes.len())));
        }
        let scaled = match (dtype, scales) {
            (DType::F8E4M3, Some(s)) => s.shift < 32 && s.values.len() as u64 == s.blocks(n, k),
            (DType::F8E4M3, None) | (_, Some(_)) => false,
            _ => true,
        };
        if !scaled {
            let what = format!("{name} [{n}, {k}] {dtype} has {} scales", scales.map_or(0, |s| s.values.len()));
            return Err(OpError::shape("weight", what));
        }
        let limit = device.caps().max_binding.min(device.caps().max_buffer);
        let fit = u32::try_from(limit / row).unwrap_or(u32::MAX);
        if fit == 0 {
            return Err(OpError::shape("weight", format!("{name}: a row of {row} bytes passes the limit {limit}")));
        }
        // Shards begin at whole blocks, which become smaller where one does not fit.
        let scales = scales.map(|s| s.finer(n, k, s.shift.min(fit.ilog2())));
        let block = scales.as_ref().map_or(64, |s| 64.max(1 << s.shift));
        let whole = if fit >= block { fit / block * block } else { fit >> fit.ilog2() << fit.ilog2() };
        let per_shard = if fit >= n { n } else { whole };
        let mut shards = Vec::new();
        for first in (0..n).step_by(per_shard as usize) {
            let count = per_shard.min(n - first);
            let from = (u64::from(first) * row) as usize;
            let part = bytes
                .slice(from..from + (u64::from(count) * row) as usize)
                .ok_or_else(|| OpError::shape("weight", format!("{name}: rows {first}+{count} are missing")))?;
            let scales = scales.as_ref().map(|s| {
                let columns = k.div_ceil(Scales::COLUMNS) as usize;
                let from = (first >> s.shift) as usize * columns;
                let values: Vec<f32> = s.values.iter().skip(from).take(s.blocks(count, k) as usize).copied().collect();
                device.constant(name, HostBytes::from_vec(bytemuck::cast_slice(&values).to_vec()))
            });
            shards.push(Shard { first, count, buffer: device.constant(name, part)?, scales: scales.transpose()? });
        }
        let shift = scales.map_or(0, |s| s.shift);
        Ok(Self { name: name.to_owned(), dtype, n, k, shift, shards })
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

    /// FP8: a scale holds for `2^shift` rows.
    #[must_use]
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The shards, in the order of their rows.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }
}
