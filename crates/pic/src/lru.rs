//! The byte budget of a tier: which entries are there, how large they are, who leaves first.
//!
//! An index knows keys and bytes, not contents; a tier acts on what it returns. The entry used longest ago leaves
//! first; a pinned one stays. The budget holds at every moment.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::key::EntryKey;

/// There is no room, and none can be made. Nothing was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierFull {
    /// Bytes asked for.
    pub needed: u64,
    /// Bytes that cannot leave now: those of pinned entries.
    pub pinned: u64,
    /// The tier's budget in bytes.
    pub budget: u64,
}

impl TierFull {
    /// Whether it would not fit into the empty tier either.
    #[must_use]
    pub const fn larger_than_budget(&self) -> bool {
        self.needed > self.budget
    }
}

impl std::fmt::Display for TierFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { needed, pinned, budget } = self;
        if self.larger_than_budget() {
            write!(f, "{needed} bytes are more than the tier's budget of {budget}")
        } else {
            write!(f, "no room for {needed} bytes: {pinned} of {budget} are in use by running requests")
        }
    }
}

impl std::error::Error for TierFull {}

/// A pin that cannot be set or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// No such entry.
    #[error("entry {0} is not in this tier")]
    Unknown(EntryKey),
    /// More releases than pins: the caller's count is wrong.
    #[error("entry {0} is not pinned")]
    NotPinned(EntryKey),
    /// It is pinned and cannot be removed.
    #[error("entry {0} is pinned")]
    Pinned(EntryKey),
    /// As many pins as can be counted.
    #[error("entry {0} is pinned too often")]
    TooMany(EntryKey),
}

#[derive(Debug)]
struct Node {
    bytes: u64,
    pins: u32,
    /// When it was used last.
    tick: u64,
}

/// How many evicted keys an index remembers.
const GHOSTS: usize = 4096;

/// Keys, sizes, pins and the order of use.
#[derive(Debug)]
pub struct Lru {
    budget: u64,
    used: u64,
    pinned: u64,
    tick: u64,
    nodes: HashMap<EntryKey, Node>,
    /// The unpinned entries by time of use.
    order: BTreeMap<u64, EntryKey>,
    ghosts: Ghosts,
}

impl Lru {
    /// An empty index of `budget` bytes. With budget 0 every entry is refused.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            used: 0,
            pinned: 0,
            tick: 0,
            nodes: HashMap::new(),
            order: BTreeMap::new(),
            ghosts: Ghosts::default(),
        }
    }

    /// The budget in bytes.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes of all entries; never more than the budget.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the pinned entries.
    #[must_use]
    pub const fn pinned(&self) -> u64 {
        self.pinned
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether the entry is there. Does not count as use.
    #[must_use]
    pub fn contains(&self, key: &EntryKey) -> bool {
        self.nodes.contains_key(key)
    }

    /// The bytes of an entry. Does not count as use.
    #[must_use]
    pub fn bytes(&self, key: &EntryKey) -> Option<u64> {
        self.nodes.get(key).map(|node| node.bytes)
    }

    /// The number of pins of an entry.
    #[must_use]
    pub fn pins(&self, key: &EntryKey) -> Option<u32> {
        self.nodes.get(key).map(|node| node.pins)
    }

    /// Whether the entry was evicted lately and did not come back. The last 4096 evictions are remembered.
    #[must_use]
    pub fn was_evicted(&self, key: &EntryKey) -> bool {
        self.ghosts.when.contains_key(key)
    }

    /// Marks an entry as used now; `false` if it is not there.
    pub fn touch(&mut self, key: &EntryKey) -> bool {
        let Some(node) = self.nodes.get_mut(key) else {
            return false;
        };
        self.tick += 1;
        if self.order.remove(&node.tick).is_some() {
            self.order.insert(self.tick, *key);
        }
        node.tick = self.tick;
        true
    }

    /// Whether [`Lru::reserve`] would find room for `bytes`.
    ///
    /// # Errors
    /// [`TierFull`] if not.
    pub const fn check(&self, bytes: u64) -> Result<(), TierFull> {
        // `budget` may be zero, and an entry of zero bytes has no place there either.
        if self.budget == 0 || bytes > self.budget - self.pinned {
            return Err(TierFull { needed: bytes, pinned: self.pinned, budget: self.budget });
        }
        Ok(())
    }

    /// Makes room for `bytes`; returns the keys that left, the one used longest ago first. The room is not held: an
    /// [`Lru::insert`] in the same critical section takes it.
    ///
    /// # Errors
    /// [`TierFull`] if pinned entries leave too little room or the budget is smaller; then nothing was evicted.
    pub fn reserve(&mut self, bytes: u64) -> Result<Vec<EntryKey>, TierFull> {
        self.check(bytes)?;
        let mut evicted = Vec::new();
        while bytes > self.budget - self.used {
            // Unpinned entries exist as long as `used > pinned`, and `check` found room beside the pinned ones.
            let Some((_, key)) = self.order.pop_first() else {
                break;
            };
            if let Some(node) = self.nodes.remove(&key) {
                self.used -= node.bytes;
            }
            self.ghosts.add(key);
            evicted.push(key);
        }
        Ok(evicted)
    }

    /// Adds an entry as just used, or marks it so if it is there with the same size; returns the keys that left for
    /// it. An entry that is there with another size takes the new one and keeps its pins.
    ///
    /// # Errors
    /// [`TierFull`]; then nothing has changed.
    pub fn insert(&mut self, key: EntryKey, bytes: u64) -> Result<Vec<EntryKey>, TierFull> {
        let (old, pins) = self.nodes.get(&key).map_or((0, 0), |n| (n.bytes, n.pins));
        if self.contains(&key) && old == bytes {
            self.touch(&key);
            return Ok(Vec::new());
        }
        let others_pinned = self.pinned - if pins > 0 { old } else { 0 };
        if self.budget == 0 || bytes > self.budget - others_pinned {
            return Err(TierFull { needed: bytes, pinned: others_pinned, budget: self.budget });
        }
        // Out with the old size first, so that the entry does not evict itself.
        self.forget(&key);
        let evicted = self.reserve(bytes)?;
        self.tick += 1;
        let node = Node { bytes, pins, tick: self.tick };
        if pins == 0 {
            self.order.insert(node.tick, key);
        } else {
            self.pinned += bytes;
        }
        self.used += bytes;
        self.nodes.insert(key, node);
        self.ghosts.when.remove(&key);
        Ok(evicted)
    }

    /// Removes an entry; returns its bytes, or 0 if it was not there. It does not count as evicted.
    ///
    /// # Errors
    /// [`PinError::Pinned`].
    pub fn remove(&mut self, key: &EntryKey) -> Result<u64, PinError> {
        match self.nodes.get(key) {
            Some(node) if node.pins > 0 => Err(PinError::Pinned(*key)),
            _ => Ok(self.forget(key)),
        }
    }

    fn forget(&mut self, key: &EntryKey) -> u64 {
        let Some(node) = self.nodes.remove(key) else {
            return 0;
        };
        self.order.remove(&node.tick);
        self.used -= node.bytes;
        if node.pins > 0 {
            self.pinned -= node.bytes;
        }
        node.bytes
    }

    /// Keeps an entry from leaving until [`Lru::unpin`]; returns the number of its pins.
    ///
    /// # Errors
    /// [`PinError::Unknown`], [`PinError::TooMany`].
    pub fn pin(&mut self, key: &EntryKey) -> Result<u32, PinError> {
        let node = self.nodes.get_mut(key).ok_or(PinError::Unknown(*key))?;
        let pins = node.pins.checked_add(1).ok_or(PinError::TooMany(*key))?;
        if node.pins == 0 {
            self.pinned += node.bytes;
            self.order.remove(&node.tick);
        }
        node.pins = pins;
        Ok(pins)
    }

    /// Takes one pin back; returns how many are left. The entry returns to its place in the order of use.
    ///
    /// # Errors
    /// [`PinError::Unknown`], and [`PinError::NotPinned`] instead of an underflow.
    pub fn unpin(&mut self, key: &EntryKey) -> Result<u32, PinError> {
        let node = self.nodes.get_mut(key).ok_or(PinError::Unknown(*key))?;
        let pins = node.pins.checked_sub(1).ok_or(PinError::NotPinned(*key))?;
        if pins == 0 {
            self.pinned -= node.bytes;
            self.order.insert(node.tick, *key);
        }
        node.pins = pins;
        Ok(pins)
    }

    /// The keys of all entries, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &EntryKey> {
        self.nodes.keys()
    }
}

/// The last evicted keys.
#[derive(Debug, Default)]
struct Ghosts {
    /// When each was evicted, in numbers of evictions.
    when: HashMap<EntryKey, u64>,
    queue: VecDeque<(u64, EntryKey)>,
    count: u64,
}

impl Ghosts {
    fn add(&mut self, key: EntryKey) {
        self.count += 1;
        self.when.insert(key, self.count);
        self.queue.push_back((self.count, key));
        while self.queue.len() > GHOSTS {
            // A key that came back and left again has two places in the queue: only its last one counts.
            if let Some((count, oldest)) = self.queue.pop_front()
                && self.when.get(&oldest) == Some(&count)
            {
                self.when.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
