//! Which pairs of rows and experts are multiplied together.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::experts::{EXPERT_SORT, FEW_PAIRS, SortParams, TILE_PAIRS, group_words, most_tiles};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// How the pairs of a pass are grouped for the products of their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Not at all: pairs are so few that hardly two have the same expert.
    Alone,
    /// Sorted, in tiles of up to 8.
    Few,
    /// Sorted, in tiles of up to 32.
    Tiles,
}

impl Grouping {
    /// The choice for a pass of at most `rows` rows that go to `top` of `experts` experts each.
    #[must_use]
    pub fn of(rows: u32, top: u32, experts: u32) -> Self {
        let pairs = u64::from(rows) * u64::from(top);
        if 2 * pairs <= u64::from(experts) {
            Self::Alone
        } else if pairs <= u64::from(FEW_PAIRS) * u64::from(experts) {
            Self::Few
        } else {
            Self::Tiles
        }
    }

    /// Most pairs of a tile.
    #[must_use]
    pub fn tile(self) -> u32 {
        match self {
            Self::Alone => 1,
            Self::Few => FEW_PAIRS,
            Self::Tiles => TILE_PAIRS,
        }
    }

    /// Tiles of at most `pairs` pairs.
    #[must_use]
    pub fn tiles(self, pairs: u32, experts: u32) -> u32 {
        match self {
            Self::Alone => pairs,
            _ => most_tiles(pairs, experts, self.tile()),
        }
    }
}

/// Words that [`ExpertSort`] writes at most, whatever the pass.
#[must_use]
pub fn expert_words(pairs: u32, experts: u32) -> u64 {
    group_words(pairs, experts, FEW_PAIRS)
}

/// Puts the pairs of a pass in the order of their experts, in tiles; nothing where they stay alone.
#[derive(Debug)]
pub struct ExpertSort<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// `[rows, k]` u32: what the router chose.
    pub index: &'a Tensor,
    /// Experts.
    pub experts: u32,
    /// [`expert_words`] words.
    pub groups: &'a BufferRange,
}

impl Operation for ExpertSort<'_> {
    fn check(&self) -> Result<(), OpError> {
        let pairs = u64::from(self.index.rows()) * u64::from(self.index.cols());
        let words = u32::try_from(pairs).ok().map(|pairs| expert_words(pairs, self.experts));
        let fits = words.is_some_and(|words| words <= u64::from(u32::MAX) && words * 4 <= self.groups.len);
        ensure("expert_sort", fits && self.experts > 0, || {
            format!("{pairs} pairs of {} experts in {} bytes", self.experts, self.groups.len)
        })
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (rows, top) = (self.index.rows(), self.index.cols());
        let grouping = Grouping::of(rows, top, self.experts);
        if grouping == Grouping::Alone {
            return Ok(Vec::new());
        }
        let params = SortParams { experts: self.experts, top, tile: grouping.tile(), pairs: rows * top };
        let bindings = vec![self.tables.clone(), self.index.range(), self.groups.clone()];
        Ok(vec![launch("expert_sort", caps, EXPERT_SORT.id, Vec::new(), &params, bindings, [self.experts, 1, 1])?])
    }
}
