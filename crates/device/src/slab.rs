//! Slabs: an allocator of (slab, offset) places, without any memory of its own.

use std::collections::BTreeMap;

/// A place in a set of slabs. The unit is the caller's: words, rows or slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which slab.
    pub slab: u32,
    /// First unit.
    pub offset: u32,
    /// Number of units.
    pub len: u32,
}

/// A request larger than one slab, or past the number of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} units do not fit: a slab has {slab_units}, {slabs} of at most {max_slabs} slabs are open")]
pub struct SlabsFull {
    /// Units asked for.
    pub asked: u32,
    /// Units in a slab.
    pub slab_units: u32,
    /// Slabs now open.
    pub slabs: u32,
    /// The most slabs there may be.
    pub max_slabs: u32,
}

/// First-fit places in slabs of equal size; freed neighbours merge. A slab is at most what a kernel can bind, and
/// layers of equal shape share one `Slabs`, so that a place means the same offset in each layer's own buffers.
#[derive(Clone, Debug)]
pub struct Slabs {
    units: u32,
    max_slabs: u32,
    free: Vec<BTreeMap<u32, u32>>,
    used: u64,
}

impl Slabs {
    /// No slab yet; each will have `units` units.
    #[must_use]
    pub fn new(units: u32) -> Self {
        Self::with_max(units, u32::MAX)
    }

    /// As [`Slabs::new`], with at most `max_slabs` slabs.
    #[must_use]
    pub fn with_max(units: u32, max_slabs: u32) -> Self {
        Self { units, max_slabs, free: Vec::new(), used: 0 }
    }

    /// Units in a slab.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Slabs opened so far: the caller keeps a buffer for each.
    #[must_use]
    pub fn slabs(&self) -> u32 {
        self.free.len() as u32
    }

    /// Units now in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Takes `len` units in one slab, opening a slab where needed.
    ///
    /// # Errors
    /// [`SlabsFull`].
    pub fn alloc(&mut self, len: u32) -> Result<Place, SlabsFull> {
        let full = SlabsFull { asked: len, slab_units: self.units, slabs: self.slabs(), max_slabs: self.max_slabs };
        if len > self.units || len == 0 {
            return Err(full);
        }
        let fit = self
            .free
            .iter()
            .enumerate()
            .find_map(|(slab, holes)| holes.iter().find(|&(_, &n)| n >= len).map(|(&at, &n)| (slab, at, n)));
        let (slab, offset, hole) = match fit {
            Some(found) => found,
            None if self.slabs() < self.max_slabs => {
                self.free.push(BTreeMap::from([(0, self.units)]));
                (self.free.len() - 1, 0, self.units)
            }
            None => return Err(full),
        };
        self.free[slab].remove(&offset);
        if hole > len {
            self.free[slab].insert(offset + len, hole - len);
        }
        self.used += u64::from(len);
        Ok(Place { slab: slab as u32, offset, len })
    }

    /// Closes the last slab if nothing of it is in use: its memory could not be had.
    pub fn close_last(&mut self) -> bool {
        let empty = self.free.last().is_some_and(|holes| holes.get(&0) == Some(&self.units));
        if empty {
            self.free.pop();
        }
        empty
    }

    /// Gives a place back. A place that is not in use (twice freed, or foreign) is refused and changes nothing.
    pub fn free(&mut self, place: Place) -> bool {
        let Some(holes) = self.free.get_mut(place.slab as usize) else { return false };
        let Some(end) = place.offset.checked_add(place.len).filter(|&e| e <= self.units && place.len > 0) else {
            return false;
        };
        let before = holes.range(..=place.offset).next_back().map(|(&at, &n)| (at, n));
        let after = holes.range(place.offset..).next().map(|(&at, &n)| (at, n));
        if before.is_some_and(|(at, n)| at + n > place.offset) || after.is_some_and(|(at, _)| at < end) {
            return false;
        }
        let (mut at, mut len) = (place.offset, place.len);
        if let Some((b, n)) = before.filter(|&(b, n)| b + n == place.offset) {
            holes.remove(&b);
            at = b;
            len += n;
        }
        if let Some((a, n)) = after.filter(|&(a, _)| a == end) {
            holes.remove(&a);
            len += n;
        }
        holes.insert(at, len);
        self.used -= u64::from(place.len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of every unit: places never overlap, the count is exact, and freeing all gives whole slabs back.
    #[test]
    fn places_never_overlap() {
        let mut slabs = Slabs::with_max(64, 3);
        let mut owner = vec![[0u32; 64]; 3];
        let mut live: Vec<(u32, Place)> = Vec::new();
        let mut x = 12345u64;
        let mut next = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) as u32
        };
        for id in 1..5000u32 {
            if next() % 3 != 0 {
                if let Ok(p) = slabs.alloc(1 + next() % 40) {
                    for u in p.offset..p.offset + p.len {
                        assert_eq!(owner[p.slab as usize][u as usize], 0, "unit handed out twice");
                        owner[p.slab as usize][u as usize] = id;
                    }
                    live.push((id, p));
                }
            } else if !live.is_empty() {
                let (id, p) = live.swap_remove(next() as usize % live.len());
                assert!(slabs.free(p));
                assert!(!slabs.free(p), "freed twice");
                for u in p.offset..p.offset + p.len {
                    assert_eq!(owner[p.slab as usize][u as usize], id);
                    owner[p.slab as usize][u as usize] = 0;
                }
            }
            assert_eq!(slabs.used(), live.iter().map(|(_, p)| u64::from(p.len)).sum::<u64>());
        }
        for (_, p) in live {
            assert!(slabs.free(p));
        }
        for _ in 0..3 {
            assert_eq!(slabs.alloc(64).map(|p| p.len), Ok(64), "holes must have merged");
        }
        assert!(slabs.alloc(1).is_err());
    }

    #[test]
    fn refuses_what_cannot_be() {
        let mut slabs = Slabs::with_max(8, 1);
        assert!(slabs.alloc(0).is_err());
        assert!(slabs.alloc(9).is_err());
        assert!(!slabs.free(Place { slab: 0, offset: 0, len: 4 }), "nothing is in use");
        let p = slabs.alloc(8).unwrap();
        assert!(!slabs.free(Place { slab: 0, offset: 4, len: 8 }), "reaches past the slab");
        assert!(!slabs.free(Place { slab: 7, ..p }));
        assert!(slabs.free(p));
    }
}
