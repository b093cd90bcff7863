//! Products of pairs with the weights of their experts.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use super::sort::{TILE_WORDS, most_tiles};
use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, dot};
use crate::weights::{WEIGHT, Widen};

/// Pairs of a tile of [`EXPERT_FEW`].
pub const FEW_PAIRS: u32 = 8;
/// Pairs of a tile of [`EXPERT_TILES`].
pub const TILE_PAIRS: u32 = 32;

/// Parameters of [`EXPERT_FEW`] and [`EXPERT_TILES`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ProductParams {
    /// Rows of an expert's weights.
    pub n: u32,
    /// Columns of A and of the weights, a multiple of 4.
    pub k: u32,
    /// Elements from row to row of A, a multiple of 4.
    pub lda: u32,
    /// Elements from row to row of C.
    pub ldc: u32,
    /// First column of C.
    pub column: u32,
    /// Experts that a row goes to.
    pub top: u32,
    /// Pairs of a row of A: `top` where A has a row for each row of the pass, 1 where it has one for each pair.
    pub share: u32,
    /// Experts in all.
    pub experts: u32,
    /// First expert of this shard of the weights.
    pub first: u32,
    /// Experts in this shard.
    pub count: u32,
    /// Pairs of a tile, as they were sorted.
    pub tile: u32,
    /// Most pairs of a pass, as they were sorted.
    pub pairs: u32,
    /// FP8: a scale holds for `2^shift` rows and 128 columns of an expert's weights. Otherwise 0.
    pub shift: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

const BINDINGS: &[Binding] = &[
    Binding::read("tables"),
    Binding::read("groups"),
    Binding::read("a"),
    Binding::read("w"),
    Binding::read("scales"),
    Binding::write("c"),
];

/// `C[pair] = A[pair / share] · W[expert of pair]ᵀ` for the pairs whose expert lies in the shard; other rows of C are left
/// alone. Up to 8 pairs and 8 columns a workgroup of 64.
///
/// A is f32; W is `[count, n, k]`, f32, bf16 or FP8 with `scales` `[count, ⌈n / 2^shift⌉, ⌈k / 128⌉]` f32; C is `[pairs, ≥ n]`.
/// GROUPED = 1: `groups` is what the sort wrote, grid y its tiles. GROUPED = 0: `groups` is the router's index, each pair is a
/// tile of its own, grid y = pairs. Grid x covers n by 8.
pub static EXPERT_FEW: Kernel = Kernel {
    id: KernelId(34),
    name: "expert_few",
    wgsl: Some("experts/expert_few.wgsl"),
    cuda: Some("experts/expert_few.cu"),
    twin: Some(few),
    bindings: BINDINGS,
    params: size_of::<ProductParams>(),
    workgroup: Workgroup::new(64, 2048),
    constants: &[WEIGHT, Constant { name: "GROUPED", legal: &[0, 1] }],
};

/// The same for many pairs an expert, always sorted: 4×4 results an invocation, 8×8 invocations a tile of 32 pairs. Grid: x
/// covers n by 32, y = tiles.
pub static EXPERT_TILES: Kernel = Kernel {
    id: KernelId(35),
    name: "expert_tiles",
    wgsl: Some("experts/expert_tiles.wgsl"),
    cuda: Some("experts/expert_tiles.cu"),
    twin: Some(tiles),
    bindings: BINDINGS,
    params: size_of::<ProductParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[WEIGHT],
};

fn few(args: &mut Args<'_>) {
    let grouped = args.constant(1) == 1;
    product(args, grouped);
}

fn tiles(args: &mut Args<'_>) {
    product(args, true);
}

/// Columns that a task computes: their weights are widened once for all pairs of a tile.
const COLUMNS: usize = 64;

fn product(args: &mut Args<'_>, grouped: bool) {
    let p: ProductParams = args.params();
    let weight = args.constant(0);
    let (t, groups, a, w, scales, c) =
        (View(args.words(0)), args.words(1), args.floats(2), args.words(3), args.floats(4), args.take(5));
    let [n, k, lda, ldc] = [p.n, p.k, p.lda, p.ldc].map(|x| x as usize);
    let pairs = t.header(ROWS) * p.top as usize;
    let alone: Vec<u32> = (0..pairs as u32).collect();
    // Each tile's expert and pairs.
    let work: Vec<(u32, &[u32])> = if grouped {
        let (order, tiles) = groups.split_at(p.pairs as usize);
        let used = most_tiles(pairs as u32, p.experts, p.tile) as usize;
        let tile = |t: &[u32]| (t[0], &order[t[1] as usize..][..t[2] as usize]);
        tiles.chunks_exact(TILE_WORDS).take(used).filter(|t| t[2] > 0).map(tile).collect()
    } else {
        alone.iter().map(|&pair| (groups[pair as usize], std::slice::from_ref(&alone[pair as usize]))).collect()
    };
    let tasks: Vec<(usize, &[u32], usize)> = work
        .into_iter()
        .filter_map(|(expert, pairs)| Some((expert.checked_sub(p.first)?, pairs)))
        .filter(|(local, _)| *local < p.count)
        .flat_map(|(local, pairs)| (0..n).step_by(COLUMNS).map(move |first| (local as usize, pairs, first)))
        .collect();
    let results: Vec<Vec<f32>> = tasks
        .par_iter()
        .map(|&(local, pairs, first)| {
            let rows = Widen { weight, w, scales, n, k, shift: p.shift };
            let mut row = vec![0.0; k];
            let mut out = Vec::with_capacity(pairs.len() * COLUMNS);
            for column in first..n.min(first + COLUMNS) {
                rows.row(local, column, &mut row);
                let of = |&pair: &u32| dot(&a[pair as usize / p.share as usize * lda..][..k], &row);
                out.extend(pairs.iter().map(of));
            }
            out
        })
        .collect();
    for ((_, pairs, first), out) in tasks.into_iter().zip(results) {
        for (column, values) in (first..).zip(out.chunks(pairs.len())) {
            for (pair, value) in pairs.iter().zip(values) {
                c[*pair as usize * ldc + p.column as usize + column] = *value;
            }
        }
    }
}
