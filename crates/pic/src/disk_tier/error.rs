//! Why a directory cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use crate::lru::TierFull;
use crate::wire::WriteError;

/// Why the tier cannot be opened or an entry cannot be stored. Nothing already stored is lost by any of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The cache directory is something else.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The directory cannot be made or listed.
    #[error("cannot open the cache directory {}: {source}", .dir.display())]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No permission to write, or a read-only file system.
    #[error("cannot write to {}: {source}", .path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The disk or the quota is full.
    #[error("no space left for {}: {source}", .path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another failure to write, sync, rename or remove.
    #[error("writing {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The entry does not fit into the tier's budget.
    #[error("disk tier: {0}")]
    Full(#[from] TierFull),
    /// The entry has no wire form.
    #[error(transparent)]
    Entry(WriteError),
}

impl DiskError {
    pub(super) fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path, source },
            _ => Self::Write { path, source },
        }
    }
}
