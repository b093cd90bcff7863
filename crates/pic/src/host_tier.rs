//! Entries in host memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::EntryBlob;
use crate::key::{EntryKey, KeyParts};
use crate::lru::{Lru, PinError, TierFull};
use crate::miss::{Lookup, MissReason};
use crate::policy::Policy;

/// What a tier holds at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Number of entries.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those in use by running requests.
    pub pinned: u64,
    /// The budget in bytes.
    pub budget: u64,
}

impl From<&Lru> for TierStats {
    fn from(lru: &Lru) -> Self {
        Self { entries: lru.len(), bytes: lru.used(), pinned: lru.pinned(), budget: lru.budget() }
    }
}

/// Entries in host memory under a byte budget, counted by [`EntryBlob::bytes`].
///
/// Shared by reference between threads; no lock is held while an entry is used.
#[derive(Debug)]
pub struct HostTier {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    lru: Lru,
    entries: HashMap<EntryKey, Arc<EntryBlob>>,
    /// Entries by [`KeyParts::family`]: the same tokens under other policies.
    families: HashMap<[u8; 32], Vec<EntryKey>>,
}

impl HostTier {
    /// An empty tier of `budget` bytes; with 0 it stores nothing and every look-up misses as disabled.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self { inner: Mutex::new(Inner { lru: Lru::new(budget), entries: HashMap::new(), families: HashMap::new() }) }
    }

    /// No step under the lock leaves the tier inconsistent if it panics, so a poisoned lock is taken over.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an entry; returns those that left for it, the one used longest ago first, for a lower tier to take.
    ///
    /// # Errors
    /// [`TierFull`]; then nothing has changed.
    pub fn insert(&self, entry: Arc<EntryBlob>) -> Result<Vec<Arc<EntryBlob>>, TierFull> {
        let key = entry.key();
        let family = entry.header().key_parts().family();
        let mut inner = self.lock();
        let keys = inner.lru.insert(key, entry.bytes())?;
        let evicted = keys.iter().filter_map(|key| inner.take(key)).collect();
        if inner.entries.insert(key, entry).is_none() {
            inner.families.entry(family).or_default().push(key);
        }
        Ok(evicted)
    }

    /// The entry `key` of exactly the token ids `tokens`. A hit counts as use.
    #[must_use]
    pub fn get(&self, key: &EntryKey, tokens: &[u32]) -> Lookup<Arc<EntryBlob>> {
        let mut inner = self.lock();
        if inner.lru.budget() == 0 {
            return Lookup::Miss(MissReason::Disabled);
        }
        let Some(entry) = inner.entries.get(key).map(Arc::clone) else {
            return Lookup::Miss(if inner.lru.was_evicted(key) { MissReason::Evicted } else { MissReason::Absent });
        };
        if entry.header().tokens != tokens {
            return Lookup::Miss(MissReason::TokensDiffer);
        }
        inner.lru.touch(key);
        Lookup::Hit(entry)
    }

    /// The policy of a stored entry that differs from `parts` in its policy only, to explain a miss
    /// ([`MissReason::OtherSeam`]). The tenant is part of what must agree, so nothing is told about other tenants.
    #[must_use]
    pub fn other_policy(&self, parts: &KeyParts<'_>) -> Option<Policy> {
        let (family, key) = (parts.family(), parts.key());
        let inner = self.lock();
        inner
            .families
            .get(&family)?
            .iter()
            .filter(|&&other| other != key)
            .find_map(|other| inner.entries.get(other))
            .map(|entry| entry.header().policy)
    }

    /// Removes an entry; `false` if it is not there.
    ///
    /// # Errors
    /// [`PinError::Pinned`].
    pub fn remove(&self, key: &EntryKey) -> Result<bool, PinError> {
        let mut inner = self.lock();
        inner.lru.remove(key)?;
        Ok(inner.take(key).is_some())
    }

    /// Keeps an entry in the tier; returns the number of its pins.
    ///
    /// # Errors
    /// [`PinError::Unknown`], [`PinError::TooMany`].
    pub fn pin(&self, key: &EntryKey) -> Result<u32, PinError> {
        self.lock().lru.pin(key)
    }

    /// Takes one pin back; returns how many are left.
    ///
    /// # Errors
    /// [`PinError::Unknown`], [`PinError::NotPinned`].
    pub fn unpin(&self, key: &EntryKey) -> Result<u32, PinError> {
        self.lock().lru.unpin(key)
    }

    /// What the tier holds.
    #[must_use]
    pub fn stats(&self) -> TierStats {
        TierStats::from(&self.lock().lru)
    }
}

impl Inner {
    /// Drops an entry that has left the index.
    fn take(&mut self, key: &EntryKey) -> Option<Arc<EntryBlob>> {
        let entry = self.entries.remove(key)?;
        let family = entry.header().key_parts().family();
        if let Some(keys) = self.families.get_mut(&family) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.families.remove(&family);
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryHeader;
    use crate::testing::{blob, parts};

    const TOKENS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

    fn arc(tenant: &str) -> Arc<EntryBlob> {
        Arc::new(blob(tenant, &TOKENS))
    }

    #[test]
    fn a_hit_gives_the_entry_and_counts_as_use() {
        let (a, b, c) = (arc("a"), arc("b"), arc("c"));
        let tier = HostTier::new(2 * a.bytes());
        assert_eq!(tier.get(&a.key(), &TOKENS), Lookup::Miss(MissReason::Absent));
        assert_eq!(tier.insert(Arc::clone(&a)), Ok(vec![]));
        assert_eq!(tier.insert(Arc::clone(&b)), Ok(vec![]));
        assert_eq!(tier.get(&a.key(), &TOKENS), Lookup::Hit(Arc::clone(&a)));
        // `b` was used longest ago, and is handed out for a lower tier.
        assert_eq!(tier.insert(Arc::clone(&c)), Ok(vec![Arc::clone(&b)]));
        assert_eq!(tier.get(&b.key(), &TOKENS), Lookup::Miss(MissReason::Evicted));
        let stats = tier.stats();
        assert_eq!((stats.entries, stats.bytes), (2, a.bytes() + c.bytes()));
    }

    #[test]
    fn other_token_ids_are_a_miss_even_under_the_right_key() {
        let entry = arc("a");
        let tier = HostTier::new(1 << 20);
        tier.insert(Arc::clone(&entry)).unwrap();
        for other in [&TOKENS[..9], &[], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 11]] {
            assert_eq!(tier.get(&entry.key(), other), Lookup::Miss(MissReason::TokensDiffer));
        }
        assert!(tier.get(&entry.key(), &TOKENS).hit().is_some());
    }

    #[test]
    fn pinned_entries_stay_and_two_users_do_not_free_each_others() {
        let (a, b) = (arc("a"), arc("b"));
        let tier = HostTier::new(a.bytes());
        tier.insert(Arc::clone(&a)).unwrap();
        assert_eq!(tier.pin(&a.key()), Ok(1));
        assert_eq!(tier.pin(&a.key()), Ok(2));
        let full = tier.insert(Arc::clone(&b)).unwrap_err();
        assert_eq!(full.pinned, a.bytes());
        assert_eq!(tier.unpin(&a.key()), Ok(1));
        assert!(tier.insert(Arc::clone(&b)).is_err());
        assert_eq!(tier.remove(&a.key()), Err(PinError::Pinned(a.key())));
        assert_eq!(tier.unpin(&a.key()), Ok(0));
        assert_eq!(tier.unpin(&a.key()), Err(PinError::NotPinned(a.key())));
        assert_eq!(tier.insert(b), Ok(vec![a]));
    }

    #[test]
    fn a_miss_can_be_explained_by_another_seam_of_the_same_tenant() {
        let tier = HostTier::new(1 << 20);
        let stored = arc("a");
        let mut asked = parts("a", &TOKENS);
        asked.policy.seam = 4;
        assert_eq!(tier.other_policy(&asked), None);
        tier.insert(Arc::clone(&stored)).unwrap();
        assert_eq!(tier.other_policy(&asked), Some(stored.header().policy));
        assert_eq!(tier.other_policy(&parts("a", &TOKENS)), None, "that one is there");
        let mut foreign = parts("b", &TOKENS);
        foreign.policy.seam = 4;
        assert_eq!(tier.other_policy(&foreign), None);
        // Twice the same entry is one entry, and it leaves wholly.
        tier.insert(Arc::clone(&stored)).unwrap();
        assert_eq!(tier.remove(&stored.key()), Ok(true));
        assert_eq!(tier.other_policy(&asked), None);
        assert_eq!(tier.remove(&stored.key()), Ok(false));
        let inner = tier.lock();
        assert!(inner.families.is_empty() && inner.entries.is_empty() && inner.lru.is_empty());
    }

    #[test]
    fn a_tier_without_budget_says_so() {
        let tier = HostTier::new(0);
        let entry = arc("a");
        assert!(tier.insert(Arc::clone(&entry)).is_err_and(|e| e.larger_than_budget()));
        assert_eq!(tier.get(&entry.key(), &TOKENS), Lookup::Miss(MissReason::Disabled));
    }

    #[test]
    fn the_same_tokens_of_two_tenants_are_two_entries() {
        let (a, b) = (arc("a"), arc("b"));
        assert_ne!(a.key(), b.key());
        let tier = HostTier::new(1 << 20);
        tier.insert(Arc::clone(&a)).unwrap();
        assert_eq!(tier.get(&b.key(), &TOKENS), Lookup::Miss(MissReason::Absent));
        let head = EntryHeader::new(&parts("a", &TOKENS), Vec::new());
        assert_eq!(head.key, a.key(), "the layers are no part of the key");
    }
}
