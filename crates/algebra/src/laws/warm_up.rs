//! The law of segments behind a causal convolution: where an entry must start, and where it must not.
//!
//! Raw rows q, k, v go through a random convolution (and, for a delta update, a normalisation of the keys, as in the models);
//! gates and extras are taken as given. Where a model computes those from convolved rows too, they change within the same
//! first `kernel − 1` tokens, which are recomputed anyway.

use super::measure::{Measured, Reference, relative_error};
use super::properties::{Check, VISIBLE};
use super::subject::{ChainStep, Subject, SubjectError};
use crate::conv::CausalConv;
use crate::error::AlgebraError;
use crate::family::{Family, UpdateKind};
use crate::inputs::Inputs;
use crate::operator::apply_heads;
use crate::rng::{Rng, normalise};
use crate::strategy::{Case, Rounding};
use std::ops::Range;

/// What the convolution law found on one case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUp {
    /// Tokens of the interior: those that came from the entry.
    pub interior: usize,
    /// Error of the entry that starts at token `kernel − 1`, behind the true tail.
    pub behind_warm_up: Measured,
    /// Relative error of the oracle's state with an entry that starts at token 0: what leaving out the warm-up costs.
    pub from_zero: f64,
}

/// Runs the convolution law on one case with an interior of `interior` tokens and reports both of its sides.
///
/// # Errors
/// As [`super::check`]; [`SubjectError::NotApplicable`] for a family without a convolution or an interior of 0.
pub fn warm_up(subject: &mut dyn Subject, case: &Case, interior: usize) -> Result<WarmUp, SubjectError> {
    let refuse = |why: &str| Err(SubjectError::NotApplicable { why: why.into() });
    if let Some(why) = super::Law::Convolution.silent_on(subject.family()) {
        return refuse(why);
    }
    if interior == 0 {
        return refuse("an interior of no token");
    }
    let tokens = case.tokens.max(tokens(subject.family()).saturating_add(interior - 1));
    let mut check = Check::new(subject, &Case { tokens, ..*case })?;
    let from_zero = check.convolution(Some(interior))?;
    Ok(WarmUp { interior, behind_warm_up: check.worst, from_zero })
}

/// Fewest tokens that show anything: one before the segment, the warm-up, one inside, one behind it.
pub(super) fn tokens(family: &dyn Family) -> usize {
    family.conv_kernel().unwrap_or(1).saturating_add(2)
}

/// The convolutions of q, k and v.
struct Convs([CausalConv; 3]);

impl Convs {
    fn new(x: &Inputs, kernel: usize, rng: &mut Rng) -> Result<Self, AlgebraError> {
        let s = x.sizes;
        let mut conv = |channels: usize| {
            // No tap is near 0, so that every row matters to its successors.
            let weights =
                (0..channels * kernel).map(|_| rng.between(0.2, 0.6) * if rng.chance(0.5) { 1.0 } else { -1.0 });
            let weights = weights.collect();
            CausalConv::new(channels, kernel, weights)
        };
        let (keys, values) = (s.key_heads * s.key_dim, s.value_heads * s.value_dim);
        Ok(Self([conv(keys)?, conv(x.writes * keys)?, conv(x.writes * values)?]))
    }

    /// The tails behind pieces of raw rows, oldest first.
    fn tails(&self, pieces: &[[&[f64]; 3]]) -> [Vec<f64>; 3] {
        std::array::from_fn(|i| self.0[i].tail(&pieces.iter().map(|p| p[i]).collect::<Vec<_>>()))
    }
}

fn streams(x: &Inputs) -> [&[f64]; 3] {
    [&x.q, &x.k, &x.v]
}

impl Check<'_> {
    /// Three segments: what was before (A), one that is cached (B), what follows (C). B's first `kernel − 1` rows are run
    /// behind A's tail, the rest of B comes from the operator that B computed alone, and C's rows are convolved behind the
    /// tail of [A's tail ‖ B's recomputed rows ‖ B's cached interior]. Returns the oracle's error of an entry from token 0.
    pub(super) fn convolution(&mut self, interior: Option<usize>) -> Result<f64, SubjectError> {
        let (n, mut rng) = (self.tokens(), self.case.rng(10));
        let kernel = self.family.conv_kernel().unwrap_or(1);
        let warm = kernel - 1;
        let room = n - warm - 3;
        let drawn = match rng.up_to(3) {
            0 => 1,
            1 => 2,
            2 => 1 + room.min(warm),
            _ => 1 + rng.up_to(room),
        };
        let inside = interior.unwrap_or(drawn).min(1 + room);
        let a = 1 + rng.up_to(n - warm - inside - 2);
        let (seam, b) = (a + warm, a + warm + inside);

        let convs = Convs::new(&self.x, kernel, &mut rng)?;
        let raw = self.x.clone();
        let none = || [vec![], vec![], vec![]];
        let truth = self.convolved(&convs, 0..n, &none())?;
        let alone = self.convolved(&convs, a..b, &none())?;
        let tail = convs.tails(&[streams(&raw.cut(0..a))]);
        let rows = self.convolved(&convs, a..seam, &tail)?;
        // An entry keeps the last kernel − 1 raw rows of its interior, or all of a shorter one.
        let kept = convs.tails(&[streams(&raw.cut(seam..b))]);
        let tail = tail.each_ref().map(Vec::as_slice);
        let tail = convs.tails(&[tail, streams(&raw.cut(a..seam)), kept.each_ref().map(Vec::as_slice)]);
        let after = self.convolved(&convs, b..n, &tail)?;

        let same = alone.cut(warm..b - a) == truth.cut(seam..b);
        self.worst.note("interior rows computed alone", if same { 0.0 } else { f64::INFINITY }, 0.0);
        let before = truth.cut(0..a);
        let want = Reference::new(self.family, &truth, &self.s0)?;
        let entry = self.subject.operator(&alone, warm)?;
        let steps = [ChainStep::Run(&before), ChainStep::Run(&rows), ChainStep::Apply(&entry), ChainStep::Run(&after)];
        let got = self.walk(&steps)?;
        self.note_state("state behind the true tail", &got.state, &want)?;
        let sizes = self.x.sizes;
        let pick = |x: &[f64], row: usize| [&x[..seam * row], &x[b * row..]].concat();
        let outputs = pick(&want.run.o, sizes.value_heads * sizes.value_dim);
        let scale = pick(&want.output_scale, sizes.value_heads);
        let error = relative_error("outputs", &got.o, &outputs, &scale)?;
        self.worst.note("outputs behind the true tail", error, self.tolerances.output);
        self.entry_from_zero(&before, &alone, &truth.cut(0..b))
    }

    /// An entry of all of B, its first rows convolved behind zeros: as wrong as it is for the oracle.
    fn entry_from_zero(&mut self, before: &Inputs, alone: &Inputs, truth: &Inputs) -> Result<f64, SubjectError> {
        let want = Reference::new(self.family, truth, &self.s0)?;
        let entry = self.subject.operator(alone, 0)?;
        let got = self.walk(&[ChainStep::Run(before), ChainStep::Apply(&entry)])?.state;
        let state = self.family.run(before, &self.s0)?.state;
        let wrong = self.family.operator(alone, 0..alone.sizes.tokens)?;
        let wrong = apply_heads(&wrong, &state)?.strict()?;
        let (space, mut worst) = (self.space(), 0.0);
        for (hv, scale) in want.state_scale.iter().enumerate() {
            let apart =
                |state: &[f64]| space.distance(space.head(state, hv), space.head(&want.run.state, hv)).0 / scale;
            let expected = apart(&wrong);
            worst = expected.max(worst);
            if expected >= VISIBLE {
                // Two states, each within its tolerance, on the scale of the wrong one.
                let error = (apart(&got) - expected).abs() / expected.max(1.0);
                self.worst.note("error of an entry from token 0", error, 2.0 * self.tolerances.state);
            }
        }
        Ok(worst)
    }

    /// The inputs of raw rows in `range`, convolved behind `tails`.
    fn convolved(&self, convs: &Convs, range: Range<usize>, tails: &[Vec<f64>; 3]) -> Result<Inputs, AlgebraError> {
        let mut x = self.x.cut(range);
        let Convs([q, k, v]) = convs;
        (x.q, x.k, x.v) = (q.run(&x.q, &tails[0])?, k.run(&x.k, &tails[1])?, v.run(&x.v, &tails[2])?);
        if self.family.update() == UpdateKind::Delta {
            // Write strengths were drawn for the keys' norms of before; unit keys keep β‖k‖² <= 2.
            x.k.chunks_exact_mut(x.sizes.key_dim).for_each(normalise);
        }
        if self.subject.limits().rounding == Rounding::F32 {
            x.round_to_f32();
        }
        Ok(x)
    }
}
