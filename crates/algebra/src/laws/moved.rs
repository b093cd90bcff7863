//! The law of moving an operator, on a subject: its operators of rotated keys, rotated further, are those it computes
//! further on, and a chain that applies them moved is a run of the tokens further on.

use super::measure::{Reference, operator_errors, relative_error};
use super::properties::{Check, Done};
use super::subject::{ChainStep, SubjectError};
use crate::error::AlgebraError;
use crate::inputs::Inputs;
use crate::operator::Operator;
use crate::rerotate::{Decay, Pairing, Rotation};

impl Check<'_> {
    pub(super) fn rerotation(&mut self) -> Done {
        let (mut rng, dim) = (self.case.rng(11), self.x.sizes.key_dim);
        let pairing = if rng.chance(0.5) { Pairing::Halves } else { Pairing::Interleaved };
        let rotation = Rotation::rope(pairing, 2 * (1 + rng.up_to((dim / 2).saturating_sub(1))), 1e4)?;
        let mut far = || {
            let top = if rng.chance(0.5) { 64 } else { (1 << 18) - 1 };
            rng.up_to(top) as i64
        };
        let (position, distance) = (far(), 1 + far());
        let delta = if rng.chance(0.5) { distance } else { -distance };

        let whole = self.x.clone();
        let here = self.subject.operator(&self.at(&whole, &rotation, position)?, 0)?;
        let decay = self.family.decay().on_pairs();
        if decay == Decay::Diagonal {
            return self.refused(&here, &rotation, delta);
        }
        let moved = rotation.rerotate_heads(&here, decay, delta)?;
        let there = self.at(&whole, &rotation, position.saturating_add(delta))?;
        let scale = self.scale_of(&there)?;
        let there = self.subject.operator(&there, 0)?;
        let (transition, state) = operator_errors(&moved, &there, &scale)?;
        // The angles p·f, Δ·f and (p+Δ)·f, each rounded by at most half an ulp: 1.5 ε·reach·f together, with f falling from 1
        // over the pairs, and tokens averaging out. A third of that. T is turned on both sides.
        let reach = (position.unsigned_abs() + delta.unsigned_abs()) as f64 + self.tokens() as f64;
        let angles = 0.5 * reach * f64::EPSILON;
        self.worst.note("moved operator S", state, self.tolerances.state + angles);
        self.worst.note("moved operator T", transition, self.tolerances.transition + 2.0 * angles);

        let end = rng.up_to(self.tokens());
        let start = rng.up_to(end);
        self.moved_chain(start..end, &rotation, (position, delta), 2.0 * angles)
    }

    /// Tokens `segment` computed with the first one at `position`, applied `delta` further on between runs of the tokens
    /// before and after, against the run of all of them with the segment's keys at `position + delta`.
    fn moved_chain(
        &mut self,
        segment: std::ops::Range<usize>,
        rotation: &Rotation,
        (position, delta): (i64, i64),
        angles: f64,
    ) -> Done {
        let (start, end) = (segment.start, segment.end);
        let (before, inside) = (self.x.slice(0..start)?, self.x.slice(segment)?);
        let after = self.x.slice(end..self.tokens())?;
        let operators = self.subject.operator(&self.at(&inside, rotation, position)?, 0)?;
        let there = self.at(&inside, rotation, position.saturating_add(delta))?;
        let plain = before.followed_by(&there)?.followed_by(&after)?;
        let want = Reference::new(self.family, &plain, &self.s0)?;
        let moved = ChainStep::Moved { operators: &operators, rotation, delta };
        let got = self.walk(&[ChainStep::Run(&before), moved, ChainStep::Run(&after)])?;
        let error = self.space().error("state", &got.state, &want.run.state, &want.state_scale)?;
        self.worst.note("state behind a moved segment", error, self.tolerances.state + angles);
        let heads = self.x.sizes.value_heads;
        let outside = |x: &[f64], row: usize| [&x[..start * row], &x[end * row..]].concat();
        let outputs = outside(&want.run.o, heads * self.x.sizes.value_dim);
        let error = relative_error("outputs", &got.o, &outputs, &outside(&want.output_scale, heads))?;
        self.worst.note("outputs around a moved segment", error, self.tolerances.output + angles);
        Ok(())
    }

    /// Where decays differ dim by dim, moving is refused: by the algebra and by the subject's chain.
    fn refused(&mut self, operators: &[Operator], rotation: &Rotation, delta: i64) -> Done {
        let decay = Decay::Diagonal;
        let refuses = |op| matches!(rotation.rerotate(op, decay, delta), Err(AlgebraError::RotationImpossible { .. }));
        let error = if operators.iter().all(refuses) { 0.0 } else { f64::INFINITY };
        self.worst.note("an impossible rotation that was not refused", error, 0.0);
        let walked = self.walk(&[ChainStep::Moved { operators, rotation, delta }]);
        let error = if walked.is_err_and(|error| is_impossible(&error)) { 0.0 } else { f64::INFINITY };
        self.worst.note("an impossible move that the subject's chain did not refuse", error, 0.0);
        Ok(())
    }

    /// `x` with the keys of token t rotated to `position + t`.
    fn at(&self, x: &Inputs, rotation: &Rotation, position: i64) -> Result<Inputs, AlgebraError> {
        let (mut x, dim) = (x.clone(), x.sizes.key_dim);
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

/// Whether an error says that no rotation is the moved state; a subject may wrap it in one of its own.
fn is_impossible(error: &SubjectError) -> bool {
    let found = |error: &AlgebraError| matches!(error, AlgebraError::RotationImpossible { .. });
    match error {
        SubjectError::Algebra(error) => found(error),
        SubjectError::Failed { source, .. } => {
            let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&**source);
            while let Some(error) = next {
                if error.downcast_ref::<AlgebraError>().is_some_and(found) {
                    return true;
                }
                next = error.source();
            }
            false
        }
        SubjectError::NotApplicable { .. } => false,
    }
}
