//! Tests of the host form of entries.

use super::*;
use crate::testing::{blob, f32_bytes, header, parts};

fn fault(change: impl FnOnce(&mut EntryHeader)) -> EntryError {
    let mut header = header("t", &TOKENS);
    change(&mut header);
    header.key = header.key_parts().key();
    header.validate().unwrap_err()
}

const TOKENS: [u32; 11] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5];

#[test]
fn sections_are_found_by_layer_number_and_kind() {
    let entry = blob("t", &TOKENS);
    // `testing::header`: layer 1 is linear, layer 3 attends.
    let state = entry.section(1, SectionKind::State).unwrap();
    assert_eq!(state.len(), 2 * 2 * 3 * 4);
    let tail = entry.section_host(1, SectionKind::ConvTail).unwrap();
    assert_eq!(tail.as_slice(), entry.section(1, SectionKind::ConvTail).unwrap());
    assert_eq!(entry.section(3, SectionKind::Keys).unwrap().len(), 3 * 2 * 4);
    assert_eq!(entry.section(3, SectionKind::State), None);
    assert_eq!(entry.section(0, SectionKind::State), None);
}

#[test]
fn sections_begin_aligned_and_keep_their_bytes() {
    let layer = LayerHeader {
        layer: 0,
        sections: vec![
            Section::new(SectionKind::LogDecay, DType::F32, &[3]),
            Section::new(SectionKind::StateNorm, DType::F32, &[3]),
        ],
    };
    let (a, b) = (f32_bytes(&[1.0, 2.0, 3.0]), f32_bytes(&[4.0, 5.0, 6.0]));
    let block = layer.pack(&[&a, &b]).unwrap();
    assert_eq!(block.len() as u64, layer.block_bytes().unwrap());
    assert_eq!(layer.range(SectionKind::StateNorm), Some(16..28));
    assert_eq!(&block[16..28], &b[..]);
    assert_eq!(layer.check_block(&block), Ok(()));
    let mut dirty = block.clone();
    dirty[13] = 1;
    assert_eq!(layer.check_block(&dirty), Err(EntryError::Padding(0)));
    assert!(matches!(
        layer.pack(&[&a, &b[..8]]),
        Err(EntryError::PartLength { kind: SectionKind::StateNorm, found: 8, expected: 12, .. })
    ));
    assert!(matches!(layer.pack(&[&a]), Err(EntryError::Count { found: 1, expected: 2, .. })));
}

#[test]
fn a_wrong_header_is_named() {
    assert_eq!(fault(|h| h.tokens.clear()), EntryError::NoTokens);
    assert_eq!(fault(|h| h.tokens.truncate(8)), EntryError::TooShort { tokens: 8, seam: 8 });
    assert!(matches!(fault(|h| h.role = Role::Head), EntryError::HeadPolicy(_)));
    assert_eq!(fault(|h| h.layers[1].layer = 1), EntryError::LayerOrder(1));
    assert_eq!(fault(|h| h.policy.form = StorageForm::EndState), EntryError::Transition(1));
    // One token more moves the end of every span.
    assert!(matches!(fault(|h| h.tokens.push(1)), EntryError::Shape { layer: 3, kind: SectionKind::Keys, .. }));
    assert!(matches!(
        fault(|h| h.kv = DType::F32),
        EntryError::KvDtype { found: DType::BF16, expected: DType::F32, .. }
    ));
    assert!(matches!(fault(|h| h.layers[0].sections[0].shape = vec![2, 2]), EntryError::Shape { layer: 1, .. }));
    assert!(matches!(
        fault(|h| h.layers[0].sections[1].shape = vec![2, 2, 3]),
        EntryError::Shape { kind: SectionKind::Transition, .. }
    ));
    assert_eq!(
        fault(|h| h.layers[0].sections[3] = h.layers[0].sections[0].clone()),
        EntryError::Duplicate { layer: 1, kind: SectionKind::State }
    );
}

#[test]
fn impossible_sizes_are_refused_without_wrapping() {
    let huge = |shape: [u64; 3]| fault(move |h| h.layers[0].sections[0].shape = shape.to_vec());
    assert_eq!(huge([u64::MAX, 2, 2]), EntryError::TooLarge(1));
    assert_eq!(huge([1 << 61, 1, 1]), EntryError::TooLarge(1));
    // Each layer fits, their sum does not.
    assert_eq!(
        fault(|h| {
            for layer in &mut h.layers {
                layer.sections = vec![Section::new(SectionKind::LogDecay, DType::U8, &[1 << 62])];
            }
            let mut third = h.layers[1].clone();
            third.layer = 4;
            let mut fourth = third.clone();
            fourth.layer = 5;
            h.layers.extend([third, fourth]);
        }),
        EntryError::TooLarge(5)
    );
}

#[test]
fn a_key_of_other_fields_is_refused() {
    let mut header = header("t", &TOKENS);
    header.tenant = "u".to_owned();
    assert!(matches!(header.validate(), Err(EntryError::Key { .. })));
}

#[test]
fn a_value_that_is_not_finite_is_never_stored() {
    let good = blob("t", &TOKENS);
    for (layer, kind) in [(1, SectionKind::State), (1, SectionKind::ConvTail), (3, SectionKind::Values)] {
        let header = good.header().clone();
        let mut blocks: Vec<Vec<u8>> = good.blocks().iter().map(|b| b.as_slice().to_vec()).collect();
        let at = header.layers.iter().position(|l| l.layer == layer).unwrap();
        let range = header.layers[at].range(kind).unwrap();
        // All bits set is a NaN in every float type.
        let size = header.layers[at].section(kind).unwrap().dtype.size();
        blocks[at][range.start + size..range.start + 2 * size].fill(0xff);
        assert_eq!(EntryBlob::new(header, blocks), Err(EntryError::NonFinite { layer, kind, index: 1 }));
    }
}

#[test]
fn blocks_must_match_the_header() {
    let entry = blob("t", &TOKENS);
    let blocks: Vec<Vec<u8>> = entry.blocks().iter().map(|b| b.as_slice().to_vec()).collect();
    let mut fewer = blocks.clone();
    fewer.pop();
    assert!(matches!(
        EntryBlob::new(entry.header().clone(), fewer),
        Err(EntryError::Count { what: "blocks", found: 1, expected: 2 })
    ));
    let mut short = blocks.clone();
    short[1].pop();
    assert!(matches!(EntryBlob::new(entry.header().clone(), short), Err(EntryError::BlockLength { layer: 3, .. })));
    assert_eq!(EntryBlob::new(entry.header().clone(), blocks), Ok(entry));
}

#[test]
fn bytes_grow_by_what_is_stored() {
    let entry = blob("t", &TOKENS);
    let blocks: usize = entry.blocks().iter().map(HostBytes::len).sum();
    assert!(entry.bytes() > blocks as u64);
    assert_eq!(blob("tenant", &TOKENS).bytes(), entry.bytes() + 5);
    assert_eq!(entry.header().block_bytes(), Ok(blocks as u64));
    assert_eq!(entry.header().key, parts("t", &TOKENS).key());
}
