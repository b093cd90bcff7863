//! The file operations of the disk tier that can fail for want of space or permission, so that tests can make them.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A file being written.
pub(crate) trait Sink: Write {
    /// Returns when its bytes are on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

pub(crate) trait Files: fmt::Debug + Send + Sync {
    /// Creates a file that must not exist, readable by its owner only: entries hold users' text.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    fn open(&self, path: &Path) -> io::Result<File>;
    fn list(&self, dir: &Path) -> io::Result<fs::ReadDir>;
}

/// The file system itself.
#[derive(Debug)]
pub(crate) struct SystemFiles;

impl Files for SystemFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Box::new(options.open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn list(&self, dir: &Path) -> io::Result<fs::ReadDir> {
        fs::read_dir(dir)
    }
}

/// Creates `dir` and its parents, for the owner only; no error if it exists.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Makes a rename in `dir` survive a power failure. Where directories cannot be synced, nothing is done.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}
