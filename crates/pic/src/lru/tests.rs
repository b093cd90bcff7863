//! Tests of the byte-budgeted index.

use super::*;

fn key(n: u64) -> EntryKey {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    EntryKey(bytes)
}

/// xorshift64*: a small generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

/// The obvious model: a list, used longest ago first.
#[derive(Default)]
struct Model {
    list: Vec<(EntryKey, u64, u32)>,
    budget: u64,
}

impl Model {
    fn at(&self, key: EntryKey) -> Option<usize> {
        self.list.iter().position(|e| e.0 == key)
    }

    fn sum(&self, of: impl Fn(&(EntryKey, u64, u32)) -> bool) -> u64 {
        self.list.iter().filter(|e| of(e)).map(|e| e.1).sum()
    }

    fn reserve(&mut self, bytes: u64) -> Option<Vec<EntryKey>> {
        if self.sum(|e| e.2 > 0) + bytes > self.budget {
            return None;
        }
        let mut evicted = Vec::new();
        while self.sum(|_| true) + bytes > self.budget {
            let at = self.list.iter().position(|e| e.2 == 0).unwrap();
            evicted.push(self.list.remove(at).0);
        }
        Some(evicted)
    }

    fn insert(&mut self, key: EntryKey, bytes: u64) -> Option<Vec<EntryKey>> {
        let old = self.at(key).map(|at| (at, self.list.remove(at)));
        let Some(evicted) = self.reserve(bytes) else {
            if let Some((at, entry)) = old {
                self.list.insert(at, entry);
            }
            return None;
        };
        self.list.push((key, bytes, old.map_or(0, |(_, e)| e.2)));
        Some(evicted)
    }
}

#[test]
fn a_thousand_histories_agree_with_a_plain_list() {
    let mut dice = Dice(0x5eed);
    let (mut evictions, mut refusals, mut underflows) = (0, 0, 0);
    for _ in 0..100 {
        let budget = 1 + dice.roll(200);
        let mut lru = Lru::new(budget);
        let mut model = Model { budget, ..Model::default() };
        for _ in 0..200 {
            let key = key(dice.roll(12));
            match dice.roll(8) {
                0..=2 => {
                    let bytes = dice.roll(budget + 4);
                    let got = lru.insert(key, bytes);
                    let want = model.insert(key, bytes);
                    evictions += want.as_ref().map_or(0, Vec::len);
                    refusals += usize::from(want.is_none());
                    assert_eq!(got.as_ref().ok(), want.as_ref());
                    if let Err(full) = got {
                        assert_eq!(full.larger_than_budget(), bytes > budget);
                    }
                }
                3 => {
                    let bytes = dice.roll(budget + 4);
                    assert_eq!(lru.reserve(bytes).ok(), model.reserve(bytes));
                }
                4 => {
                    let at = model.at(key);
                    assert_eq!(lru.touch(&key), at.is_some());
                    if let Some(at) = at {
                        let entry = model.list.remove(at);
                        model.list.push(entry);
                    }
                }
                5 => match model.at(key) {
                    Some(at) => {
                        model.list[at].2 += 1;
                        assert_eq!(lru.pin(&key), Ok(model.list[at].2));
                    }
                    None => assert_eq!(lru.pin(&key), Err(PinError::Unknown(key))),
                },
                6 => match model.at(key) {
                    Some(at) if model.list[at].2 > 0 => {
                        model.list[at].2 -= 1;
                        assert_eq!(lru.unpin(&key), Ok(model.list[at].2));
                    }
                    Some(_) => {
                        underflows += 1;
                        assert_eq!(lru.unpin(&key), Err(PinError::NotPinned(key)));
                    }
                    None => assert_eq!(lru.unpin(&key), Err(PinError::Unknown(key))),
                },
                _ => match model.at(key) {
                    Some(at) if model.list[at].2 > 0 => {
                        assert_eq!(lru.remove(&key), Err(PinError::Pinned(key)));
                    }
                    Some(at) => assert_eq!(lru.remove(&key), Ok(model.list.remove(at).1)),
                    None => assert_eq!(lru.remove(&key), Ok(0)),
                },
            }
            assert!(lru.used() <= budget);
            assert_eq!(lru.used(), model.sum(|_| true));
            assert_eq!(lru.pinned(), model.sum(|e| e.2 > 0));
            assert_eq!(lru.len(), model.list.len());
            for (key, bytes, pins) in &model.list {
                assert_eq!((lru.bytes(key), lru.pins(key)), (Some(*bytes), Some(*pins)));
            }
            assert_eq!(lru.order.len(), model.list.iter().filter(|e| e.2 == 0).count());
        }
    }
    // The histories must have visited what they are here to test.
    assert!(evictions > 500 && refusals > 500 && underflows > 100, "{evictions} {refusals} {underflows}");
}

#[test]
fn an_entry_larger_than_the_budget_evicts_nothing() {
    let mut lru = Lru::new(10);
    lru.insert(key(1), 10).unwrap();
    let full = lru.insert(key(2), 11).unwrap_err();
    assert_eq!(full, TierFull { needed: 11, pinned: 0, budget: 10 });
    assert!(full.larger_than_budget() && full.to_string().contains("budget of 10"));
    assert!(lru.contains(&key(1)));
    lru.pin(&key(1)).unwrap();
    let full = lru.reserve(1).unwrap_err();
    assert!(!full.larger_than_budget());
    assert_eq!(full.pinned, 10);
    assert!(full.to_string().contains("10 of 10"));
}

#[test]
fn a_budget_of_zero_refuses_everything() {
    let mut lru = Lru::new(0);
    assert!(lru.insert(key(1), 1).is_err());
    assert!(lru.insert(key(1), 0).is_err());
    assert!(lru.reserve(0).is_err());
    assert!(lru.is_empty());
}

#[test]
fn the_largest_budget_does_not_wrap() {
    let mut lru = Lru::new(u64::MAX);
    lru.insert(key(1), u64::MAX - 1).unwrap();
    assert_eq!(lru.insert(key(2), 2), Ok(vec![key(1)]));
    assert_eq!(lru.used(), 2);
}

#[test]
fn evicted_keys_are_remembered_for_a_while() {
    let mut lru = Lru::new(1);
    for n in 0..=GHOSTS as u64 + 1 {
        lru.insert(key(n), 1).unwrap();
    }
    assert!(!lru.was_evicted(&key(0)), "forgotten by now");
    assert!(lru.was_evicted(&key(1)) && lru.was_evicted(&key(GHOSTS as u64)));
    assert!(!lru.was_evicted(&key(GHOSTS as u64 + 1)), "still there");
    lru.insert(key(1), 1).unwrap();
    assert!(!lru.was_evicted(&key(1)), "came back");
    // It leaves again; its older place in the queue must not make it forgotten early.
    for n in 0..GHOSTS as u64 - 1 {
        lru.insert(key(10_000 + n), 1).unwrap();
    }
    assert!(lru.was_evicted(&key(1)), "left again");
    assert!(lru.ghosts.when.len() <= GHOSTS && lru.ghosts.queue.len() <= GHOSTS);
}
