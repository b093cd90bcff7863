//! Attention over spans.

use bytemuck::Pod;
use seam_device::{BufferRange, Caps, Command, DType};
use seam_kernels::attention::{ATTENTION, AttentionParams};
use seam_kernels::attention_mma::{
    ATTENTION_JOIN, ATTENTION_MMA, ATTENTION_PART, MAX_PARTS, PART_HEAD_SIZES, PartParams,
};
use seam_kernels::tables::{NARROW_TILE, WIDE_TILE};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::pass::Tiles;
use crate::tensor::Tensor;

/// Blocks that fill a chip: two for each of the 132 multiprocessors of Hopper's largest, rounded down to a power of two so
/// that few parts are not cut unevenly. More would only be more to join.
const BLOCKS: u32 = 256;

/// The same for the f32 form, of whose blocks four share a multiprocessor.
const F32_BLOCKS: u32 = 512;

/// Rows of [`Parts`] that let any pass fill a chip: with two KV heads, 256 blocks of 8 rows each are 1024 rows of parts.
pub const PART_ROWS: u32 = 1024;

/// Whether attention on a device with these capabilities cuts the keys of few rows into parts, so that it wants
/// [`SpanAttention::parts`].
#[must_use]
pub fn splits_keys(caps: &Caps, dtype: DType) -> bool {
    let kernel = if dtype == DType::BF16 { &ATTENTION_MMA } else { &ATTENTION_PART };
    caps.kernels.contains(kernel.id) && caps.kernels.contains(ATTENTION_JOIN.id)
}

/// Memory for the results of parts of the keys. How many parts there are follows from its rows, at most.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// `[any, heads·head]`.
    pub out: &'a Tensor,
    /// `[as many, heads·2]`.
    pub stats: &'a Tensor,
}

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
    /// Rotated dimensions; 0 for none.
    pub rot: u32,
    /// What q·k is multiplied by.
    pub scale: f32,
    /// The slabs of each launch, in the order of the pass's attention launches.
    pub launches: &'a [[BufferRange; 4]],
    /// What the slabs store: f32, or bf16 for tensor cores.
    pub dtype: DType,
    /// Tiles of the pass; bf16 needs them.
    pub tiles: Option<Tiles>,
    /// Where results of parts go; without it keys are not cut into parts.
    pub parts: Option<Parts<'a>>,
}

impl SpanAttention<'_> {
    /// Parts that the keys are cut into, so that as many blocks of `blocks` keep the chip busy as `fill` says: an upper
    /// bound from sizes of the pass, never from its data.
    fn count(&self, fill: u32, blocks: u32) -> u32 {
        let room = self.parts.map_or(1, |parts| parts.out.rows() / self.q.rows());
        (fill / blocks.max(1)).min(room).clamp(1, MAX_PARTS)
    }

    fn params(&self, i: usize, parts: u32) -> PartParams {
        PartParams {
            heads: self.heads.0,
            kv_heads: self.heads.1,
            rot: self.rot,
            launch: i as u32,
            first: u32::from(i == 0),
            last: u32::from(i + 1 == self.launches.len()),
            scale: self.scale,
            parts,
            rows: self.q.rows(),
            pad: [0; 3],
        }
    }

    /// On tensor cores: the wide tiles and the narrow ones of each launch, then the joining of their parts.
    fn tiled(&self, caps: &Caps, tiles: Tiles) -> Result<Vec<Command>, OpError> {
        let kv_heads = self.heads.1;
        let parts = self.count(BLOCKS, (tiles.wide + tiles.narrow).saturating_mul(kv_heads));
        let cut = self.parts.filter(|_| parts > 1);
        let mut commands = Vec::new();
        for (i, slabs) in self.launches.iter().enumerate() {
            let params = self.params(i, parts);
            let results = cut.map_or((self.stats, self.out), |cut| (cut.stats, cut.out));
            for (tile, count) in [(WIDE_TILE, tiles.wide), (NARROW_TILE, tiles.narrow)] {
                if count > 0 {
                    let constants = vec![self.head, tile as u32];
                    let grid = [count, kv_heads, parts];
                    commands.push(self.reading(caps, ATTENTION_MMA.id, constants, &params, results, slabs, grid)?);
                }
            }
            if let Some(cut) = cut {
                commands.push(self.join(caps, &params, cut)?);
            }
        }
        Ok(commands)
    }

    /// Few rows in f32: the parts of each launch, then their joining.
    fn cut(&self, caps: &Caps, parts: u32, cut: Parts<'_>) -> Result<Vec<Command>, OpError> {
        let mut commands = Vec::new();
        for (i, slabs) in self.launches.iter().enumerate() {
            let params = self.params(i, parts);
            let (constants, grid) = (vec![self.head], [self.heads.1, self.q.rows(), parts]);
            let results = (cut.stats, cut.out);
            commands.push(self.reading(caps, ATTENTION_PART.id, constants, &params, results, slabs, grid)?);
            commands.push(self.join(caps, &params, cut)?);
        }
        Ok(commands)
    }

    fn join(&self, caps: &Caps, params: &PartParams, cut: Parts<'_>) -> Result<Command, OpError> {
        let parts = [self.tables.clone(), cut.stats.range(), cut.out.range()];
        let bindings = parts.into_iter().chain([self.stats.range(), self.out.range()]).collect();
        let grid = [self.heads.0, self.q.rows(), 1];
        launch("attention", caps, ATTENTION_JOIN.id, vec![self.head], params, bindings, grid)
    }

    /// A launch that reads KV slabs.
    #[expect(clippy::too_many_arguments, reason = "what differs between two kernels with the same bindings")]
    fn reading<P: Pod>(
        &self,
        caps: &Caps,
        kernel: seam_device::KernelId,
        constants: Vec<u32>,
        params: &P,
        (stats, out): (&Tensor, &Tensor),
        slabs: &[BufferRange; 4],
        grid: [u32; 3],
    ) -> Result<Command, OpError> {
        let mut bindings = vec![self.tables.clone(), self.q.range(), stats.range(), out.range()];
        bindings.extend(slabs.iter().cloned());
        launch("attention", caps, kernel, constants, params, bindings, grid)
    }
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
            && self.rot.is_multiple_of(2)
            && self.scale.is_finite()
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
        })?;
        let tiles = match self.dtype {
            DType::F32 => true,
            DType::BF16 => self.tiles.is_some_and(|tiles| tiles.group * kv_heads == heads),
            _ => false,
        };
        ensure("attention", tiles, || format!("{heads} heads over {kv_heads} of {}, {:?}", self.dtype, self.tiles))?;
        let parts = self.parts.is_none_or(|parts| {
            parts.out.cols() == width && parts.stats.cols() == 2 * heads && parts.out.rows() == parts.stats.rows()
        });
        ensure("attention", parts, || format!("rows of {width} for {heads} heads, parts of {:?}", self.parts))
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        if let (DType::BF16, Some(tiles)) = (self.dtype, self.tiles) {
            return self.tiled(caps, tiles);
        }
        let (heads, kv_heads) = self.heads;
        let parts = self.count(F32_BLOCKS, self.q.rows().saturating_mul(kv_heads));
        if let (true, Some(cut)) = (splits_keys(caps, self.dtype) && PART_HEAD_SIZES.contains(&self.head), self.parts)
            && parts > 1
        {
            return self.cut(caps, parts, cut);
        }
        let last = self.launches.len() - 1;
        let one = |(i, slabs): (usize, &[BufferRange; 4])| {
            let params = AttentionParams {
                heads,
                kv_heads,
                rot: self.rot,
                launch: i as u32,
                first: u32::from(i == 0),
                last: u32::from(i == last),
                scale: self.scale,
                pad: 0,
            };
            let grid = [heads, self.q.rows(), 1];
            self.reading(caps, ATTENTION.id, vec![self.head], &params, (self.stats, self.out), slabs, grid)
        };
        self.launches.iter().enumerate().map(one).collect()
    }
}
