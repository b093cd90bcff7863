//! Why a look-up found nothing.

use std::fmt;
use std::io;

use crate::policy::Policy;
use crate::wire::Damage;

/// What a tier found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The entry, its token ids equal to the asked ones.
    Hit(T),
    /// Nothing usable, and why.
    Miss(MissReason),
}

impl<T> Lookup<T> {
    /// The entry, if there is one.
    #[must_use]
    pub fn hit(self) -> Option<T> {
        match self {
            Self::Hit(entry) => Some(entry),
            Self::Miss(_) => None,
        }
    }

    /// The reason, if there is no entry.
    #[must_use]
    pub const fn miss(&self) -> Option<&MissReason> {
        match self {
            Self::Hit(_) => None,
            Self::Miss(reason) => Some(reason),
        }
    }
}

/// Why a segment was computed instead of reused. [`MissReason::name`] is the metrics label; `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissReason {
    /// Never seen, as far as this tier knows.
    Absent,
    /// It was here and left to make room.
    Evicted,
    /// The stored bytes are broken.
    Damaged(Damage),
    /// Something with the entry's name that is not an entry.
    Foreign,
    /// An entry of this key for other token ids.
    TokensDiffer,
    /// Nothing under this policy, but an entry of the same tokens under another one.
    OtherSeam {
        /// The policy of the entry that exists.
        stored: Policy,
    },
    /// Not longer than the seam: there is nothing to store.
    TooShort {
        /// Tokens of the segment.
        tokens: usize,
        /// Seam width of the policy.
        seam: u32,
    },
    /// A segment without tokens: it contributes nothing.
    Empty,
    /// The device tier has no room beside what running requests pin: the segment is computed under its true prefix.
    NoRoom,
    /// Caching is off for this request or tier.
    Disabled,
    /// The storage could not be read.
    Unreadable(io::ErrorKind),
    /// The last segment is not cached.
    QueryNeverCached,
}

impl MissReason {
    /// The stable name, for metrics and responses: lower case with underscores, without details.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Evicted => "evicted",
            Self::Damaged(_) => "damaged",
            Self::Foreign => "foreign",
            Self::TokensDiffer => "tokens_differ",
            Self::OtherSeam { .. } => "other_seam",
            Self::TooShort { .. } => "too_short",
            Self::Empty => "empty",
            Self::NoRoom => "no_room",
            Self::Disabled => "disabled",
            Self::Unreadable(_) => "unreadable",
            Self::QueryNeverCached => "query_never_cached",
        }
    }
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no entry is stored for this segment"),
            Self::Evicted => f.write_str("the entry left the cache to make room"),
            Self::Damaged(damage) => write!(f, "the stored entry is damaged: {damage}"),
            Self::Foreign => f.write_str("a file with the entry's name is not an entry of this program"),
            Self::TokensDiffer => f.write_str("the stored entry is of other token ids"),
            Self::OtherSeam { stored } => {
                write!(f, "the same tokens are stored under another policy ({stored})")
            }
            Self::TooShort { tokens, seam } => {
                write!(f, "the segment has {tokens} tokens, not more than the seam of {seam}: it is recomputed")
            }
            Self::Empty => f.write_str("the segment has no tokens"),
            Self::NoRoom => f.write_str("no room in the device tier: it is recomputed under its true prefix"),
            Self::Disabled => f.write_str("caching is off"),
            Self::Unreadable(kind) => write!(f, "the stored entry could not be read: {kind}"),
            Self::QueryNeverCached => f.write_str("the last segment of a prompt is not cached"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_distinct_labels_and_texts_say_why() {
        let all = [
            MissReason::Absent,
            MissReason::Evicted,
            MissReason::Damaged(Damage::Magic),
            MissReason::Foreign,
            MissReason::TokensDiffer,
            MissReason::OtherSeam { stored: Policy::default() },
            MissReason::TooShort { tokens: 5, seam: 8 },
            MissReason::Empty,
            MissReason::NoRoom,
            MissReason::Disabled,
            MissReason::Unreadable(io::ErrorKind::PermissionDenied),
            MissReason::QueryNeverCached,
        ];
        let names: HashSet<_> = all.iter().map(MissReason::name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.iter().all(|n| n.bytes().all(|b| b == b'_' || b.is_ascii_lowercase())));
        assert!(all[6].to_string().contains("5 tokens"));
        assert!(all[5].to_string().contains("seam 8, operator, alone"));
        assert!(all[10].to_string().contains("permission denied"));
    }
}
