//! How far a result is off, group by group.

use crate::report::Check;
use crate::tolerance::Tolerance;

/// Compares groups of equal length (a head, a row, a single value), one for each scale. A group's error is the Euclidean
/// norm of its difference, its bound that of `tolerance` for its scale; the check holds the group that uses the largest
/// share of its bound, and the index of the largest difference in it.
pub(crate) fn groups(name: &str, found: &[f64], reference: &[f64], scales: &[f64], tolerance: Tolerance) -> Check {
    let mut check = Check { name: name.to_owned(), elements: reference.len(), error: 0.0, bound: 0.0, at: 0 };
    let size = reference.len() / scales.len().max(1);
    if size == 0 || size * scales.len() != reference.len() || found.len() != reference.len() {
        check.error = f64::INFINITY;
        return check;
    }
    let mut worst = -1.0;
    for (i, scale) in scales.iter().enumerate() {
        let range = i * size..(i + 1) * size;
        let off = |j: usize| (found[j] - reference[j]).abs();
        let error = norm(&range.clone().map(off).collect::<Vec<_>>());
        let error = if error.is_nan() { f64::INFINITY } else { error };
        // A reference that is no number bounds nothing.
        let bound = Some(tolerance.bound(*scale)).filter(|b| b.is_finite()).unwrap_or_default();
        let share = if error == 0.0 { 0.0 } else { error / bound };
        if share > worst {
            worst = share;
            (check.error, check.bound) = (error, bound);
            // Not a number is the largest of all.
            check.at = range.max_by(|&a, &b| off(a).total_cmp(&off(b))).unwrap_or_default();
        }
    }
    check
}

/// [`groups`] of one value each, scaled by its own magnitude.
pub(super) fn values(name: &str, found: &[f64], reference: &[f64], tolerance: Tolerance) -> Check {
    let scales: Vec<f64> = reference.iter().map(|r| r.abs()).collect();
    groups(name, found, reference, &scales, tolerance)
}

/// [`groups`] of `size` values, scaled by their norm.
pub(super) fn rows(name: &str, found: &[f64], reference: &[f64], size: usize, tolerance: Tolerance) -> Check {
    groups(name, found, reference, &norms(reference, size), tolerance)
}

/// Euclidean norm, without overflow or underflow of the squares.
pub(crate) fn norm(x: &[f64]) -> f64 {
    if x.iter().any(|x| x.is_nan()) { f64::NAN } else { seam_algebra::frobenius(x) }
}

/// The norms of groups of `size` values.
pub(crate) fn norms(x: &[f64], size: usize) -> Vec<f64> {
    x.chunks_exact(size.max(1)).map(norm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIGHT: Tolerance = Tolerance { absolute: 0.0, relative: 1e-3 };

    #[test]
    fn the_group_with_the_largest_share_counts() {
        // The second group is off by more, the first by a larger share of its scale.
        let reference = [1.0, 0.0, 1000.0, 0.0];
        let check = rows("x", &[1.0, 0.002, 1000.0, 0.5], &reference, 2, TIGHT);
        assert_eq!((check.error, check.bound, check.at), (0.002, 1e-3, 1));
        assert!(!check.passed());
        assert!(rows("x", &[1.0, 0.0005, 1000.0, 0.5], &reference, 2, TIGHT).passed());
    }

    #[test]
    fn nothing_passes_that_is_not_there_or_not_a_number() {
        assert!(!rows("x", &[f64::NAN, 0.0], &[1.0, 0.0], 2, TIGHT).passed());
        assert!(!values("x", &[1.0, f64::NAN], &[1.0, 0.0], TIGHT).passed());
        assert!(!values("x", &[1.0, 1e-9], &[1.0, 0.0], TIGHT).passed(), "a zero must be a zero");
        assert!(!values("x", &[f64::INFINITY], &[f64::INFINITY], TIGHT).passed());
        assert!(!values("x", &[1.0], &[1.0, 0.0], TIGHT).passed());
        assert!(!values("x", &[], &[], TIGHT).passed());
        assert!(values("x", &[1.0, 0.0], &[1.0, 0.0], TIGHT).passed());
    }
}
