//! The static side of a pass: what a recorded list depends on.

/// A convolution launch: the slabs its runs read their history from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvLaunch {
    /// Upper bound of its rows.
    pub rows: u32,
    /// Private slab.
    pub private: Option<u32>,
    /// Shared slabs, at most [`seam_kernels::tables::SHARED_SLABS`].
    pub shared: Vec<u32>,
}

/// A launch that writes conv tails.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TailLaunch {
    /// Upper bound of its tails.
    pub tails: u32,
    /// Private slab that is written.
    pub private: u32,
    /// Shared slabs.
    pub shared: Vec<u32>,
}

/// A launch that walks chains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainLaunch {
    /// Upper bound of its chains.
    pub chains: u32,
    /// Whether any chain has operator columns.
    pub operator: bool,
    /// Private slab that holds the slots.
    pub private: u32,
    /// Shared slabs.
    pub shared: Vec<u32>,
}

/// An attention launch: the KV slabs it reads, by number (see [`super::SlabId::code`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttentionLaunch {
    /// KV slabs, at most [`seam_kernels::tables::KV_SLABS`].
    pub slabs: Vec<super::SlabId>,
}

/// Tiles of queries for the attention on tensor cores: upper bounds of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Query heads of a KV head.
    pub group: u32,
    /// Tiles of at most [`seam_kernels::tables::WIDE_TILE`] queries.
    pub wide: u32,
    /// Tiles of at most [`seam_kernels::tables::NARROW_TILE`] queries.
    pub narrow: u32,
}

/// What a recorded command list depends on. Passes of equal shape replay one list with other tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassShape {
    /// Upper bound of the rows.
    pub rows: u32,
    /// Upper bound of the rows that want logits; 0 if none does.
    pub logits: u32,
    /// Words of the tables, an upper bound.
    pub words: u32,
    /// Convolution launches.
    pub conv: Vec<ConvLaunch>,
    /// Tail launches.
    pub tails: Vec<TailLaunch>,
    /// Chain launches, in order.
    pub chains: Vec<ChainLaunch>,
    /// Upper bound of the chunks of the chains' runs.
    pub chunks: u32,
    /// Private KV slabs that are written.
    pub kv: Vec<u32>,
    /// Attention launches, in order.
    pub attention: Vec<AttentionLaunch>,
    /// Tiles of queries, if the pass was built with them.
    pub tiles: Option<Tiles>,
}

/// The next size that lists are recorded for: powers of two up to 16, then multiples of 16 up to 128, then of 64.
#[must_use]
pub(crate) fn bucket(n: u32) -> u32 {
    match n {
        0..=16 => n.next_power_of_two() * u32::from(n > 0),
        17..=128 => n.div_ceil(16) * 16,
        _ => n.div_ceil(64) * 64,
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn buckets_hold_what_they_are_for() {
        assert_eq!([0, 1, 3, 16, 17, 128, 129].map(bucket), [0, 1, 4, 16, 32, 128, 192]);
        for n in 1..2000 {
            assert!(bucket(n) >= n && bucket(bucket(n)) == bucket(n), "{n}");
        }
    }
}
