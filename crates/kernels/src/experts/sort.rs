//! The pairs of each expert, in tiles.

use bytemuck::{Pod, Zeroable};
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::Args;

/// Words of a tile: its expert, its first place in the order, its pairs (0: nothing).
pub(super) const TILE_WORDS: usize = 3;

/// Parameters of [`EXPERT_SORT`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SortParams {
    /// Experts E.
    pub experts: u32,
    /// Experts k that a row goes to.
    pub top: u32,
    /// Most pairs of a tile.
    pub tile: u32,
    /// Most pairs of a pass: tiles stand behind as many words.
    pub pairs: u32,
}

/// Tiles that at most `pairs` pairs need, whatever their experts are: expert e has those from `before / tile + e` on, where
/// `before` counts the pairs of the experts before it.
#[must_use]
pub fn most_tiles(pairs: u32, experts: u32, tile: u32) -> u32 {
    pairs / tile + experts
}

/// Words that [`EXPERT_SORT`] writes.
#[must_use]
pub fn group_words(pairs: u32, experts: u32, tile: u32) -> u64 {
    u64::from(pairs) + TILE_WORDS as u64 * u64::from(most_tiles(pairs, experts, tile))
}

/// Puts the pairs of a pass in the order of their experts, those of one expert in their own order, and cuts each expert's
/// pairs into tiles.
///
/// `index` is `[rows, k]` u32. `groups` holds the order (`pairs` words), then tiles of three words: expert, first place in
/// the order, number of pairs. Grid: x = experts.
pub static EXPERT_SORT: Kernel = Kernel {
    id: KernelId(33),
    name: "expert_sort",
    wgsl: Some("experts/expert_sort.wgsl"),
    cuda: Some("experts/expert_sort.cu"),
    twin: Some(sort),
    bindings: &[Binding::read("tables"), Binding::read("index"), Binding::write("groups")],
    params: size_of::<SortParams>(),
    workgroup: Workgroup::new(256, 2048),
    constants: &[],
};

fn sort(args: &mut Args<'_>) {
    let p: SortParams = args.params();
    let (t, index, groups) = (View(args.words(0)), args.words(1), args.take_words(2));
    let pairs = t.header(ROWS) * p.top as usize;
    let (order, tiles) = groups.split_at_mut(p.pairs as usize);
    let mut before = 0;
    for expert in 0..p.experts {
        let own = (0..pairs).filter(|&i| index[i] == expert);
        let count = order[before..].iter_mut().zip(own).map(|(place, pair)| *place = pair as u32).count() as u32;
        let (first, tile) = (before as u32, p.tile);
        for (i, t) in (first / tile + expert..=(first + count) / tile + expert).enumerate() {
            let at = i as u32 * tile;
            let here = count.saturating_sub(at).min(tile);
            tiles[t as usize * TILE_WORDS..][..TILE_WORDS].copy_from_slice(&[expert, first + at, here]);
        }
        before += count as usize;
    }
}
