//! Entries in the shared slabs of one device, under a byte budget.

use std::collections::HashMap;
use std::sync::Arc;

use seam_device::DType;
use seam_model::{Memory, StackSpec};
use seam_ops::PoolFull;

use crate::host_tier::TierStats;
use crate::key::{EntryKey, KeyParts};
use crate::lru::{Lru, PinError, TierFull};
use crate::miss::{Lookup, MissReason};
use crate::policy::{Policy, Role};
use crate::resident::Resident;

/// An entry on the device with what its key was made from.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where it lies.
    pub resident: Arc<Resident>,
    model: [u8; 32],
    versions: (u32, u32),
    dtypes: (DType, DType),
    policy: Policy,
    role: Role,
    tenant: String,
    tokens: Vec<u32>,
}

impl Stored {
    fn new(resident: Resident, parts: &KeyParts<'_>) -> Self {
        Self {
            resident: Arc::new(resident),
            model: parts.model,
            versions: (parts.layout_version, parts.kernel_version),
            dtypes: (parts.compute, parts.kv),
            policy: parts.policy,
            role: parts.role,
            tenant: parts.tenant.to_owned(),
            tokens: parts.tokens.to_vec(),
        }
    }

    /// What its key was made from.
    #[must_use]
    pub fn key_parts(&self) -> KeyParts<'_> {
        KeyParts {
            model: self.model,
            layout_version: self.versions.0,
            kernel_version: self.versions.1,
            compute: self.dtypes.0,
            kv: self.dtypes.1,
            policy: self.policy,
            role: self.role,
            tenant: &self.tenant,
            tokens: &self.tokens,
        }
    }
}

/// No room for an entry.
#[derive(Debug, thiserror::Error)]
pub enum NoRoom {
    /// The byte budget, or the pins.
    #[error(transparent)]
    Budget(#[from] TierFull),
    /// The slabs or the device's memory.
    #[error(transparent)]
    Pool(#[from] PoolFull),
}

/// Entries of one model on one device. An entry is visible only after [`DeviceTier::commit`]: when its memory holds
/// what was computed.
#[derive(Debug)]
pub struct DeviceTier {
    lru: Lru,
    entries: HashMap<EntryKey, Stored>,
}

impl DeviceTier {
    /// An empty tier of `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self { lru: Lru::new(budget), entries: HashMap::new() }
    }

    /// The entry of `parts`; a hit counts as use.
    #[must_use]
    pub fn get(&mut self, parts: &KeyParts<'_>) -> Lookup<Arc<Resident>> {
        let key = parts.key();
        if self.lru.budget() == 0 {
            return Lookup::Miss(MissReason::Disabled);
        }
        match self.entries.get(&key) {
            None if self.lru.was_evicted(&key) => Lookup::Miss(MissReason::Evicted),
            None => Lookup::Miss(MissReason::Absent),
            Some(stored) if stored.tokens != parts.tokens => Lookup::Miss(MissReason::TokensDiffer),
            Some(stored) => {
                self.lru.touch(&key);
                Lookup::Hit(Arc::clone(&stored.resident))
            }
        }
    }

    /// Whether an entry of these bytes could be had at all.
    ///
    /// # Errors
    /// [`TierFull`] if pins or the budget forbid it.
    pub fn check(&self, bytes: u64) -> Result<(), TierFull> {
        self.lru.check(bytes)
    }

    /// Evicts for an entry of `bytes`. The caller moves what left to a lower tier, then gives its memory back.
    ///
    /// # Errors
    /// [`TierFull`]; then nothing has changed.
    pub fn reserve(&mut self, bytes: u64) -> Result<Vec<Stored>, TierFull> {
        let keys = self.lru.reserve(bytes)?;
        Ok(keys.iter().filter_map(|key| self.entries.remove(key)).collect())
    }

    /// Makes an entry visible, pinned once.
    ///
    /// # Errors
    /// [`NoRoom`] if the budget was taken since [`DeviceTier::reserve`]; the entry's memory is still the caller's.
    pub fn commit(&mut self, resident: Resident, parts: &KeyParts<'_>) -> Result<Arc<Resident>, NoRoom> {
        let (key, bytes) = (resident.key, resident.bytes);
        self.lru.check(bytes)?;
        let evicted = self.lru.insert(key, bytes)?;
        debug_assert!(evicted.is_empty(), "room was reserved");
        let stored = Stored::new(resident, parts);
        let resident = Arc::clone(&stored.resident);
        self.entries.insert(key, stored);
        // It was inserted above, so that this pin cannot fail.
        let _ = self.lru.pin(&key);
        Ok(resident)
    }

    /// Keeps an entry from leaving.
    ///
    /// # Errors
    /// [`PinError::Unknown`].
    pub fn pin(&mut self, key: &EntryKey) -> Result<u32, PinError> {
        self.lru.pin(key)
    }

    /// Takes one pin back.
    ///
    /// # Errors
    /// [`PinError::Unknown`], [`PinError::NotPinned`].
    pub fn unpin(&mut self, key: &EntryKey) -> Result<u32, PinError> {
        self.lru.unpin(key)
    }

    /// The policy of an entry of the same tokens under another policy, to explain a miss.
    #[must_use]
    pub fn other_policy(&self, parts: &KeyParts<'_>) -> Option<Policy> {
        let family = parts.family();
        let other = |s: &&Stored| s.tokens == parts.tokens && s.policy != parts.policy;
        self.entries.values().filter(other).find(|s| s.key_parts().family() == family).map(|s| s.policy)
    }

    /// Makes an unpinned entry invisible; `false` if it is pinned or not there. Its memory is then the caller's.
    pub fn remove(&mut self, key: &EntryKey) -> bool {
        self.lru.remove(key).is_ok() && self.entries.remove(key).is_some()
    }

    /// Drops every entry that is not pinned and gives its memory back; returns how many left.
    pub fn clear(&mut self, memory: &mut Memory) -> usize {
        let keys: Vec<EntryKey> = self.lru.keys().copied().collect();
        let mut left = 0;
        for key in keys {
            if self.lru.remove(&key).is_ok()
                && let Some(stored) = self.entries.remove(&key)
            {
                stored.resident.release(memory);
                left += 1;
            }
        }
        left
    }

    /// What it holds.
    #[must_use]
    pub fn stats(&self) -> TierStats {
        TierStats::from(&self.lru)
    }

    /// Takes memory for the entry of `parts`.
    ///
    /// # Errors
    /// [`PoolFull`].
    pub fn place(memory: &mut Memory, spec: &StackSpec, parts: &KeyParts<'_>) -> Result<Resident, PoolFull> {
        Resident::alloc(memory, spec, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_entry_is_not_found_and_a_pinned_one_stays() {
        let tokens = [1, 2, 3];
        let parts = KeyParts {
            model: [1; 32],
            layout_version: 1,
            kernel_version: 1,
            compute: DType::F32,
            kv: DType::F32,
            policy: Policy { seam: 0, ..Policy::default() },
            role: Role::Interior,
            tenant: "",
            tokens: &tokens,
        };
        let key = parts.key();
        let resident =
            Resident { key, tokens: 3, seam: 0, transition: true, kv: Vec::new(), operator: None, bytes: 10 };
        let mut tier = DeviceTier::new(100);
        assert!(!tier.remove(&key), "it is not there");
        tier.commit(resident, &parts).expect("room");
        assert!(!tier.remove(&key), "it is pinned");
        assert!(tier.get(&parts).hit().is_some());
        assert_eq!(tier.unpin(&key), Ok(0));
        assert!(tier.remove(&key));
        assert_eq!(tier.get(&parts).miss(), Some(&MissReason::Absent));
        assert_eq!((tier.stats().entries, tier.stats().bytes), (0, 0));
    }
}
