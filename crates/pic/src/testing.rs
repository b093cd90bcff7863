//! Small entries for this crate's tests.

use seam_device::DType;

use crate::entry::{EntryBlob, EntryHeader, LayerHeader};
use crate::key::KeyParts;
use crate::policy::{Policy, Role};
use crate::section::{Section, SectionKind};

pub(crate) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub(crate) fn parts<'a>(tenant: &'a str, tokens: &'a [u32]) -> KeyParts<'a> {
    KeyParts {
        model: [7; 32],
        layout_version: 1,
        kernel_version: 1,
        compute: DType::F32,
        kv: DType::BF16,
        policy: Policy::default(),
        role: Role::Interior,
        tenant,
        tokens,
    }
}

/// Layer 1 is linear (2 heads, K 2, V 3), layer 3 attends (1 head of 4).
pub(crate) fn header(tenant: &str, tokens: &[u32]) -> EntryHeader {
    let n = tokens.len().saturating_sub(8) as u64;
    EntryHeader::new(
        &parts(tenant, tokens),
        vec![
            LayerHeader {
                layer: 1,
                sections: vec![
                    Section::new(SectionKind::State, DType::F32, &[2, 2, 3]),
                    Section::new(SectionKind::Transition, DType::F32, &[2, 2, 2]),
                    Section::new(SectionKind::ConvTail, DType::BF16, &[3, 5]),
                    Section::new(SectionKind::LogDecay, DType::F32, &[2]),
                ],
            },
            LayerHeader {
                layer: 3,
                sections: vec![
                    Section::new(SectionKind::Keys, DType::BF16, &[1, n, 4]),
                    Section::new(SectionKind::Values, DType::BF16, &[1, n, 4]),
                ],
            },
        ],
    )
}

/// An entry of [`header`]; its values depend on its key.
pub(crate) fn blob(tenant: &str, tokens: &[u32]) -> EntryBlob {
    let header = header(tenant, tokens);
    let seed = header.key.0[0];
    let blocks = header
        .layers
        .iter()
        .map(|layer| {
            let parts: Vec<Vec<u8>> = layer
                .sections
                .iter()
                .map(|section| {
                    // Bytes below 0x40 are finite in every float type.
                    (0..section.bytes().unwrap())
                        .map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed) & 0x3f)
                        .collect()
                })
                .collect();
            layer.pack(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
        })
        .collect();
    EntryBlob::new(header, blocks).unwrap()
}
