//! Correct rounding of f64 to formats with fewer bits, in one step.
//!
//! Conversion functions are not used for this: those of the `half` crate drop low bits or go through f32 first,
//! depending on the processor, and so round some values twice. Here every value is rounded once, the same everywhere,
//! and the conversion that follows is exact.

use super::error::StorageError;

/// `2^exponent` for an exponent of a normal f64.
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// `floor(log2 |x|)` for a normal f64; at most -1023 for smaller ones.
pub(super) fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// The nearest number with `bits` significant bits, ties to even. Below the magnitude `normal` it is the nearest
/// multiple of `quantum` instead, ties to even.
///
/// The error is at most `u/(1 + u)·|x|` with `u = 2^-bits` (attained at `1 + u`), or `quantum/2` below `normal`. The
/// division and the product are exact, being by powers of two; where the quotient underflows it rounds to 0 anyway.
pub(super) fn nearest(x: f64, bits: u32, normal: f64, quantum: f64) -> f64 {
    let quantum = if x.abs() < normal { quantum } else { power_of_two(exponent(x) - bits as i32 + 1) };
    (x / quantum).round_ties_even() * quantum
}

/// `u/(1 + u)` with `u = 2^-bits`: the largest relative error of rounding to `bits` significant bits.
pub(super) fn relative_error(bits: u32) -> f64 {
    let u = power_of_two(-(bits as i32));
    // One rounding upwards, so that the quotient is not below the true one.
    u / (1.0 + u) * (1.0 + f64::EPSILON)
}

/// Smallest normal f32.
pub(super) const F32_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// [`nearest`] with the exponents of f32, without its subnormals.
pub(super) fn nearest_f32_range(x: f64, bits: u32) -> f64 {
    nearest(x, bits, F32_NORMAL, F32_NORMAL)
}

/// `rounded` if it lies in f32's range, else the error that names the value it came from.
pub(super) fn in_range(form: &'static str, index: usize, value: f64, rounded: f64) -> Result<f64, StorageError> {
    // False for a NaN too.
    if rounded.abs() <= f64::from(f32::MAX) {
        Ok(rounded)
    } else {
        Err(StorageError::OutOfRange { form, index, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn agrees_with_the_processor_where_f32_is_normal() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let x = rng.normal() * rng.power(-37.0, 37.0);
            let expect = if (x as f32).is_normal() { f64::from(x as f32) } else { nearest_f32_range(x, 24) };
            assert_eq!(nearest_f32_range(x, 24), expect);
        }
        assert_eq!(nearest_f32_range(0.51 * F32_NORMAL, 24), F32_NORMAL);
        assert_eq!(nearest_f32_range(-0.49 * F32_NORMAL, 24), 0.0);
        assert_eq!(nearest_f32_range(5e-324, 24), 0.0);
    }

    #[test]
    fn ties_go_to_even_and_a_bit_above_a_tie_goes_up() {
        // 11 bits: the neighbours of 1 + 2^-11 are 1 (even) and 1 + 2^-10.
        let tie = 1.0 + power_of_two(-11);
        assert_eq!(nearest(tie, 11, 1e-30, 1e-30), 1.0);
        assert_eq!(nearest(tie + f64::EPSILON, 11, 1e-30, 1e-30), 1.0 + power_of_two(-10));
        assert_eq!(nearest(1.0 + 3.0 * power_of_two(-11), 11, 1e-30, 1e-30), 1.0 + power_of_two(-9));
        // The bound of the relative error is attained here, to the last bit or so.
        let error = (tie - 1.0) / tie / relative_error(11);
        assert!((1.0 - error).abs() < 1e-15, "{error}");
    }

    #[test]
    fn the_largest_values_are_in_range_and_the_next_are_not() {
        let max = f64::from(f32::MAX);
        let f24 = |x: f64| in_range("f24", 3, x, nearest_f32_range(x, 16));
        assert!(f24(f64::from(f32::from_bits(0x7f7f_ff00))).is_ok());
        assert_eq!(f24(max), Err(StorageError::OutOfRange { form: "f24", index: 3, value: max }));
        assert!(f24(f64::MAX).is_err() && f24(f64::NAN).is_err() && f24(-max).is_err());
    }
}
