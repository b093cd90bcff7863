//! Weights must be numbers: a NaN or an infinity in a weight file is an error at load, not garbage later.

use half::{bf16, f16};
use seam_device::{DType, e4m3};

use super::error::WeightsError;
use super::tensor::HostTensor;

/// Checks that every element of a float tensor is finite. Tensors of whole numbers pass.
///
/// # Errors
/// [`WeightsError::NonFinite`] with the first bad element.
pub fn check_finite(tensor: &HostTensor) -> Result<(), WeightsError> {
    // A value is not finite iff its exponent bits are all ones (FP8: and its mantissa); testing bits needs no conversion.
    let index = match tensor.dtype {
        DType::F64 => first(tensor, u64::from_le_bytes, |v| v & EXP64 == EXP64),
        DType::F32 => first(tensor, u32::from_le_bytes, |v| v & 0x7f80_0000 == 0x7f80_0000),
        DType::F16 => first(tensor, u16::from_le_bytes, |v| v & 0x7c00 == 0x7c00),
        DType::BF16 => first(tensor, u16::from_le_bytes, |v| v & 0x7f80 == 0x7f80),
        DType::F8E4M3 => first(tensor, |[byte]: [u8; 1]| byte, |v| v & 0x7f == 0x7f),
        DType::U32 | DType::I64 | DType::U8 => None,
    };
    match index {
        None => Ok(()),
        Some(index) => Err(WeightsError::NonFinite { tensor: tensor.name.clone(), index, value: value(tensor, index) }),
    }
}

const EXP64: u64 = 0x7ff << 52;

/// Index of the first bad element.
fn first<const N: usize, T: Copy>(
    tensor: &HostTensor,
    read: fn([u8; N]) -> T,
    bad: impl Fn(T) -> bool,
) -> Option<usize> {
    // Whole blocks first, without an early exit, so that the scan of gigabytes runs in vector registers.
    const BLOCK: usize = 4096;
    let (chunks, _) = tensor.bytes.as_slice().as_chunks::<N>();
    for (b, block) in chunks.chunks(BLOCK).enumerate() {
        if block.iter().fold(false, |any, c| any | bad(read(*c))) {
            return block.iter().position(|c| bad(read(*c))).map(|i| b * BLOCK + i);
        }
    }
    None
}

/// One element, for the message.
fn value(tensor: &HostTensor, index: usize) -> f64 {
    let value = match tensor.dtype {
        DType::F64 => tensor.values(f64::from_le_bytes).nth(index),
        DType::F32 => tensor.values(f32::from_le_bytes).nth(index).map(f64::from),
        DType::F16 => tensor.values(f16::from_le_bytes).nth(index).map(f64::from),
        DType::BF16 => tensor.values(bf16::from_le_bytes).nth(index).map(f64::from),
        DType::F8E4M3 => tensor.values(|[byte]: [u8; 1]| e4m3(byte)).nth(index).map(f64::from),
        DType::U32 | DType::I64 | DType::U8 => None,
    };
    value.unwrap_or(f64::NAN)
}
