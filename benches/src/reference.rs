//! What references share: f64 arithmetic, written plainly, and the choice of rows that are compared.

use seam_conformance::Check;
use seam_conformance::tolerance::Tolerance;

use crate::registry::Scale;

/// Rows that are compared where a reference in f64 for all of them would take minutes.
const SAMPLED_ROWS: u32 = 16;

/// The rows that are compared: all at the small scale, otherwise the first, the last and some between.
pub(crate) fn sampled(scale: Scale, rows: u32) -> Vec<usize> {
    if scale == Scale::Small || rows <= SAMPLED_ROWS {
        return (0..rows as usize).collect();
    }
    (0..SAMPLED_ROWS).map(|i| (u64::from(i) * u64::from(rows - 1) / u64::from(SAMPLED_ROWS - 1)) as usize).collect()
}

/// Compares some rows of an output `[_, cols]` with their references, in groups of `group` values (a row, a head, a
/// value) that are each relative to their own norm; `row` gives the reference of row r.
pub(crate) fn compare(
    name: &str,
    found: &[f32],
    (cols, group): (u32, u32),
    rows: &[usize],
    tolerance: Tolerance,
    row: impl Fn(usize) -> Vec<f64>,
) -> Check {
    let cols = cols as usize;
    let some: Vec<f32> = rows.iter().flat_map(|r| part(found, r * cols, cols)).copied().collect();
    let reference: Vec<f64> = rows.iter().flat_map(|&r| row(r)).collect();
    groups(name, &some, &reference, &norms(&reference, group as usize), tolerance)
}

/// Compares groups of equal length, one for each scale. A group's error is the Euclidean norm of its difference, its
/// bound that of `tolerance` for its scale; the check holds the group that uses the largest share of its bound.
pub(crate) fn groups(name: &str, found: &[f32], reference: &[f64], scales: &[f64], tolerance: Tolerance) -> Check {
    let mut check = Check { name: name.to_owned(), elements: reference.len(), error: 0.0, bound: 0.0, at: 0 };
    let size = reference.len() / scales.len().max(1);
    if size == 0 || size * scales.len() != reference.len() || found.len() != reference.len() {
        check.error = f64::INFINITY;
        return check;
    }
    let mut worst = -1.0;
    let pairs = found.chunks_exact(size).zip(reference.chunks_exact(size)).zip(scales);
    for (i, ((found, reference), scale)) in pairs.enumerate() {
        let square = |(f, r): (&f32, &f64)| (f64::from(*f) - r).powi(2);
        let error = found.iter().zip(reference).map(square).sum::<f64>().sqrt();
        let error = if error.is_nan() { f64::INFINITY } else { error };
        let bound = tolerance.bound(*scale);
        let share = if error == 0.0 { 0.0 } else { error / bound };
        if share > worst {
            worst = share;
            (check.error, check.bound, check.at) = (error, bound, i * size);
        }
    }
    check
}

/// The Euclidean norms of groups of `size` values.
pub(crate) fn norms(x: &[f64], size: usize) -> Vec<f64> {
    x.chunks_exact(size.max(1)).map(|x| dot(x, x).sqrt()).collect()
}

/// `len` values from `from` on; none if there are not as many, which no comparison passes.
pub(crate) fn part(values: &[f32], from: usize, len: usize) -> &[f32] {
    values.get(from..from + len).unwrap_or_default()
}

/// Output `i`; empty if it is missing.
pub(crate) fn output(outputs: &[Vec<f32>], i: usize) -> &[f32] {
    outputs.get(i).map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The word in the place of a float, as a number; one that no float holds exactly is none.
pub(crate) fn word(x: f32) -> f32 {
    let word = x.to_bits();
    if word < 1 << 24 { word as f32 } else { f32::NAN }
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// Rotates the first `rot` elements in NeoX halves by `position·theta^(−2i/rot)`.
pub(crate) fn rotated(x: &[f64], rot: u32, theta: f64, position: u32) -> Vec<f64> {
    let half = rot as usize / 2;
    let mut out = x.to_vec();
    for i in 0..half {
        let angle = f64::from(position) * theta.powf(-2.0 * i as f64 / f64::from(rot));
        let (sin, cos) = angle.sin_cos();
        out[i] = x[i] * cos - x[i + half] * sin;
        out[i + half] = x[i + half] * cos + x[i] * sin;
    }
    out
}

#[cfg(test)]
mod tests {
    use seam_conformance::tolerance::{APPLIED, EXACT};

    use super::*;

    #[test]
    fn samples_hold_the_borders() {
        assert_eq!(sampled(Scale::Small, 40).len(), 40);
        let some = sampled(Scale::Real, 512);
        assert_eq!((some.len(), some[0], some[15]), (16, 0, 511));
        assert!(some.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(sampled(Scale::Real, 3), [0, 1, 2]);
    }

    #[test]
    fn rotations_add_up() {
        let x = [0.3, -1.0, 2.0, 0.5, 9.0];
        let once = rotated(&x, 4, 1e4, 12);
        let twice = rotated(&rotated(&x, 4, 1e4, 5), 4, 1e4, 7);
        // A few roundings of numbers below 3.
        assert!(once.iter().zip(&twice).all(|(a, b)| (a - b).abs() < 1e-14));
        assert_eq!(once[4], 9.0);
    }

    #[test]
    fn a_short_output_fails() {
        let check = |found: &[f32]| compare("x", found, (2, 1), &[0, 1], EXACT, |_| vec![1.0, 2.0]);
        assert!(check(&[1.0, 2.0, 1.0, 2.0]).passed());
        assert!(!check(&[1.0, 2.0, 1.0]).passed());
        assert!(!check(&[]).passed());
    }

    #[test]
    fn the_group_with_the_largest_share_counts() {
        // Of a scale of 1 and a bound of 5e-7; the second group is off by more, but its scale is larger.
        let check = groups("x", &[1.0, 1e-6, 1e4, 1e-4], &[1.0, 0.0, 1e4, 0.0], &[1.0, 1e4], APPLIED);
        assert!(!check.passed());
        assert_eq!(check.at, 0);
        assert!(!groups("x", &[f32::NAN], &[1.0], &[1.0], APPLIED).passed());
        assert!(!groups("x", &[], &[], &[], APPLIED).passed());
    }
}
