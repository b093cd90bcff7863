//! Writing fresh keys and values.

use seam_device::{BufferRange, Caps, Command, DType, Precision};
use seam_kernels::attention_mma::HEAD_SIZES;
use seam_kernels::kv_write::{KV_WRITE, KV_WRITE_BF16, KvParams, NORM_CENTRED, NORM_NONE, NORM_PLAIN};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// What a device stores keys and values of heads of `head` elements as: bf16 if its precision is that and the attention on
/// tensor cores has the head size, else f32.
#[must_use]
pub fn kv_dtype(caps: &Caps, head: u32) -> DType {
    if caps.precision == Precision::Bf16 && HEAD_SIZES.contains(&head) { DType::BF16 } else { DType::F32 }
}

/// The norm of keys, per head.
#[derive(Clone, Copy, Debug)]
pub enum KeyNorm<'a> {
    /// None.
    None,
    /// With the weights `[1, head]`.
    Plain(&'a Tensor),
    /// With the weights `1 + w`, w `[1, head]`.
    Centred(&'a Tensor),
}

impl<'a> KeyNorm<'a> {
    fn weight(self) -> Option<&'a Tensor> {
        match self {
            Self::None => None,
            Self::Plain(weight) | Self::Centred(weight) => Some(weight),
        }
    }
}

/// Normalises and rotates the keys of fresh rows and writes them, with the values, into one private KV slab.
#[derive(Debug)]
pub struct KvWrite<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, kv_heads·head]`.
    pub k: &'a Tensor,
    /// `[rows, kv_heads·head]`.
    pub v: &'a Tensor,
    /// Norm of the keys.
    pub norm: KeyNorm<'a>,
    /// Head size.
    pub head: u32,
    /// Rotated dimensions; 0 for none.
    pub rot: u32,
    /// Epsilon of the norm.
    pub eps: f32,
    /// Number of the slab, and the slab.
    pub slab: (u32, BufferRange),
    /// What the slab stores: f32, or bf16 rounded to nearest even.
    pub dtype: DType,
}

impl Operation for KvWrite<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (width, head) = (self.k.cols(), self.head);
        let fits = head > 0
            && width.is_multiple_of(head)
            && self.norm.weight().is_none_or(|weight| weight.cols() == head)
            && self.v.cols() == width
            && self.rot <= head
            && self.rot.is_multiple_of(2)
            && matches!(self.dtype, DType::F32 | DType::BF16)
            && self.slab.1.len.is_multiple_of(u64::from(width) * 2 * self.dtype.size() as u64);
        ensure("kv_write", fits, || {
            format!(
                "rows of {width} and {} in heads of {head}, {} rotated, a slab of {} bytes of {}",
                self.v.cols(),
                self.rot,
                self.slab.1.len,
                self.dtype
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let head = self.head;
        let heads = self.k.cols() / head;
        let norm = match self.norm {
            KeyNorm::None => NORM_NONE,
            KeyNorm::Plain(_) => NORM_PLAIN,
            KeyNorm::Centred(_) => NORM_CENTRED,
        };
        let params = KvParams { heads, head, rot: self.rot, slab: self.slab.0, eps: self.eps, norm, pad: [0; 2] };
        // Without weights something must be bound that is only read.
        let weight = self.norm.weight().unwrap_or(self.k);
        let bindings = vec![self.tables.clone(), self.k.range(), self.v.range(), weight.range(), self.slab.1.clone()];
        let grid = [heads, self.k.rows(), 1];
        let kernel = if self.dtype == DType::BF16 { &KV_WRITE_BF16 } else { &KV_WRITE };
        Ok(vec![launch("kv_write", caps, kernel.id, Vec::new(), &params, bindings, grid)?])
    }
}
