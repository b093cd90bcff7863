//! The three tiers as one: device slabs, host memory, a directory.

use std::path::Path;
use std::sync::Arc;

use seam_device::{DType, Device};
use seam_model::{Memory, StackSpec};
use serde::Serialize;

use crate::device_tier::{DeviceTier, NoRoom, Stored};
use crate::disk_tier::{DiskError, DiskTier};
use crate::entry::EntryBlob;
use crate::host_tier::HostTier;
use crate::key::KeyParts;
use crate::miss::{Lookup, MissReason};
use crate::policy::{Policy, Role};
use crate::resident::{Resident, ResidentError};

/// Version of the layout of an entry's sections.
pub const LAYOUT_VERSION: u32 = 1;
/// Version of the kernels: raised when their results change.
pub const KERNEL_VERSION: u32 = 1;

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// On the device: nothing moved.
    Device,
    /// In host memory: it was uploaded.
    Host,
    /// In the directory: it was read and uploaded.
    Disk,
}

/// Byte budgets of the tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Device slabs.
    pub device: u64,
    /// Host memory; 0 for none.
    pub host: u64,
    /// The directory; `None` for no limit.
    pub disk: Option<u64>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { device: 1 << 30, host: 1 << 30, disk: None }
    }
}

/// What happened to an entry on its way between tiers that a user should know of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The tier.
    pub tier: Tier,
    /// What happened.
    pub what: String,
}

/// Entries of one model on one device with its lower tiers.
pub struct Cache {
    model: [u8; 32],
    dtypes: (DType, DType),
    device: DeviceTier,
    host: HostTier,
    disk: Option<DiskTier>,
    warnings: Vec<Warning>,
    uploaded: u64,
}

impl Cache {
    /// Empty device and host tiers, and the directory if one is given. `dtypes` is what products are made in, and what keys
    /// and values are stored as: entries of others are not found.
    ///
    /// # Errors
    /// [`DiskError`] if the directory cannot be used.
    pub fn open(
        model: [u8; 32],
        dtypes: (DType, DType),
        budgets: Budgets,
        dir: Option<&Path>,
    ) -> Result<Self, DiskError> {
        let disk = dir.map(|dir| DiskTier::open(dir, budgets.disk)).transpose()?;
        Ok(Self {
            model,
            dtypes,
            device: DeviceTier::new(budgets.device),
            host: HostTier::new(budgets.host),
            disk,
            warnings: Vec::new(),
            uploaded: 0,
        })
    }

    /// What the key of a segment's entry is made from.
    #[must_use]
    pub fn key_parts<'a>(&self, tokens: &'a [u32], policy: Policy, role: Role, tenant: &'a str) -> KeyParts<'a> {
        KeyParts {
            model: self.model,
            layout_version: LAYOUT_VERSION,
            kernel_version: KERNEL_VERSION,
            compute: self.dtypes.0,
            kv: self.dtypes.1,
            policy: policy.for_role(role),
            role,
            tenant,
            tokens,
        }
    }

    /// Finds an entry in the highest tier that has it, brings it to the device and pins it once.
    ///
    /// # Errors
    /// [`ResidentError`] if the device fails; a tier that cannot give the entry is a miss with a reason.
    pub fn find(
        &mut self,
        device: &dyn Device,
        memory: &mut Memory,
        spec: &StackSpec,
        parts: &KeyParts<'_>,
    ) -> Result<Lookup<(Arc<Resident>, Tier)>, ResidentError> {
        let key = parts.key();
        let mut reason = match self.device.get(parts) {
            Lookup::Hit(resident) => {
                // It is there, so that this pin can only fail by overflow, and then it is pinned anyway.
                let _ = self.device.pin(&key);
                return Ok(Lookup::Hit((resident, Tier::Device)));
            }
            Lookup::Miss(reason) => reason,
        };
        if matches!(reason, MissReason::Disabled) {
            return Ok(Lookup::Miss(reason));
        }
        let mut found = match self.host.get(&key, parts.tokens) {
            Lookup::Hit(blob) => Some((blob, Tier::Host)),
            Lookup::Miss(_) => None,
        };
        if let (None, Some(disk)) = (&found, &self.disk) {
            match disk.get(&key, parts.tokens) {
                Lookup::Hit(blob) => found = Some((Arc::new(blob), Tier::Disk)),
                Lookup::Miss(MissReason::Absent) => {}
                Lookup::Miss(other) => reason = other,
            }
        }
        let Some((blob, tier)) = found else {
            if matches!(reason, MissReason::Absent) {
                let other = self.device.other_policy(parts).or_else(|| self.host.other_policy(parts));
                if let Some(stored) = other {
                    reason = MissReason::OtherSeam { stored };
                }
            }
            return Ok(Lookup::Miss(reason));
        };
        let resident = match self.make_room(device, memory, spec, parts, 0) {
            Ok(resident) => resident,
            Err(ResidentError::NoRoom(_)) => return Ok(Lookup::Miss(MissReason::Evicted)),
            Err(error) => return Err(error),
        };
        if let Err(error) = resident.upload(device, memory, spec, &blob) {
            resident.release(memory);
            return match error {
                ResidentError::Missing { .. } => {
                    self.warn(tier, error.to_string());
                    Ok(Lookup::Miss(MissReason::Foreign))
                }
                other => Err(other),
            };
        }
        self.uploaded += resident.bytes;
        if tier == Tier::Disk {
            self.keep_on_host(blob);
        }
        match self.commit(memory, resident, parts) {
            Some(resident) => Ok(Lookup::Hit((resident, tier))),
            None => Ok(Lookup::Miss(MissReason::Evicted)),
        }
    }

    /// Takes memory for an entry that will be computed, moving others down to make room for it and for `reserved` bytes
    /// of entries that are being computed already.
    ///
    /// # Errors
    /// [`ResidentError::NoRoom`] if pins, the budget or the device's memory forbid it: the segment is then computed as
    /// rows of its request.
    pub fn make_room(
        &mut self,
        device: &dyn Device,
        memory: &mut Memory,
        spec: &StackSpec,
        parts: &KeyParts<'_>,
        reserved: u64,
    ) -> Result<Resident, ResidentError> {
        let bytes = Resident::size(spec, parts).saturating_add(reserved);
        let evicted = self.device.reserve(bytes).map_err(|full| ResidentError::NoRoom(NoRoom::Budget(full)))?;
        for stored in evicted {
            self.demote(device, memory, spec, &stored)?;
        }
        Ok(DeviceTier::place(memory, spec, parts)?)
    }

    /// Makes a computed entry visible, pinned once. `None` if its room was taken meanwhile; its memory is given back.
    pub fn commit(&mut self, memory: &mut Memory, resident: Resident, parts: &KeyParts<'_>) -> Option<Arc<Resident>> {
        let spare = resident.clone();
        match self.device.commit(resident, parts) {
            Ok(resident) => Some(resident),
            Err(full) => {
                self.warn(Tier::Device, full.to_string());
                spare.release(memory);
                None
            }
        }
    }

    /// Writes a committed entry through to the directory, if there is one, and to host memory with it.
    ///
    /// # Errors
    /// [`ResidentError`] if the device fails or the entry holds non-finite values. A full or unwritable directory is a
    /// warning: the entry stays where it is.
    pub fn write_through(
        &mut self,
        device: &dyn Device,
        memory: &Memory,
        spec: &StackSpec,
        resident: &Resident,
        parts: &KeyParts<'_>,
    ) -> Result<(), ResidentError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let blob = Arc::new(resident.download(device, memory, spec, parts)?);
        if let Err(error) = disk.put(&blob) {
            self.warn(Tier::Disk, error.to_string());
        }
        self.keep_on_host(blob);
        Ok(())
    }

    /// Drops an entry that must not be used from the device tier, unless a request still holds it.
    pub fn discard(&mut self, memory: &mut Memory, resident: &Resident) {
        if self.device.remove(&resident.key) {
            resident.release(memory);
        }
    }

    fn demote(
        &mut self,
        device: &dyn Device,
        memory: &mut Memory,
        spec: &StackSpec,
        stored: &Stored,
    ) -> Result<(), ResidentError> {
        let parts = stored.key_parts();
        let held = matches!(self.host.get(&parts.key(), parts.tokens), Lookup::Hit(_));
        let result = if held || self.host.stats().budget == 0 {
            Ok(())
        } else {
            stored.resident.download(device, memory, spec, &parts).map(|blob| self.keep_on_host(Arc::new(blob)))
        };
        stored.resident.release(memory);
        match result {
            Err(ResidentError::Entry(error)) => {
                self.warn(Tier::Host, error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn keep_on_host(&mut self, blob: Arc<EntryBlob>) {
        if self.host.stats().budget == 0 {
            return;
        }
        if let Err(full) = self.host.insert(blob) {
            self.warn(Tier::Host, full.to_string());
        }
    }

    fn warn(&mut self, tier: Tier, what: String) {
        self.warnings.push(Warning { tier, what });
    }

    /// Takes back the pins of a finished request.
    pub fn unpin(&mut self, residents: &[Arc<Resident>]) {
        for resident in residents {
            let unpinned = self.device.unpin(&resident.key);
            debug_assert!(unpinned.is_ok(), "{unpinned:?}");
        }
    }

    /// What went wrong on the way between tiers since the last call.
    pub fn warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }

    /// Entry bytes written to the device from lower tiers since the start.
    #[must_use]
    pub fn uploaded(&self) -> u64 {
        self.uploaded
    }

    /// The device tier.
    #[must_use]
    pub fn device_tier(&self) -> &DeviceTier {
        &self.device
    }

    /// Drops every unpinned entry from the device, without moving it down.
    pub fn clear_device(&mut self, memory: &mut Memory) -> usize {
        self.device.clear(memory)
    }

    /// The host tier.
    #[must_use]
    pub fn host_tier(&self) -> &HostTier {
        &self.host
    }

    /// The directory, if there is one.
    #[must_use]
    pub fn disk_tier(&self) -> Option<&DiskTier> {
        self.disk.as_ref()
    }
}
