//! The law of moving an operator, on a subject: its operators of rotated keys, rotated further, are those it computes
//! further on.

use super::measure::operator_errors;
use super::properties::{Check, Done};
use crate::error::AlgebraError;
use crate::inputs::Inputs;
use crate::rerotate::{Decay, Pairing, Rotation};

impl Check<'_> {
    pub(super) fn rerotation(&mut self) -> Done {
        let (mut rng, dim) = (self.case.rng(11), self.x.sizes.key_dim);
        let pairing = if rng.chance(0.5) { Pairing::Halves } else { Pairing::Interleaved };
        let rotation = Rotation::rope(pairing, 2 * (1 + rng.up_to((dim / 2).saturating_sub(1))), 1e4)?;
        let mut far = || {
            let top = if rng.chance(0.5) { 64 } else { 1 << 18 };
            rng.up_to(top) as i64
        };
        let (position, distance) = (far(), 1 + far());
        let delta = if rng.chance(0.5) { distance } else { -distance };

        let here = self.subject.operator(&self.at(&rotation, position)?, 0)?;
        let decay = self.family.decay().on_pairs();
        if decay == Decay::Diagonal {
            let refused =
                |op| matches!(rotation.rerotate(op, decay, delta), Err(AlgebraError::RotationImpossible { .. }));
            let error = if here.iter().all(refused) { 0.0 } else { f64::INFINITY };
            self.worst.note("an impossible rotation that was not refused", error, 0.0);
            return Ok(());
        }
        let moved = here.iter().map(|op| rotation.rerotate(op, decay, delta)).collect::<Result<Vec<_>, _>>()?;
        let there = self.at(&rotation, position + delta)?;
        let scale = self.scale_of(&there)?;
        let there = self.subject.operator(&there, 0)?;
        let (transition, state) = operator_errors(&moved, &there, &scale)?;
        // The angles p·f, Δ·f and (p+Δ)·f, each rounded by at most half an ulp: 1.5 ε·reach·f together, with f falling from 1
        // over the pairs, and tokens averaging out. A third of that. T is turned on both sides.
        let reach = (position.unsigned_abs() + delta.unsigned_abs()) as f64 + self.tokens() as f64;
        let angles = 0.5 * reach * f64::EPSILON;
        self.worst.note("moved operator S", state, self.tolerances.state + angles);
        self.worst.note("moved operator T", transition, self.tolerances.transition + 2.0 * angles);
        Ok(())
    }

    /// The case's inputs with the keys of token t rotated to `position + t`.
    fn at(&self, rotation: &Rotation, position: i64) -> Result<Inputs, AlgebraError> {
        let (mut x, dim) = (self.x.clone(), self.x.sizes.key_dim);
        let token = x.writes * x.sizes.key_heads * dim;
        for (t, keys) in x.k.chunks_exact_mut(token).enumerate() {
            for key in keys.chunks_exact_mut(dim) {
                rotation.rotate(key, dim, 1, position.saturating_add(t as i64))?;
            }
        }
        if self.subject.limits().rounding == crate::strategy::Rounding::F32 {
            x.round_to_f32();
        }
        Ok(x)
    }
}
