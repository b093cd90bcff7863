//! Lightning attention (MiniMax, Ring): `S = e^(−s_h f_l) S + k vᵀ`, a fixed decay per head and layer. Ring rotates its keys
//! (partly), MiniMax does not; the state moves by `S(p+Δ) = R(Δ)·S(p)` either way.

use crate::error::AlgebraError;
use crate::family::{DecayKind, Family, UpdateKind};
use crate::inputs::Inputs;
use crate::strategy::Case;

/// Lightning attention.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lightning;

/// How the slopes shrink with the layer `l` of `L`, counted from 0 over all layers. Two readings of one model were
/// published, and for the last layers they differ by a factor of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// `f = 1 − l/(L−1) + 1e-5`: the serving engines and the training code.
    Serving,
    /// `f = 1 − (l−1)/(L−1) + 1e-5`: the remote code on the model hub.
    Hub,
}

impl Family for Lightning {
    fn name(&self) -> &'static str {
        "lightning"
    }

    fn decay(&self) -> DecayKind {
        DecayKind::Fixed
    }

    fn update(&self) -> UpdateKind {
        UpdateKind::Add
    }

    fn rotated_keys(&self) -> bool {
        true
    }

    /// Any layer of a stack of 2 to 80, in either schedule.
    fn adapt(&self, case: &Case, x: &mut Inputs) {
        let mut rng = case.rng(20);
        let layers = 2 + rng.up_to(78);
        let layer = rng.up_to(layers - 1);
        let schedule = if rng.chance(0.5) { Schedule::Serving } else { Schedule::Hub };
        let factor = factor(layer, layers, schedule);
        x.g = slope_list(x.sizes.value_heads).iter().map(|slope| -slope * factor).collect();
    }
}

fn factor(layer: usize, layers: usize, schedule: Schedule) -> f64 {
    let position = match schedule {
        Schedule::Serving => layer as f64,
        Schedule::Hub => layer as f64 - 1.0,
    };
    1.0 - position / (layers as f64 - 1.0) + 1e-5
}

/// `2^(−8(h+1)/H)` for a power of two, otherwise the list of the next lower one followed by every other entry of the
/// doubled list, as ALiBi (Press et al. 2022) does.
fn slope_list(heads: usize) -> Vec<f64> {
    let power = |n: usize| (0..n).map(move |h| (-8.0 * (h as f64 + 1.0) / n as f64).exp2());
    let floor = if heads == 0 { 0 } else { 1 << heads.ilog2() };
    power(floor).chain(power(2 * floor).step_by(2)).take(heads).collect()
}

/// Slopes `[heads]` before the layer's factor.
///
/// # Errors
/// No heads.
pub fn slopes(heads: usize) -> Result<Vec<f64>, AlgebraError> {
    if heads == 0 {
        return Err(AlgebraError::Dimension { what: "heads", value: 0, reason: "must be at least 1" });
    }
    Ok(slope_list(heads))
}

/// Log-gates `[heads]` of one layer: `−slope · f`.
///
/// # Errors
/// No heads, fewer than two layers, a layer beyond the last.
pub fn log_gates(heads: usize, layer: usize, layers: usize, schedule: Schedule) -> Result<Vec<f64>, AlgebraError> {
    if layers < 2 {
        return Err(AlgebraError::Dimension { what: "layers", value: layers, reason: "must be at least 2" });
    }
    if layer >= layers {
        return Err(AlgebraError::Dimension { what: "layer", value: layer, reason: "beyond the last layer" });
    }
    let factor = factor(layer, layers, schedule);
    Ok(slopes(heads)?.iter().map(|slope| -slope * factor).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;
    use crate::matrix::{distance, frobenius};
    use crate::rerotate::{Decay, Pairing, Rotation};
    use crate::sizes::Sizes;

    #[test]
    fn goldens() {
        // The file holds a gate a token, rounded to f32.
        assert_eq!(Golden::open("lightning").hold(&Lightning, DecayKind::Scalar), 13);
    }

    /// Keys rotated at several positions, as Ring (partly) and RetNet (over all dims) have them: the state computed at each
    /// is the rotation of the one at 0, and the outputs are the same.
    #[test]
    fn rotated_goldens() {
        let golden = Golden::open("rope_shift");
        for (case, rot, theta) in [("full_t65", 16, 1e4), ("partial_t130", 8, 6e5), ("partial_wide_t64", 32, 1e6)] {
            let array = |name: &str| golden.get(&format!("{case}/{name}")).unwrap();
            let rotation = Rotation::rope(Pairing::Halves, rot, theta).unwrap();
            let (k, v) = (array("k_raw"), array("v"));
            let (tokens, key_dim) = (k.shape[0], k.shape[2]);
            let sizes = Sizes { tokens, key_heads: 2, value_heads: 2, key_dim, value_dim: v.shape[2] };
            let at = |position: i64| {
                let turned = |name: &str| {
                    let mut rows = array(name).values;
                    for (i, row) in rows.chunks_exact_mut(key_dim).enumerate() {
                        rotation.rotate(row, key_dim, 1, position + i as i64 / 2).unwrap();
                    }
                    rows
                };
                let (q, k) = (turned("q_raw"), turned("k_raw"));
                let plain = Inputs::new(sizes, q, k, array("v").values, (key_dim as f64).powf(-0.5));
                Inputs { g: array("g").values[..2].to_vec(), decay: DecayKind::Fixed, ..plain }
            };
            let here = Lightning.operator(&at(0), 0..tokens).unwrap();
            for position in [0, 1, 37, 4096, 100_000] {
                let want = array(&format!("s_at_{position}")).values;
                let there = Lightning.operator(&at(position), 0..tokens).unwrap();
                for (i, want) in want.chunks_exact(key_dim * sizes.value_dim).enumerate() {
                    let moved = rotation.rerotate(&here[i], Decay::Scalar, position).unwrap();
                    // Angles up to 1e5 rounded to 1e-11; their frequencies come from two implementations of a power.
                    let error = |got: &[f64]| distance(got, want) / frobenius(want);
                    assert!(error(there[i].state()) < 1e-11 && error(moved.state()) < 1e-11, "{case} {position}");
                }
            }
            for position in [0, 37] {
                let run = Lightning.run(&at(position), &Lightning.zero_state(&sizes)).unwrap();
                let want = array(&format!("o_at_{position}")).values;
                let largest = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                // One rounding to f32 in the file.
                let off = |(got, want): (&f64, &f64)| (got - want).abs() > 6e-8 * want.abs() + 1e-12 * largest;
                assert!(!run.o.iter().zip(&want).any(off), "{case} {position}");
            }
        }
    }

    #[test]
    fn both_schedules_are_the_published_ones() {
        let ops = Golden::open("ops");
        for heads in [4, 12, 16, 32, 64] {
            let close = |own: f64, file: f64| {
                // Powers and products of a few factors near 1.
                assert!((own / file - 1.0).abs() < 1e-14, "{heads} heads: {own:e} against {file:e}");
            };
            let base = ops.values(&format!("slopes_h{heads}/base"));
            base.iter().zip(slopes(heads).unwrap()).for_each(|(&f, own)| close(own, f));
            for (name, schedule) in [("serving", Schedule::Serving), ("hub", Schedule::Hub)] {
                let file = ops.values(&format!("slopes_h{heads}/{name}"));
                for (layer, row) in file.chunks_exact(heads).enumerate() {
                    let own = log_gates(heads, layer, 20, schedule).unwrap();
                    row.iter().zip(own).for_each(|(&f, own)| close(-own, f));
                }
            }
        }
    }

    #[test]
    fn impossible_layers_are_errors() {
        for (heads, layer, layers) in [(0, 0, 2), (4, 2, 2), (4, 0, 1), (4, 0, 0)] {
            let error = log_gates(heads, layer, layers, Schedule::Serving);
            assert!(matches!(error, Err(AlgebraError::Dimension { .. })));
        }
        assert!(slopes(0).is_err());
    }
}
