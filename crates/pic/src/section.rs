//! One tensor of an entry's layer: what it is, its dtype and shape.

use std::fmt;

use seam_device::DType;
use serde::{Deserialize, Serialize};

/// Sections of a layer's block begin at multiples of this many bytes; the gaps are zero bytes.
///
/// 16 covers the widest element and what devices ask of copy offsets.
pub const SECTION_ALIGN: u64 = 16;

/// What a section holds. The number is its stable tag on disk.
///
/// `n` is the number of stored tokens: `L − w`. `HV` is the number of value heads, `K` and `V` the key and value
/// sizes of a head, `k` the width of the causal convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum SectionKind {
    /// `[kv_heads, n, head_dim]`: keys, rotated by their offset inside the segment.
    Keys = 1,
    /// `[kv_heads, n, head_dim]`: values.
    Values = 2,
    /// `[HV, K, V]`: `S`.
    State = 3,
    /// `[HV, K, K]`: a dense `T`.
    Transition = 4,
    /// `[HV]`: the summed logarithm of the decay. Finite: a decay of exactly 0 is stored as the least finite value,
    /// whose exponential is an exact 0.
    LogDecay = 5,
    /// `[HV]`: `‖T‖₂`.
    TransitionNorm = 6,
    /// `[HV]`: `‖S‖`.
    StateNorm = 7,
    /// `[k−1, channels]`: the last raw inputs of the convolution, oldest first.
    ConvTail = 8,
    /// `[HV, K]`: the summed logarithms of a decay a key dim, as [`SectionKind::LogDecay`].
    LogDecays = 9,
}

impl SectionKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Keys,
        Self::Values,
        Self::State,
        Self::Transition,
        Self::LogDecay,
        Self::TransitionNorm,
        Self::StateNorm,
        Self::ConvTail,
        Self::LogDecays,
    ];

    /// The tag on disk.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// How many dimensions a section of this kind has.
    #[must_use]
    pub const fn rank(self) -> usize {
        match self {
            Self::Keys | Self::Values | Self::State | Self::Transition => 3,
            Self::ConvTail | Self::LogDecays => 2,
            Self::LogDecay | Self::TransitionNorm | Self::StateNorm => 1,
        }
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Keys => "keys",
            Self::Values => "values",
            Self::State => "state",
            Self::Transition => "transition",
            Self::LogDecay => "log decay",
            Self::TransitionNorm => "transition norm",
            Self::StateNorm => "state norm",
            Self::ConvTail => "conv tail",
            Self::LogDecays => "log decays",
        })
    }
}

/// A section tag that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown section kind {0}")]
pub struct UnknownSection(pub u8);

impl TryFrom<u8> for SectionKind {
    type Error = UnknownSection;

    fn try_from(tag: u8) -> Result<Self, Self::Error> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag).ok_or(UnknownSection(tag))
    }
}

impl From<SectionKind> for u8 {
    fn from(kind: SectionKind) -> Self {
        kind.tag()
    }
}

/// One tensor of a layer's block, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// What it holds.
    pub kind: SectionKind,
    /// Its element type.
    pub dtype: DType,
    /// Its sizes, outermost first.
    pub shape: Vec<u64>,
}

impl Section {
    /// A section.
    #[must_use]
    pub fn new(kind: SectionKind, dtype: DType, shape: &[u64]) -> Self {
        Self { kind, dtype, shape: shape.to_vec() }
    }

    /// Its size in bytes without padding; `None` if that does not fit in 64 bits.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.size() as u64, |bytes, &size| bytes.checked_mul(size))
    }
}

/// The index of the first element of `bytes` that is infinite or not a number; `None` for integers.
pub(crate) fn first_non_finite(dtype: DType, bytes: &[u8]) -> Option<usize> {
    // A float is infinite or not a number exactly if all bits of its exponent are set.
    match dtype {
        DType::F32 => position(bytes, |b| u32::from_le_bytes(b) & 0x7f80_0000 == 0x7f80_0000),
        DType::BF16 => position(bytes, |b| u16::from_le_bytes(b) & 0x7f80 == 0x7f80),
        DType::F16 => position(bytes, |b| u16::from_le_bytes(b) & 0x7c00 == 0x7c00),
        DType::F64 => position(bytes, |b| u64::from_le_bytes(b) & 0x7ff0_0000_0000_0000 == 0x7ff0_0000_0000_0000),
        DType::F8E4M3 => position(bytes, |[b]: [u8; 1]| b & 0x7f == 0x7f),
        DType::U32 | DType::I64 | DType::U8 => None,
    }
}

fn position<const N: usize>(bytes: &[u8], bad: impl Fn([u8; N]) -> bool) -> Option<usize> {
    bytes.as_chunks::<N>().0.iter().position(|&b| bad(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_stable_and_unknown_ones_are_refused() {
        for (i, kind) in SectionKind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.tag()), i + 1);
            assert_eq!(SectionKind::try_from(kind.tag()), Ok(kind));
        }
        assert_eq!(SectionKind::try_from(0), Err(UnknownSection(0)));
        let json = r#"{"kind":10,"dtype":"f32","shape":[1]}"#;
        let error = serde_json::from_str::<Section>(json).unwrap_err();
        assert!(error.to_string().contains("unknown section kind 10"), "{error}");
    }

    #[test]
    fn sizes_do_not_wrap() {
        let section = |shape: &[u64]| Section::new(SectionKind::State, DType::F32, shape);
        assert_eq!(section(&[2, 3, 4]).bytes(), Some(96));
        assert_eq!(section(&[1 << 32, 1 << 31, 1]).bytes(), None);
        assert_eq!(section(&[u64::MAX, 0, 1]).bytes(), None);
    }

    #[test]
    fn non_finite_values_are_found_in_every_float_type() {
        let f32s = [0.0f32, -1.0, f32::MAX, f32::MIN_POSITIVE, f32::NAN];
        let bytes: Vec<u8> = f32s.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(first_non_finite(DType::F32, &bytes), Some(4));
        assert_eq!(first_non_finite(DType::F32, &bytes[..16]), None);
        let f64s: Vec<u8> = [f64::MAX, f64::NEG_INFINITY].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(first_non_finite(DType::F64, &f64s), Some(1));
        // bf16: 1.0, the largest finite value, +inf. f16: the same.
        let bf16 = [0x80, 0x3f, 0x7f, 0x7f, 0x80, 0x7f];
        assert_eq!(first_non_finite(DType::BF16, &bf16), Some(2));
        let f16 = [0x00, 0x3c, 0xff, 0x7b, 0x00, 0xfc];
        assert_eq!(first_non_finite(DType::F16, &f16), Some(2));
        assert_eq!(first_non_finite(DType::U32, &[0xff; 8]), None);
    }
}
