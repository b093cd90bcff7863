//! FP8 as NVIDIA and the Open Compute Project define it for weights.

/// The value of an e4m3 number (one sign bit, four bits of exponent with bias 7, three of mantissa; no infinities): exact.
/// `0x7f` and `0xff` are no numbers.
#[must_use]
pub fn e4m3(byte: u8) -> f32 {
    let magnitude = byte & 0x7f;
    let value = match magnitude {
        0x7f => f32::NAN,
        // Exponent 0: a multiple of 2^-9.
        0..8 => f32::from(magnitude) * (1.0 / 512.0),
        // Exponent and mantissa in their places of an f32, whose bias is larger by 120.
        _ => f32::from_bits((u32::from(magnitude) << 20) + (120 << 23)),
    };
    if byte >= 0x80 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number() {
        assert_eq!(
            (e4m3(0x7e), e4m3(0xfe), e4m3(0x38), e4m3(0x01), e4m3(0x08)),
            (448.0, -448.0, 1.0, 1.0 / 512.0, 1.0 / 64.0)
        );
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        assert!(e4m3(0x80) == 0.0 && e4m3(0x80).is_sign_negative());
        for byte in 0..0x7f {
            let (exponent, mantissa) = (i32::from(byte >> 3), f64::from(byte & 7));
            let exact = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
            assert_eq!((f64::from(e4m3(byte)), f64::from(e4m3(byte | 0x80))), (exact, -exact), "{byte:#x}");
            assert!(byte == 0 || e4m3(byte) > e4m3(byte - 1));
        }
    }
}
