//! The name of an entry: a hash of everything the entry depends on.

use std::fmt;
use std::str::FromStr;

use seam_device::DType;
use serde::{Deserialize, Serialize};

use crate::policy::{Context, Policy, Role, StorageForm};

/// The name of an entry: blake3 over [`KeyParts`]. Shown as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EntryKey(pub [u8; 32]);

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryKey({self})")
    }
}

/// Text that is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseKeyError {
    /// Not 64 bytes of text.
    #[error("a key has 64 hexadecimal digits, not {0}")]
    Length(usize),
    /// A character other than `0-9a-f`. Upper case is refused so that a key has one spelling, and one file name.
    #[error("not a lower-case hexadecimal digit at byte {0} of a key")]
    Digit(usize),
}

impl FromStr for EntryKey {
    type Err = ParseKeyError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        unhex(s).map(Self)
    }
}

impl From<EntryKey> for String {
    fn from(key: EntryKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for EntryKey {
    type Error = ParseKeyError;

    fn try_from(s: String) -> Result<Self, Self::Error> {
        s.parse()
    }
}

/// 64 lower-case digits.
pub(crate) fn hex(bytes: &[u8; 32]) -> String {
    let mut out = String::with_capacity(64);
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('?'));
        }
    }
    out
}

/// The inverse of [`hex`].
pub(crate) fn unhex(s: &str) -> Result<[u8; 32], ParseKeyError> {
    if s.len() != 64 {
        return Err(ParseKeyError::Length(s.len()));
    }
    let mut out = [0u8; 32];
    for (i, digit) in s.bytes().enumerate() {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(ParseKeyError::Digit(i)),
        };
        if let Some(byte) = out.get_mut(i / 2) {
            *byte = (*byte << 4) | value;
        }
    }
    Ok(out)
}

/// Serde form of a fingerprint: a string of 64 digits instead of an array of 32 numbers.
pub(crate) mod hex32 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 32], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&super::hex(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<[u8; 32], D::Error> {
        super::unhex(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// Everything an entry depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts<'a> {
    /// The model's fingerprint.
    pub model: [u8; 32],
    /// Version of the layout of an entry's sections.
    pub layout_version: u32,
    /// Version of the kernels that computed it: raised when their results change.
    pub kernel_version: u32,
    /// What operands of products are rounded to.
    pub compute: DType,
    /// The dtype of stored keys and values.
    pub kv: DType,
    /// What the entry is made for; already [`Policy::for_role`].
    pub policy: Policy,
    /// The segment's role.
    pub role: Role,
    /// Whose entry it is; entries are never shared between tenants. May be empty.
    pub tenant: &'a str,
    /// The segment's token ids.
    pub tokens: &'a [u32],
}

/// Separates these hashes from every other use of blake3. The wire format's version is part of it, so programs of
/// different format versions use different names in a shared directory and never fight over a file.
const KEY_DOMAIN: &str = "seam-pic entry key; encoding 1; wire format 1";
const FAMILY_DOMAIN: &str = "seam-pic entry family; encoding 1; wire format 1";

impl KeyParts<'_> {
    /// The entry's key.
    ///
    /// Each part goes in as tag (1 byte), length (8 bytes, little-endian), bytes, under a derived key, so that no two
    /// different sets of parts have the same encoding.
    #[must_use]
    pub fn key(&self) -> EntryKey {
        let mut fields = self.common(KEY_DOMAIN);
        let mut policy = Vec::with_capacity(6);
        policy.extend_from_slice(&self.policy.seam.to_le_bytes());
        policy.push(match self.policy.form {
            StorageForm::Operator => 1,
            StorageForm::EndState => 2,
        });
        policy.push(match self.policy.context {
            Context::Alone => 1,
        });
        fields.put(9, &policy);
        EntryKey(fields.finish())
    }

    /// The hash of all parts but the policy: equal for entries of the same tokens made under different policies.
    #[must_use]
    pub fn family(&self) -> [u8; 32] {
        self.common(FAMILY_DOMAIN).finish()
    }

    fn common(&self, domain: &str) -> Fields {
        let mut fields = Fields(blake3::Hasher::new_derive_key(domain));
        fields.put(1, &self.model);
        fields.put(2, &self.layout_version.to_le_bytes());
        fields.put(3, &self.kernel_version.to_le_bytes());
        fields.put(4, &[dtype_code(self.compute)]);
        fields.put(5, &[dtype_code(self.kv)]);
        fields.put(
            6,
            &[match self.role {
                Role::Head => 1,
                Role::Interior => 2,
            }],
        );
        fields.put(7, self.tenant.as_bytes());
        let mut tokens = Vec::with_capacity(self.tokens.len().saturating_mul(4));
        for token in self.tokens {
            tokens.extend_from_slice(&token.to_le_bytes());
        }
        fields.put(8, &tokens);
        fields
    }
}

/// A hasher that takes tagged, length-prefixed fields.
struct Fields(blake3::Hasher);

impl Fields {
    fn put(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

/// Own numbers, so that reordering the enum changes no key.
const fn dtype_code(dtype: DType) -> u8 {
    match dtype {
        DType::F64 => 1,
        DType::F32 => 2,
        DType::F16 => 3,
        DType::BF16 => 4,
        DType::U32 => 5,
        DType::I64 => 6,
        DType::U8 => 7,
        DType::F8E4M3 => 8,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn parts<'a>(tenant: &'a str, tokens: &'a [u32]) -> KeyParts<'a> {
        KeyParts {
            model: [3; 32],
            layout_version: 1,
            kernel_version: 2,
            compute: DType::F32,
            kv: DType::BF16,
            policy: Policy::default(),
            role: Role::Interior,
            tenant,
            tokens,
        }
    }

    #[test]
    fn every_part_changes_the_key() {
        let base = parts("ab", &[1, 2, 3]);
        let mut model = base;
        model.model[31] ^= 1;
        let with_policy = |policy| KeyParts { policy, ..base };
        let variants = [
            base,
            model,
            KeyParts { layout_version: 2, ..base },
            KeyParts { kernel_version: 1, ..base },
            KeyParts { compute: DType::BF16, ..base },
            KeyParts { compute: DType::F16, ..base },
            KeyParts { kv: DType::F32, ..base },
            // Compute and KV swapped: two fields of one type must not be interchangeable.
            KeyParts { compute: DType::BF16, kv: DType::F32, ..base },
            with_policy(Policy { seam: 9, ..base.policy }),
            with_policy(Policy { seam: 0, ..base.policy }),
            with_policy(Policy { form: StorageForm::EndState, ..base.policy }),
            KeyParts { role: Role::Head, ..base },
            KeyParts { tenant: "", ..base },
            KeyParts { tenant: "aB", ..base },
            KeyParts { tokens: &[], ..base },
            KeyParts { tokens: &[1, 2], ..base },
            KeyParts { tokens: &[3, 2, 1], ..base },
            KeyParts { tokens: &[1, 2, 3, 0], ..base },
            KeyParts { tokens: &[1, 2, 0x0300_0000], ..base },
        ];
        let keys: HashSet<_> = variants.iter().map(KeyParts::key).collect();
        assert_eq!(keys.len(), variants.len());
        // Versions exchanged are another entry, too.
        let swapped = KeyParts { layout_version: 2, kernel_version: 1, ..base };
        assert!(!keys.contains(&swapped.key()));
        assert_eq!(base.key(), parts("ab", &[1, 2, 3]).key());
    }

    #[test]
    fn bytes_cannot_move_between_tenant_and_tokens() {
        // "b\0\0\0" is the encoding of token 98: the same bytes in a row, cut elsewhere.
        let mut seen = HashSet::new();
        for (tenant, tokens) in [
            ("ab\0\0\0", &[][..]),
            ("a", &[98][..]),
            ("", &[0x6261][..]),
            ("ab", &[][..]),
            ("a", &[][..]),
            ("a\0", &[98][..]),
        ] {
            assert!(seen.insert(parts(tenant, tokens).key()), "{tenant:?} {tokens:?}");
        }
    }

    #[test]
    fn the_family_ignores_the_policy_only() {
        let base = parts("t", &[5, 6]);
        let wide = KeyParts { policy: Policy { seam: 64, ..base.policy }, ..base };
        assert_eq!(base.family(), wide.family());
        assert_ne!(base.key(), wide.key());
        assert_ne!(base.family(), parts("u", &[5, 6]).family());
        assert_ne!(base.family(), base.key().0);
    }

    #[test]
    fn the_encoding_is_pinned() {
        // Changing this value makes every stored entry unreachable: raise the encoding number in the domain then.
        assert_eq!(parts("ab", &[1, 2, 3]).key().to_string(), PINNED);
    }

    const PINNED: &str = "5fdb5bc17777d4a04152a76c91489df7bf2b511f38f006879da7582538829a9f";

    #[test]
    fn hex_round_trips_and_has_one_spelling() {
        let key = parts("x", &[1]).key();
        let text = key.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(EntryKey([0xab; 32]).to_string().to_uppercase().parse::<EntryKey>(), Err(ParseKeyError::Digit(0)));
        assert_eq!("ab".parse::<EntryKey>(), Err(ParseKeyError::Length(2)));
        assert_eq!("é".repeat(32).parse::<EntryKey>(), Err(ParseKeyError::Digit(0)));
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<EntryKey>(&json).unwrap(), key);
    }
}
