//! What a twin receives: the kernel's parameters, constants and bindings, as slices.

use bytemuck::Pod;

/// One bound range, as 32-bit words.
#[derive(Debug)]
pub enum Slot<'a> {
    /// Read-only.
    Read(&'a [u32]),
    /// Read and written.
    Write(&'a mut [u32]),
    /// Already taken by the twin.
    Taken,
}

/// The arguments of one launch.
#[derive(Debug)]
pub struct Args<'a> {
    params: &'a [u8],
    constants: &'a [u32],
    slots: Vec<Slot<'a>>,
}

impl<'a> Args<'a> {
    /// Arguments in the order of the manifest entry.
    #[must_use]
    pub fn new(params: &'a [u8], constants: &'a [u32], slots: Vec<Slot<'a>>) -> Self {
        Self { params, constants, slots }
    }

    /// The parameter struct.
    #[must_use]
    pub fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    /// Constant `i`.
    #[must_use]
    pub fn constant(&self, i: usize) -> u32 {
        self.constants[i]
    }

    /// Binding `i` as words, read-only.
    #[must_use]
    pub fn words(&self, i: usize) -> &'a [u32] {
        match &self.slots[i] {
            Slot::Read(words) => words,
            _ => &[],
        }
    }

    /// Binding `i` as floats, read-only.
    #[must_use]
    pub fn floats(&self, i: usize) -> &'a [f32] {
        bytemuck::cast_slice(self.words(i))
    }

    /// Takes the writable binding `i` as floats; a second call gives nothing.
    #[must_use]
    pub fn take(&mut self, i: usize) -> &'a mut [f32] {
        bytemuck::cast_slice_mut(self.take_words(i))
    }

    /// Takes the writable binding `i` as words; a second call gives nothing.
    #[must_use]
    pub fn take_words(&mut self, i: usize) -> &'a mut [u32] {
        match std::mem::replace(&mut self.slots[i], Slot::Taken) {
            Slot::Write(words) => words,
            other => {
                self.slots[i] = other;
                &mut []
            }
        }
    }
}

/// Element `i` of a bf16 array that is packed two to a word, low half first.
#[must_use]
pub fn bf16(words: &[u32], i: usize) -> f32 {
    let word = words[i / 2];
    f32::from_bits(if i.is_multiple_of(2) { word << 16 } else { word & 0xffff_0000 })
}

/// `x·sigmoid(x)`, without overflow for any finite `x`.
#[must_use]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `1/(1+e^-x)`, without overflow.
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// `ln(1+e^x)`: the identity above 20, where the difference is below half an ulp.
#[must_use]
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Sum of products in 16 interleaved partial sums, in a fixed order.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [0.0f32; 16];
    let (a16, b16) = (a.chunks_exact(16), b.chunks_exact(16));
    let tail: f32 = a16.remainder().iter().zip(b16.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a16.zip(b16) {
        for i in 0..16 {
            acc[i] += x[i] * y[i];
        }
    }
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            acc[i] += acc[i + width];
        }
    }
    acc[0] + tail
}
