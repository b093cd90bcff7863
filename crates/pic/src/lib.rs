//! Position-independent caching: segments, entries, cache tiers, plans.
//!
//! A *segment* of a prompt is computed once, alone, and its result, the *entry*, is spliced into any prompt at any
//! position. This crate says what an entry is, how it is named and stored, and why a look-up missed. It is not the
//! place where entries are computed: it names no kernel and no backend.
//!
//! * [`policy`]: what is stored for a segment and how a request uses it.
//! * [`key`]: the name of an entry, a hash of everything it depends on.
//! * [`entry`]: the host form of an entry; every value of it was checked.
//! * [`wire`]: its disk form, which is its wire form; readable layer by layer.
//! * [`lru`]: the byte budget every tier keeps.
//! * [`host_tier`], [`disk_tier`]: entries in host memory and in a directory.
//! * [`resident`], [`device_tier`]: entries in the shared slabs of a device.
//! * [`cache`]: the three tiers as one.
//! * [`miss`]: why a look-up found nothing.
//! * [`plan`], [`sequence`]: what a request computes and reuses, and its way through passes.
//!
//! ```
//! use seam_device::DType;
//! use seam_pic::{EntryKey, KeyParts, Policy, Role};
//!
//! let parts = KeyParts {
//!     model: [7; 32],
//!     layout_version: 1,
//!     kernel_version: 1,
//!     compute: DType::F32,
//!     kv: DType::F32,
//!     policy: Policy::default(),
//!     role: Role::Interior,
//!     tenant: "",
//!     tokens: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
//! };
//! let key = parts.key();
//! assert_eq!(key.to_string().parse::<EntryKey>(), Ok(key));
//! ```

#![forbid(unsafe_code)]

pub mod cache;
pub mod device_tier;
pub mod disk_tier;
pub mod entry;
mod files;
pub mod host_tier;
pub mod key;
pub mod lru;
pub mod miss;
pub mod plan;
pub mod policy;
pub mod resident;
mod section;
pub mod sequence;
#[cfg(test)]
mod testing;
pub mod wire;

pub use cache::{Budgets, Cache, Tier, Warning};
pub use device_tier::{DeviceTier, NoRoom, Stored};
pub use disk_tier::{DiskError, DiskTier, OpenReport, Put};
pub use entry::{EntryBlob, EntryError, EntryHeader, LayerHeader};
pub use host_tier::{HostTier, TierStats};
pub use key::{EntryKey, KeyParts, ParseKeyError};
pub use lru::{Lru, PinError, TierFull};
pub use miss::{Lookup, MissReason};
pub use plan::Part;
pub use policy::{Context, Mode, ParseModeError, Policy, Role, StorageForm};
pub use resident::{Resident, ResidentError};
pub use section::{SECTION_ALIGN, Section, SectionKind, UnknownSection};
pub use sequence::{Carry, Emitted, Item, Sequence};
pub use wire::Damage;
