//! Attention over spans.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::attention::{ATTENTION, AttentionParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// Attention of every row over its spans, in as many launches as the KV slabs need.
#[derive(Debug)]
pub struct SpanAttention<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, heads·head]`, normalised, not rotated.
    pub q: &'a Tensor,
    /// `[rows, heads·2]`: running maximum and sum of weights.
    pub stats: &'a Tensor,
    /// `[rows, heads·head]`.
    pub out: &'a Tensor,
    /// Query heads, KV heads.
    pub heads: (u32, u32),
    /// Head size.
    pub head: u32,
    /// Rotated dimensions.
    pub rot: u32,
    /// The slabs of each launch, in the order of the pass's attention launches.
    pub launches: &'a [[BufferRange; 4]],
}

impl Operation for SpanAttention<'_> {
    fn check(&self) -> Result<(), OpError> {
        let (heads, kv_heads) = self.heads;
        let width = heads * self.head;
        let fits = kv_heads > 0
            && heads.is_multiple_of(kv_heads)
            && self.q.cols() == width
            && self.out.cols() == width
            && self.stats.cols() == 2 * heads
            && self.rot <= self.head
            && !self.launches.is_empty();
        ensure("attention", fits, || {
            format!(
                "{heads} heads over {kv_heads} of {}, rows of {}, {} and {}, {} launches",
                self.head,
                self.q.cols(),
                self.out.cols(),
                self.stats.cols(),
                self.launches.len()
            )
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (heads, kv_heads) = self.heads;
        let last = self.launches.len() - 1;
        let one = |(i, slabs): (usize, &[BufferRange; 4])| {
            let params = AttentionParams {
                heads,
                kv_heads,
                rot: self.rot,
                launch: i as u32,
                first: u32::from(i == 0),
                last: u32::from(i == last),
                scale: (1.0 / f64::from(self.head).sqrt()) as f32,
                pad: 0,
            };
            let mut bindings = vec![self.tables.clone(), self.q.range(), self.stats.range(), self.out.range()];
            bindings.extend(slabs.iter().cloned());
            let grid = [heads, self.q.rows(), 1];
            launch("attention", caps, ATTENTION.id, vec![self.head], &params, bindings, grid)
        };
        self.launches.iter().enumerate().map(one).collect()
    }
}
