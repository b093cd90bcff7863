//! Tiles of queries: what one block of the attention on tensor cores takes.

use seam_kernels::tables::{NARROW_TILE, WIDE_TILE};

/// The tiles of runs of `rows` rows each, wide ones first, and how many there are of either kind. A query is a row with one
/// of the `group` query heads of a KV head; a tile has queries of one run.
pub(super) fn cut(rows: impl Iterator<Item = u32>, group: u32) -> (Vec<u32>, [u32; 2]) {
    let (mut wide, mut narrow) = (Vec::new(), Vec::new());
    for (run, rows) in rows.enumerate() {
        let queries = rows * group;
        for first in (0..queries).step_by(WIDE_TILE) {
            let count = (queries - first).min(WIDE_TILE as u32);
            let tiles = if count <= NARROW_TILE as u32 { &mut narrow } else { &mut wide };
            tiles.push([run as u32, first, count, 0]);
        }
    }
    let counts = [wide.len() as u32, narrow.len() as u32];
    (wide.into_iter().chain(narrow).flatten().collect(), counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_in_one_tile() {
        let runs = [1, 2, 3, 8, 9, 64, 100, 513];
        for group in [1, 3, 4, 8] {
            let (words, [wide, narrow]) = cut(runs.into_iter(), group);
            let tiles: Vec<&[u32]> = words.chunks_exact(4).collect();
            assert_eq!(tiles.len() as u32, wide + narrow);
            for (i, tile) in tiles.iter().enumerate() {
                let most = if (i as u32) < wide { 17..=64 } else { 1..=16 };
                assert!(most.contains(&tile[2]), "{tile:?}");
            }
            for (run, rows) in runs.iter().enumerate() {
                let mut own: Vec<_> = tiles.iter().filter(|t| t[0] == run as u32).map(|t| (t[1], t[2])).collect();
                own.sort_unstable();
                let end = own.iter().fold(0, |at, &(first, count)| {
                    assert_eq!(first, at);
                    at + count
                });
                assert_eq!(end, rows * group);
            }
        }
    }
}
