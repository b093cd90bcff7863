//! Weights of experts: `[experts, n, k]`, in one or more shards of experts.

use seam_device::{Buffer, DType, Device, HostBytes};

use crate::error::OpError;
use crate::weight::BlockScales;

/// Experts `first..first + count`, in a buffer of their own.
#[derive(Clone, Debug)]
pub struct ExpertShard {
    /// First expert.
    pub first: u32,
    /// Experts.
    pub count: u32,
    /// `[count, n, k]`.
    pub buffer: Buffer,
    /// FP8: `[count, ⌈n / 2^shift⌉, ⌈k / 128⌉]` f32.
    pub scales: Option<Buffer>,
}

/// Where the bytes of experts lie.
#[derive(Clone, Copy, Debug)]
pub enum ExpertBytes<'a> {
    /// All experts one after the other.
    Whole(&'a HostBytes),
    /// For each expert pieces of its rows, in order.
    Pieces(&'a [Vec<HostBytes>]),
}

/// Weights `[experts, n, k]`, bf16, f32 or FP8, split by experts where a shard would pass the device's binding limit.
#[derive(Clone, Debug)]
pub struct ExpertWeight {
    name: String,
    dtype: DType,
    experts: u32,
    n: u32,
    k: u32,
    shift: u32,
    shards: Vec<ExpertShard>,
}

impl ExpertWeight {
    /// Puts weights `[experts, n, k]` on the device, row-major; FP8 with the scales of all experts' blocks.
    ///
    /// # Errors
    /// [`OpError::Shape`] if bytes or scales do not fit the shape, or if one expert passes the binding limit; otherwise what
    /// the device says.
    pub fn load(
        device: &dyn Device,
        name: &str,
        dtype: DType,
        [experts, n, k]: [u32; 3],
        bytes: ExpertBytes<'_>,
        scales: Option<&BlockScales>,
    ) -> Result<Self, OpError> {
        let bad =
            |what: String| OpError::shape("expert weight", format!("{name} [{experts}, {n}, {k}] {dtype}: {what}"));
        let one = u64::from(n) * u64::from(k) * dtype.size() as u64;
        let whole = match bytes {
            ExpertBytes::Whole(all) => all.len() as u64 == one * u64::from(experts),
            ExpertBytes::Pieces(each) => {
                let len = |pieces: &Vec<HostBytes>| pieces.iter().map(|p| p.len() as u64).sum::<u64>();
                each.len() as u64 == u64::from(experts) && each.iter().all(|pieces| len(pieces) == one)
            }
        };
        if one == 0 || experts == 0 || !whole {
            return Err(bad("the bytes do not fit".to_owned()));
        }
        let blocks = match (dtype, scales) {
            (DType::F8E4M3, Some(s)) => {
                let blocks = s.blocks(n, k);
                if s.values.len() as u64 != blocks * u64::from(experts) {
                    return Err(bad(format!("{} scales, needs {blocks} an expert", s.values.len())));
                }
                blocks as usize
            }
            (DType::BF16 | DType::F32, None) => 0,
            _ => return Err(bad("FP8 has scales, and nothing else is read or has any".to_owned())),
        };
        let limit = device.caps().max_binding.min(device.caps().max_buffer);
        let fit = u32::try_from(limit / one).unwrap_or(u32::MAX).min(experts);
        if fit == 0 {
            return Err(bad(format!("an expert of {one} bytes passes the limit {limit}")));
        }
        let mut shards = Vec::new();
        for first in (0..experts).step_by(fit as usize) {
            let count = fit.min(experts - first);
            let (from, to) = (first as usize, (first + count) as usize);
            let part = match bytes {
                ExpertBytes::Whole(all) => all.slice(from * one as usize..to * one as usize),
                ExpertBytes::Pieces(each) => each.get(from..to).map(|each| {
                    let pieces: Vec<&[u8]> = each.iter().flatten().map(HostBytes::as_slice).collect();
                    HostBytes::from_vec(pieces.concat())
                }),
            };
            let part = part.ok_or_else(|| bad(format!("experts {first}+{count} are missing")))?;
            let scales = scales
                .and_then(|s| s.values.get(from * blocks..to * blocks))
                .map(|s| device.constant(name, HostBytes::from_vec(bytemuck::cast_slice(s).to_vec())))
                .transpose()?;
            shards.push(ExpertShard { first, count, buffer: device.constant(name, part)?, scales });
        }
        let shift = scales.map_or(0, |s| s.shift);
        Ok(Self { name: name.to_owned(), dtype, experts, n, k, shift, shards })
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

    /// Experts.
    #[must_use]
    pub fn experts(&self) -> u32 {
        self.experts
    }

    /// Rows of an expert: output features.
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

    /// The shards, in the order of their experts.
    #[must_use]
    pub fn shards(&self) -> &[ExpertShard] {
        &self.shards
    }
}
