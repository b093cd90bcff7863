//! An entry on a device: where its KV rows, operator and conv tail lie, and how it gets there and back.

use seam_device::{DType, Device, Place, Recorder};
use seam_model::{KvSpec, LayerState, LinearSpec, Memory, StackSpec};
use seam_ops::{Form, OpError, PoolFull};

use crate::device_tier::NoRoom;
use crate::entry::{EntryBlob, EntryError, EntryHeader, LayerHeader};
use crate::key::{EntryKey, KeyParts};
use crate::policy::StorageForm;
use crate::section::{Section, SectionKind};
use crate::sequence::Sequence;

/// An entry in the shared slabs of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its name.
    pub key: EntryKey,
    /// Tokens of the segment, L.
    pub tokens: u32,
    /// Seam width w: tokens `w..L` are stored.
    pub seam: u32,
    /// Whether T is stored.
    pub transition: bool,
    /// KV rows of tokens `w..L`, in order.
    pub kv: Vec<Place>,
    /// `S`, then T if there is one, then the conv tail, in words.
    pub operator: Option<Place>,
    /// Bytes over all layers.
    pub bytes: u64,
}

/// An entry that does not fit the model it is put on.
#[derive(Debug, thiserror::Error)]
pub enum ResidentError {
    /// No room in the budget or in the slabs.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The device.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The host form.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The host form lacks something that the model's layer needs.
    #[error("entry {key}: layer {layer} has no {kind:?} of the model's shape")]
    Missing {
        /// The entry.
        key: EntryKey,
        /// The layer.
        layer: u32,
        /// What is missing.
        kind: SectionKind,
    },
}

impl From<PoolFull> for ResidentError {
    fn from(full: PoolFull) -> Self {
        Self::NoRoom(full.into())
    }
}

impl From<seam_device::DeviceError> for ResidentError {
    fn from(error: seam_device::DeviceError) -> Self {
        Self::Op(error.into())
    }
}

impl Resident {
    /// Tokens whose keys, values and operator are stored: `L − w`.
    #[must_use]
    pub fn stored(&self) -> u32 {
        self.tokens - self.seam
    }

    /// Bytes an entry of `tokens` tokens takes on a device.
    #[must_use]
    pub fn size(spec: &StackSpec, parts: &KeyParts<'_>) -> u64 {
        let stored = (parts.tokens.len() as u64).saturating_sub(u64::from(parts.policy.seam));
        let kv = spec.kv.map_or(0, |kv| kv.row_bytes() * stored * kv.layers as u64);
        let transition = parts.policy.form == StorageForm::Operator;
        kv + spec.linear.map_or(0, |l| u64::from(l.entry_words(transition)) * 4 * l.layers as u64)
    }

    /// Takes memory for the entry of `parts`.
    ///
    /// # Errors
    /// [`PoolFull`]; nothing stays allocated.
    pub fn alloc(memory: &mut Memory, spec: &StackSpec, parts: &KeyParts<'_>) -> Result<Self, PoolFull> {
        let tokens = u32::try_from(parts.tokens.len()).unwrap_or(u32::MAX);
        let seam = parts.policy.seam.min(tokens);
        let transition = parts.policy.form == StorageForm::Operator;
        let kv = if spec.kv.is_some() { memory.kv_shared.alloc_blocks(tokens - seam)? } else { Vec::new() };
        let operator = match spec.linear.map(|l| memory.operators.alloc(l.entry_words(transition))).transpose() {
            Ok(operator) => operator,
            Err(full) => {
                kv.into_iter().for_each(|place| memory.kv_shared.free(place));
                return Err(full);
            }
        };
        let bytes = Self::size(spec, parts);
        Ok(Self { key: parts.key(), tokens, seam, transition, kv, operator, bytes })
    }

    /// Gives its memory back.
    pub fn release(&self, memory: &mut Memory) {
        self.kv.iter().for_each(|place| memory.kv_shared.free(*place));
        self.operator.iter().for_each(|place| memory.operators.free(*place));
    }

    /// Records the copies from the private memory of a finished cold sequence: one contiguous piece a layer where the
    /// slabs permit it.
    ///
    /// # Errors
    /// What recording gives.
    pub fn publish(
        &self,
        recorder: &mut dyn Recorder,
        memory: &Memory,
        spec: &StackSpec,
        sequence: &Sequence,
    ) -> Result<(), OpError> {
        if let Some(kv) = spec.kv {
            let rows = sequence.kv_rows().get(self.seam as usize..).unwrap_or_default();
            for (from, to) in stretches(rows, &self.kv) {
                for layer in 0..kv.layers {
                    recorder.copy(&memory.kv_private.range(layer, from)?, &memory.kv_shared.range(layer, to)?)?;
                }
            }
        }
        if let (Some(linear), Some(to), Some(slot)) = (spec.linear, self.operator, sequence.slot()) {
            // A slot is S_run, S, T, tail; an entry is S, T, tail. Without T the running state is S.
            let skip = if self.transition { linear.state_words() } else { 0 };
            let from = Place { slab: slot.slab, offset: slot.offset + skip, len: to.len };
            for layer in 0..linear.layers {
                recorder.copy(&memory.states.range(layer, from)?, &memory.operators.range(layer, to)?)?;
            }
        }
        Ok(())
    }

    /// Reads the entry back as its host form.
    ///
    /// # Errors
    /// [`ResidentError::Entry`] for non-finite values, or what reading gives.
    pub fn download(
        &self,
        device: &dyn Device,
        memory: &Memory,
        spec: &StackSpec,
        parts: &KeyParts<'_>,
    ) -> Result<EntryBlob, ResidentError> {
        let headers = layer_headers(spec, parts);
        let mut blocks = Vec::new();
        for header in &headers {
            let layer = header.layer as usize;
            let mut sections = Vec::new();
            if let Some((kv, index)) = spec.kv.zip(spec.kv_index(layer)) {
                sections.extend(self.download_kv(device, memory, kv, index)?);
            }
            if let Some((linear, index)) = spec.linear.zip(spec.linear_index(layer)) {
                sections.extend(self.download_operator(device, memory, linear, index)?);
            }
            let sections: Vec<&[u8]> = sections.iter().map(Vec::as_slice).collect();
            blocks.push(header.pack(&sections)?);
        }
        Ok(EntryBlob::new(EntryHeader::new(parts, headers), blocks)?)
    }

    /// Keys and values of the attention layer of this number, per head.
    fn download_kv(
        &self,
        device: &dyn Device,
        memory: &Memory,
        kv: KvSpec,
        index: usize,
    ) -> Result<[Vec<u8>; 2], ResidentError> {
        let mut rows = Vec::new();
        for place in &self.kv {
            rows.extend(device.read(&memory.kv_shared.range(index, *place)?, &[])?.wait()?);
        }
        Ok(per_head(&rows, kv).into())
    }

    /// The sections of the linear layer of this number.
    fn download_operator(
        &self,
        device: &dyn Device,
        memory: &Memory,
        linear: LinearSpec,
        index: usize,
    ) -> Result<Vec<Vec<u8>>, ResidentError> {
        let Some(place) = self.operator else { return Ok(Vec::new()) };
        let words = device.read(&memory.operators.range(index, place)?, &[])?.wait()?;
        let (state, rest) = words.split_at(linear.state_words() as usize * 4);
        let t = if self.transition { linear.transition_words() as usize * 4 } else { 0 };
        let (transition, tail) = rest.split_at(t);
        // What a stack has not has no section: plain sums have no T, layers without a convolution no tail.
        let parts = [state, transition, tail].into_iter().filter(|part| !part.is_empty());
        Ok(parts.map(<[u8]>::to_vec).collect())
    }

    /// Writes a host form into the entry's memory.
    ///
    /// # Errors
    /// [`ResidentError::Missing`] if the host form does not have the model's layers and shapes; the memory then holds
    /// nothing usable.
    pub fn upload(
        &self,
        device: &dyn Device,
        memory: &Memory,
        spec: &StackSpec,
        blob: &EntryBlob,
    ) -> Result<(), ResidentError> {
        let headers = layer_headers(spec, &blob.header().key_parts());
        for wanted in &headers {
            let mut sections = Vec::new();
            for section in &wanted.sections {
                let missing = ResidentError::Missing { key: self.key, layer: wanted.layer, kind: section.kind };
                let header = blob.header().layers.iter().find(|l| l.layer == wanted.layer);
                if header.and_then(|h| h.section(section.kind)) != Some(section) {
                    return Err(missing);
                }
                sections.push(blob.section(wanted.layer, section.kind).ok_or(missing)?);
            }
            let layer = wanted.layer as usize;
            let mut sections = sections.as_slice();
            if let (Some((kv, index)), [keys, values, rest @ ..]) = (spec.kv.zip(spec.kv_index(layer)), sections) {
                sections = rest;
                let rows = per_token(keys, values, kv);
                let mut at = 0;
                for place in &self.kv {
                    let range = memory.kv_shared.range(index, *place)?;
                    device.write(&range, &rows[at..at + range.len as usize])?;
                    at += range.len as usize;
                }
            }
            if let (Some(place), Some(index)) = (self.operator, spec.linear_index(layer)) {
                device.write(&memory.operators.range(index, place)?, &sections.concat())?;
            }
        }
        Ok(())
    }
}

/// The sections of every layer of an entry, in canonical per-head form.
fn layer_headers(spec: &StackSpec, parts: &KeyParts<'_>) -> Vec<LayerHeader> {
    let stored = (parts.tokens.len() as u64).saturating_sub(u64::from(parts.policy.seam));
    let typed = |kind, dtype, shape: &[u64]| Section::new(kind, dtype, shape);
    let section = |kind, shape: &[u64]| typed(kind, DType::F32, shape);
    let one = |(layer, state): (usize, &LayerState)| {
        let mut sections = Vec::new();
        if let (true, Some(kv)) = (state.kv, spec.kv) {
            let shape = [u64::from(kv.heads), stored, u64::from(kv.head)];
            sections.extend([SectionKind::Keys, SectionKind::Values].map(|kind| typed(kind, kv.dtype, &shape)));
        }
        if let (true, Some(l)) = (state.linear, spec.linear) {
            let r = l.recurrence;
            let [hv, k, v] = [r.value_heads, r.key, r.value].map(u64::from);
            sections.push(section(SectionKind::State, &[hv, k, v]));
            if parts.policy.form == StorageForm::Operator {
                match r.form() {
                    Form::Dense => sections.push(section(SectionKind::Transition, &[hv, k, k])),
                    Form::Diagonal => sections.push(section(SectionKind::LogDecays, &[hv, k])),
                    Form::Scalar => sections.push(section(SectionKind::LogDecay, &[hv])),
                    Form::Identity | Form::Zero => {}
                }
            }
            if l.tail_words() > 0 {
                sections.push(section(SectionKind::ConvTail, &[u64::from(l.kernel) - 1, u64::from(l.channels)]));
            }
        }
        LayerHeader { layer: layer as u32, sections }
    };
    // Layers that see one token at a time leave nothing.
    spec.layers.iter().enumerate().map(one).filter(|header| !header.sections.is_empty()).collect()
}

/// `[n, 2, heads·head]` to two `[heads, n, head]`.
fn per_head(rows: &[u8], kv: KvSpec) -> (Vec<u8>, Vec<u8>) {
    let (head, width) = [kv.head, kv.width()].map(|n| n as usize * kv.dtype.size()).into();
    let take = |offset: usize| {
        (0..kv.heads as usize)
            .flat_map(|h| rows.chunks_exact(2 * width).flat_map(move |row| &row[offset + h * head..][..head]))
            .copied()
            .collect()
    };
    (take(0), take(width))
}

/// Two `[heads, n, head]` to `[n, 2, heads·head]`.
fn per_token(keys: &[u8], values: &[u8], kv: KvSpec) -> Vec<u8> {
    let (head, width) = [kv.head, kv.width()].map(|n| n as usize * kv.dtype.size()).into();
    let n = keys.len() / width;
    let mut rows = Vec::with_capacity(keys.len() * 2);
    for token in 0..n {
        for side in [keys, values] {
            for h in 0..kv.heads as usize {
                rows.extend_from_slice(&side[(h * n + token) * head..][..head]);
            }
        }
    }
    rows
}

/// Pairs of contiguous places: consecutive private rows, cut where either side jumps.
fn stretches(from: &[(u32, u32)], to: &[Place]) -> Vec<(Place, Place)> {
    let mut out: Vec<(Place, Place)> = Vec::new();
    let targets = to.iter().flat_map(|p| (p.offset..p.offset + p.len).map(|row| (p.slab, row)));
    for (&(from_slab, from_row), (to_slab, to_row)) in from.iter().zip(targets) {
        match out.last_mut() {
            Some((f, t))
                if f.slab == from_slab
                    && f.offset + f.len == from_row
                    && t.slab == to_slab
                    && t.offset + t.len == to_row =>
            {
                f.len += 1;
                t.len += 1;
            }
            _ => out.push((
                Place { slab: from_slab, offset: from_row, len: 1 },
                Place { slab: to_slab, offset: to_row, len: 1 },
            )),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use seam_model::WorkPlan;

    use super::*;

    #[test]
    fn layouts_invert_each_other() {
        for (dtype, size) in [(DType::F32, 4), (DType::BF16, 2)] {
            let kv = KvSpec { layers: 1, heads: 3, group: 1, head: 2, rot: 0, dtype };
            let rows: Vec<u8> = (0..5 * 2 * 6 * size).map(|i| i as u8).collect();
            assert_eq!(kv.row_bytes() * 5, rows.len() as u64);
            let (keys, values) = per_head(&rows, kv);
            assert_eq!(per_token(&keys, &values, kv), rows);
            // Head 1 of token 2: a row has twelve elements, its key's head 1 begins at the third.
            assert_eq!(keys[(5 + 2) * 2 * size], rows[(2 * 12 + 2) * size]);
            assert_eq!(values[(5 + 2) * 2 * size], rows[(2 * 12 + 6 + 2) * size]);
        }
    }

    /// Rows of bf16 take half the bytes, say so in their sections, and survive the journey.
    #[test]
    fn halves_have_a_wire_form() {
        let tokens: Vec<u32> = (0..13).collect();
        let kv = KvSpec { layers: 1, heads: 2, group: 4, head: 4, rot: 0, dtype: DType::BF16 };
        let spec = StackSpec {
            vocab: 1,
            hidden: 1,
            max_position: 1,
            layers: vec![LayerState::FULL],
            rotary: None,
            kv: Some(kv),
            linear: None,
            experts: None,
            work: WorkPlan::default(),
        };
        let parts = crate::testing::parts("", &tokens);
        let single = KeyParts { kv: DType::F32, ..parts };
        assert_ne!(parts.key(), single.key());
        let stored = tokens.len() as u64 - u64::from(parts.policy.seam);
        assert_eq!(Resident::size(&spec, &parts), stored * 2 * 8 * 2);
        let headers = layer_headers(&spec, &parts);
        assert!(headers[0].sections.iter().all(|s| s.dtype == DType::BF16));
        // Any bytes below 0x40 are finite.
        let rows: Vec<u8> = (0..stored * kv.row_bytes()).map(|i| (i * 7) as u8 & 0x3f).collect();
        let (keys, values) = per_head(&rows, kv);
        let block = headers[0].pack(&[&keys, &values]).unwrap();
        let blob = EntryBlob::new(EntryHeader::new(&parts, headers.clone()), vec![block.clone()]).unwrap();
        let mut bytes = Vec::new();
        crate::wire::encode(&blob, &mut bytes).unwrap();
        let back = crate::wire::decode(&bytes, &parts.key(), &tokens).unwrap();
        let section = |kind| back.section(0, kind).unwrap();
        assert_eq!(per_token(section(SectionKind::Keys), section(SectionKind::Values), kv), rows);
        assert!(crate::wire::decode(&bytes, &single.key(), &tokens).is_err(), "another dtype is another entry");
        let mixed = EntryBlob::new(EntryHeader::new(&single, headers), vec![block]);
        assert!(matches!(mixed, Err(EntryError::KvDtype { .. })), "{mixed:?}");
    }

    #[test]
    fn copies_are_cut_where_a_side_jumps() {
        let from = [(0, 5), (0, 6), (0, 7), (1, 0), (1, 1)];
        let to = [Place { slab: 2, offset: 10, len: 2 }, Place { slab: 3, offset: 0, len: 3 }];
        let cut: Vec<(u32, u32, u32, u32)> =
            stretches(&from, &to).iter().map(|(f, t)| (f.offset, t.slab, t.offset, t.len)).collect();
        assert_eq!(cut, [(5, 2, 10, 2), (7, 3, 0, 1), (0, 3, 1, 2)]);
    }
}
