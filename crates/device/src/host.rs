//! Host memory that a buffer may borrow.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes on the host with a shared owner: a mapped file, or a vector.
///
/// A CPU device uses such bytes in place; other devices copy them. Cloning is cheap.
#[derive(Clone)]
pub struct HostBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl HostBytes {
    /// All bytes of `owner`. The owner must return the same bytes on every call.
    #[must_use]
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let len = (*owner).as_ref().len();
        Self { owner, range: 0..len }
    }

    /// Takes a vector.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }

    /// The part `range` of these bytes; `None` if it reaches past the end.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { owner: Arc::clone(&self.owner), range: start..start + range.len() })
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBytes").field("len", &self.len()).finish()
    }
}
