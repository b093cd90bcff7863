//! The laws of batching along the tokens: pieces of a prompt and single decoding steps are the whole, at any cut, and every
//! length is run right.

use super::measure::{Measured, Reference};
use super::properties::{Check, Done};
use super::subject::{ChainStep, Subject, SubjectError};
use crate::error::AlgebraError;
use crate::inputs::{Inputs, Run};
use crate::rng::Rng;
use crate::strategy::Case;
use std::ops::Range;

/// Pieces after which the rest is taken at once: each is a run of its own.
const PIECES: usize = 24;

/// Ranges that cover `0..tokens` in order: prefilled pieces of any length, bursts of single tokens, now and then nothing.
fn pieces(tokens: usize, rng: &mut Rng) -> Vec<Range<usize>> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < tokens {
        let rest = tokens - at;
        if pieces.len() >= PIECES {
            pieces.push(at..tokens);
            break;
        }
        if rng.chance(0.1) {
            pieces.push(at..at);
        }
        if rng.chance(0.5) {
            let end = at + 1 + rng.up_to(rest - 1);
            pieces.push(at..end);
            at = end;
        } else {
            let end = at + (1 + rng.up_to(7)).min(rest);
            pieces.extend((at..end).map(|t| t..t + 1));
            at = end;
        }
    }
    pieces
}

impl Check<'_> {
    pub(super) fn cuts(&mut self) -> Done {
        let want = self.reference()?;
        let ranges = pieces(self.tokens(), &mut self.case.rng(12));
        self.in_pieces(&ranges, &want)
    }

    /// Runs the pieces as one chain, and as runs of their own.
    fn in_pieces(&mut self, ranges: &[Range<usize>], want: &Reference) -> Done {
        let xs =
            ranges.iter().map(|range| self.x.slice(range.clone())).collect::<Result<Vec<Inputs>, AlgebraError>>()?;
        let steps: Vec<ChainStep<'_>> = xs.iter().map(ChainStep::Run).collect();
        let chain = self.walk(&steps)?;
        self.note_run(&chain, want)?;
        let mut all = Run { o: Vec::new(), state: self.s0.clone() };
        for x in &xs {
            let run = self.subject.run(x, &all.state)?;
            all.o.extend(run.o);
            all.state = run.state;
        }
        self.note_run(&all, want)
    }
}

/// Cuts the tokens of a case in two at every place (n tokens and the rest, n from 0 to all): the two parts, as one chain and
/// as two runs, against the oracle's run of the whole. Gives the worst error of all cuts.
///
/// # Errors
/// As [`super::check`].
pub fn every_cut(subject: &mut dyn Subject, case: &Case) -> Result<Measured, SubjectError> {
    let mut check = Check::new(subject, case)?;
    let (tokens, want) = (check.tokens(), check.reference()?);
    for cut in 0..=tokens {
        check.in_pieces(&[0..cut, cut..tokens], &want)?;
    }
    Ok(check.worst)
}

/// Runs the first n tokens of a case for every n from 1 to all of them, and takes their operators: outputs, state, T and S
/// against the oracle's. Gives the worst error of all lengths.
///
/// # Errors
/// As [`super::check`]; [`SubjectError::NotApplicable`] for a case without a token.
pub fn every_length(subject: &mut dyn Subject, case: &Case) -> Result<Measured, SubjectError> {
    let mut check = Check::new(subject, case)?;
    if check.tokens() == 0 {
        return Err(SubjectError::NotApplicable { why: "no token".into() });
    }
    let ends: Vec<usize> = (1..=check.tokens()).collect();
    let zero = check.family.zero_state(&check.x.sizes);
    let runs = Reference::at(check.family, &check.x, &check.s0, &ends)?;
    let operators = Reference::at(check.family, &check.x, &zero, &ends)?;
    for ((end, run), from_zero) in ends.into_iter().zip(&runs).zip(&operators) {
        let x = check.x.slice(0..end)?;
        let got = check.subject.run(&x, &check.s0)?;
        check.note_run(&got, run)?;
        let want = check.family.operator(&x, 0..end)?;
        let got = check.subject.operator(&x, 0)?;
        check.note_operators(&got, &want, &from_zero.state_scale)?;
    }
    Ok(check.worst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::laws::OracleSubject;
    use crate::strategy::Kind;

    fn case(tokens: usize) -> Case {
        Case { seed: 21, kind: Kind::Anything, tokens, key_heads: 1, ratio: 2, key_dim: 8, value_dim: 4 }
    }

    #[test]
    fn every_cut_and_every_length_holds_in_every_family() {
        for &family in families::all() {
            let mut subject = OracleSubject::new(family);
            let cut = every_cut(&mut subject, &case(70)).unwrap();
            let length = every_length(&mut subject, &case(70)).unwrap();
            assert!(cut.holds() && length.holds(), "{}: {cut:?} {length:?}", family.name());
        }
        assert!(matches!(
            every_length(&mut OracleSubject::default(), &case(0)),
            Err(SubjectError::NotApplicable { .. })
        ));
    }

    #[test]
    fn pieces_cover_the_tokens_in_order() {
        let (mut singles, mut empty, mut longest) = (0, 0, 0);
        for seed in 0..200 {
            let tokens = seed as usize % 71;
            let pieces = pieces(tokens, &mut Rng::new(seed));
            assert!(pieces.len() <= PIECES + 9);
            let mut at = 0;
            for piece in pieces {
                assert_eq!(piece.start, at);
                at = piece.end;
                singles += usize::from(piece.len() == 1);
                empty += usize::from(piece.is_empty());
                longest = longest.max(piece.len());
            }
            assert_eq!(at, tokens);
        }
        assert!(singles > 200 && empty > 20 && longest > 60, "{singles} {empty} {longest}");
    }
}
