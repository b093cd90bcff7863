//! How the error of a composed state grows with the number of segments, by decay.
//!
//! Segments of a few tokens are cut from one sequence. The subject computes the operator of each alone and applies the first
//! 1, 2, 4, … of them in one chain from a state that is not zero; the oracle runs the same tokens one by one.

use super::measure::{Reference, Space};
use super::subject::{ChainStep, Limits, Subject, SubjectError};
use crate::family::{DecayKind, Family};
use crate::operator::Operator;
use crate::rng::Rng;
use crate::sizes::Sizes;
use crate::strategy::{Case, DIMS, Kind};
use serde::{Deserialize, Serialize};

/// Numbers of segments that are measured.
pub const SEGMENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Sequences a point; the worst of them counts.
const DRAWS: u64 = 2;

/// Fewest and most tokens of a segment.
const TOKENS: (usize, usize) = (8, 24);

/// Largest dims: the subject's largest within them, or its smallest.
const DIM: usize = 16;

/// How fast the states of a sweep decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepDecay {
    /// The family has no decay.
    None,
    /// The family fixes its decay.
    Fixed,
    /// [`Kind::SlowDecay`].
    Slow,
    /// [`Kind::Typical`].
    Typical,
    /// [`Kind::FastDecay`].
    Fast,
}

impl SweepDecay {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Fixed, Self::Slow, Self::Typical, Self::Fast];

    /// Those that a family can have.
    pub fn of(family: &dyn Family) -> &'static [Self] {
        match family.decay() {
            DecayKind::None => &[Self::None],
            DecayKind::Fixed => &[Self::Fixed],
            DecayKind::Scalar | DecayKind::Diagonal => &[Self::Slow, Self::Typical, Self::Fast],
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no decay",
            Self::Fixed => "fixed decay",
            Self::Slow => "slow decay",
            Self::Typical => "typical decay",
            Self::Fast => "fast decay",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::None | Self::Fixed | Self::Typical => Kind::Typical,
            Self::Slow => Kind::SlowDecay,
            Self::Fast => Kind::FastDecay,
        }
    }
}

/// One point of a [`Sweep`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The decay.
    pub decay: SweepDecay,
    /// Segments of the chain.
    pub segments: usize,
    /// The worst head's distance to the oracle's state, relative as [`super::Measured`] says; `f64::MAX` where it was no
    /// finite number.
    pub error: f64,
    /// What it may be: the subject's tolerance of states, under the family's conditioning of that many tokens.
    pub tolerance: f64,
}

impl SweepPoint {
    /// Whether the error is within its tolerance.
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// The errors of a subject over chain length and decay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Name of the family.
    pub family: String,
    /// Name of the subject.
    pub subject: String,
    /// The points: decay by decay, of each the lengths [`SEGMENTS`].
    pub points: Vec<SweepPoint>,
}

impl Sweep {
    /// Whether every point is within its tolerance, of which there is at least one.
    pub fn holds(&self) -> bool {
        !self.points.is_empty() && self.points.iter().all(SweepPoint::holds)
    }

    /// The points of one decay.
    pub fn of(&self, decay: SweepDecay) -> impl Iterator<Item = &SweepPoint> {
        self.points.iter().filter(move |point| point.decay == decay)
    }
}

/// Measures a subject. Deterministic in `seed` for a deterministic subject.
///
/// # Errors
/// What the subject answers, and sizes that the family refuses.
pub fn sweep(subject: &mut dyn Subject, seed: u64) -> Result<Sweep, SubjectError> {
    let mut points = Vec::new();
    for &decay in SweepDecay::of(subject.family()) {
        let mut worst: Vec<SweepPoint> = Vec::new();
        for draw in 0..DRAWS {
            let found = draw_points(subject, decay, Rng::new(seed ^ (draw << 32)).next_u64())?;
            if worst.is_empty() {
                worst = found;
            } else {
                worst.iter_mut().zip(found).for_each(|(w, f)| *w = if w.error >= f.error { *w } else { f });
            }
        }
        points.extend(worst);
    }
    Ok(Sweep { family: subject.family().name().into(), subject: subject.name(), points })
}

/// The points of one sequence.
fn draw_points(subject: &mut dyn Subject, decay: SweepDecay, seed: u64) -> Result<Vec<SweepPoint>, SubjectError> {
    let (limits, family) = (subject.limits(), subject.family());
    let most = TOKENS.1.min(limits.max_tokens.max(1));
    let fewest = TOKENS.0.min(most);
    let mut rng = Rng::new(seed);
    let segments = SEGMENTS.into_iter().max().unwrap_or_default();
    let mut ends = vec![0];
    for i in 0..segments {
        ends.push(ends[i] + fewest + rng.up_to(most - fewest));
    }
    let case = start_case(family, &limits, decay, ends[segments], &mut rng);
    let (x, s0) = family.inputs(&case, limits.rounding);
    let wanted = Reference::at(family, &x, &s0, &SEGMENTS.map(|n| ends[n]))?;
    let mut operators: Vec<Vec<Operator>> = Vec::with_capacity(segments);
    for range in ends.windows(2) {
        operators.push(subject.operator(&x.slice(range[0]..range[1])?, 0)?);
    }
    let steps: Vec<ChainStep<'_>> = operators.iter().map(|operators| ChainStep::Apply(operators)).collect();
    let space = Space::new(family, &x.sizes);
    let mut points = Vec::with_capacity(SEGMENTS.len());
    for (n, want) in SEGMENTS.into_iter().zip(&wanted) {
        let sizes = Sizes { tokens: 0, ..x.sizes };
        let got = subject.chain(&sizes, &s0, &steps[..n])?;
        let error = space.error("state", &got.state, &want.run.state, &want.state_scale)?;
        let conditioning = family.conditioning(&x.slice(0..ends[n])?);
        points.push(SweepPoint {
            decay,
            segments: n,
            // JSON has no NaN and no infinity.
            error: if error.is_finite() { error } else { f64::MAX },
            tolerance: limits.tolerances.state * conditioning,
        });
    }
    Ok(points)
}

/// A case within the subject's limits whose start state is not zero.
fn start_case(family: &dyn Family, limits: &Limits, decay: SweepDecay, tokens: usize, rng: &mut Rng) -> Case {
    let dim = |given: &[usize]| {
        let all = if given.is_empty() { &DIMS[..] } else { given };
        let within = all.iter().copied().filter(|&dim| dim <= DIM).max();
        within.or_else(|| all.iter().copied().min()).unwrap_or(DIM)
    };
    let (key_dim, value_dim) = (dim(&limits.key_dims), dim(&limits.value_dims));
    let ratio = limits.max_ratio.clamp(1, 2);
    let mut case = Case { seed: 0, kind: decay.kind(), tokens, key_heads: 1, ratio, key_dim, value_dim };
    // One start in four is zero.
    for _ in 0..64 {
        case.seed = rng.next_u64();
        let (x, s0) = family.inputs(&Case { tokens: 0, ..case }, limits.rounding);
        if s0 != family.zero_state(&x.sizes) {
            break;
        }
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::inputs::{Inputs, Run};
    use crate::laws::OracleSubject;

    #[test]
    fn the_oracles_stay_within_the_tolerance_of_f64() {
        for &family in families::all() {
            let mut subject = OracleSubject::new(family);
            let found = sweep(&mut subject, 3).unwrap();
            assert_eq!(found, sweep(&mut subject, 3).unwrap());
            assert_eq!(found.points.len(), SweepDecay::of(family).len() * SEGMENTS.len());
            let over: Vec<_> = found.points.iter().filter(|point| !point.holds()).collect();
            assert!(found.holds(), "{}: {over:?}", family.name());
            // Two runs that round the same way would be measuring nothing.
            assert!(found.points.iter().any(|point| point.error > 0.0), "{}", family.name());
            let slowest = SweepDecay::of(family)[0];
            assert!(found.of(slowest).map(|point| point.segments).eq(SEGMENTS));
        }
    }

    /// Loses a millionth of the state at every segment.
    struct Leaks(OracleSubject);

    impl Subject for Leaks {
        fn name(&self) -> String {
            "leaks".into()
        }
        fn limits(&self) -> Limits {
            self.0.limits()
        }
        fn family(&self) -> &'static dyn Family {
            self.0.family()
        }
        fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError> {
            self.0.run(x, s0)
        }
        fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError> {
            self.0.operator(x, first)
        }
        fn chain(&mut self, sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
            let mut run = Run { o: vec![], state: s0.to_vec() };
            for step in steps {
                run = self.0.chain(sizes, &run.state, std::slice::from_ref(step))?;
                run.state.iter_mut().for_each(|s| *s *= 1.0 - 1e-6);
            }
            Ok(run)
        }
        fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
            self.0.batch(xs)
        }
    }

    #[test]
    fn a_loss_at_every_segment_grows_with_them() {
        // Nothing is taken out of its state, and slow gates keep it.
        let found = sweep(&mut Leaks(OracleSubject::new(&families::SimpleGla)), 5).unwrap();
        assert!(!found.holds() && found.points.iter().all(|point| !point.holds()));
        let slow: Vec<f64> = found.of(SweepDecay::Slow).map(|point| point.error).collect();
        assert!(slow.windows(2).all(|w| w[1] > w[0]), "{slow:?}");
        assert!(slow[6] > 8.0 * slow[0] && slow[0] < 2e-6, "{slow:?}");
        // What has decayed carries no loss along.
        let fast: Vec<f64> = found.of(SweepDecay::Fast).map(|point| point.error).collect();
        assert!(fast[6] < 2e-6, "{fast:?}");
    }
}
