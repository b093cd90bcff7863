//! What is stored for a segment, and how a request uses it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a request uses the entries of its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every token is recomputed under its true prefix; no entry is read. The reference.
    Full,
    /// `h -> T·h + S` for each interior segment, after its seam ran under the true prefix.
    #[default]
    Transition,
    /// As `Transition` with `T := 1`: states are summed.
    Addition,
    /// `T := 0` and `S :=` the end state of the whole segment computed alone, so that only the last segment's state
    /// reaches the query.
    LastState,
}

impl Mode {
    /// All modes, in the order help texts list them.
    pub const ALL: [Self; 4] = [Self::Full, Self::Transition, Self::Addition, Self::LastState];

    /// The stable name: `full`, `transition`, `addition`, `last-state`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Transition => "transition",
            Self::Addition => "addition",
            Self::LastState => "last-state",
        }
    }

    /// The form of an interior segment's entry this mode reads; `None` if it reads no entry.
    #[must_use]
    pub const fn form(self) -> Option<StorageForm> {
        match self {
            Self::Full => None,
            Self::Transition | Self::Addition => Some(StorageForm::Operator),
            Self::LastState => Some(StorageForm::EndState),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A mode name that is none of [`Mode::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode {0:?}: expected full, transition, addition or last-state")]
pub struct ParseModeError(pub String);

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mode| mode.name() == s).ok_or_else(|| ParseModeError(s.to_owned()))
    }
}

/// What precedes a segment when its entry is computed.
///
/// Part of the key: an entry computed behind another context is another entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Context {
    /// Nothing: zero states, positions from 0.
    #[default]
    Alone,
}

/// What the linear layers of an entry hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageForm {
    /// `T` and `S` of the tokens `w..L`, to be applied after the seam ran.
    #[default]
    Operator,
    /// Only the state after the whole segment `0..L`, started from zero: what `last-state` and head segments need.
    EndState,
}

/// The place of a segment in its prompt, as far as its entry depends on it. The query has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Segment 0: nothing precedes it, so it has no seam and no `T`; its entry holds its end state.
    Head,
    /// A segment between the head and the query.
    Interior,
}

impl Role {
    /// The role of the cached segment at `index` of a prompt.
    #[must_use]
    pub const fn of(index: usize) -> Self {
        if index == 0 { Self::Head } else { Self::Interior }
    }

    /// The stable name: `head` or `interior`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Interior => "interior",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What an entry is made for. Part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The seam width `w`: the first tokens of an interior segment, recomputed at every reuse.
    pub seam: u32,
    /// What the linear layers hold.
    pub form: StorageForm,
    /// What preceded the segment when it was computed.
    pub context: Context,
}

impl Policy {
    /// The seam width used when nobody asks for another.
    pub const DEFAULT_SEAM: u32 = 8;

    /// The policy an interior segment needs in `mode` with seam width `seam`; `None` if the mode reads no entry.
    #[must_use]
    pub const fn for_mode(mode: Mode, seam: u32) -> Option<Self> {
        match mode.form() {
            Some(form) => Some(Self { seam, form, context: Context::Alone }),
            None => None,
        }
    }

    /// This policy as it applies to a segment of `role`.
    ///
    /// A head becomes `seam` 0 and [`StorageForm::EndState`] whatever was asked, so that one head entry serves every
    /// mode and seam width.
    #[must_use]
    pub const fn for_role(self, role: Role) -> Self {
        match role {
            Role::Head => Self { seam: 0, form: StorageForm::EndState, context: self.context },
            Role::Interior => self,
        }
    }

    /// Whether a segment of `tokens` tokens has something to store beyond its seam. A shorter one is recomputed.
    #[must_use]
    pub fn stores(&self, tokens: usize) -> bool {
        u64::try_from(tokens).is_ok_and(|n| n > u64::from(self.seam))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { seam: Self::DEFAULT_SEAM, form: StorageForm::Operator, context: Context::Alone }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            StorageForm::Operator => "operator",
            StorageForm::EndState => "end-state",
        };
        let context = match self.context {
            Context::Alone => "alone",
        };
        write!(f, "seam {}, {form}, {context}", self.seam)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_names_round_trip_and_others_are_refused() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
        for bad in ["", "Full", "last_state", "transition ", "replay"] {
            assert_eq!(bad.parse::<Mode>(), Err(ParseModeError(bad.to_owned())));
        }
        assert_eq!(format!("{:>12}|", Mode::Full), "        full|");
    }

    #[test]
    fn a_head_has_no_seam_and_no_transition_whatever_was_asked() {
        let wide = Policy { seam: 32, ..Policy::default() };
        let head = wide.for_role(Role::of(0));
        assert_eq!((head.seam, head.form), (0, StorageForm::EndState));
        assert_eq!(head, Policy::for_mode(Mode::LastState, 8).unwrap().for_role(Role::Head));
        assert_eq!(wide.for_role(Role::of(1)), wide);
    }

    #[test]
    fn only_segments_longer_than_the_seam_are_stored() {
        let policy = Policy::default();
        assert!(!policy.stores(0) && !policy.stores(8) && policy.stores(9));
        let head = policy.for_role(Role::Head);
        assert!(!head.stores(0) && head.stores(1));
    }

    #[test]
    fn full_reads_no_entry() {
        assert_eq!(Policy::for_mode(Mode::Full, 8), None);
        assert_eq!(Mode::Addition.form(), Some(StorageForm::Operator));
    }
}
