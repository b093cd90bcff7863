//! Chains, and how they are split into launches.

use seam_kernels::tables::{
    CHAIN_OPERATOR, CHUNK_TOKENS, FORM_DENSE, FORM_DIAGONAL, FORM_IDENTITY, FORM_SCALAR, FORM_ZERO, SHARED_SLABS,
    STEP_APPLY, STEP_BEGIN, STEP_LOAD, STEP_RUN, STEP_SNAPSHOT, STEP_STORE, STEP_WORDS, STEP_ZERO,
};

use super::builder::SlabId;
use super::shape::{ChainLaunch, bucket};

/// How an operator's T is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// T := 0.
    Zero,
    /// T := 1.
    Identity,
    /// The exponential of a stored logarithm a head.
    Scalar,
    /// The exponentials of stored logarithms a head and key dim.
    Diagonal,
    /// The stored dense matrix.
    Dense,
}

/// A step of a chain. Words are offsets in a slab of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The running state becomes zero.
    Zero,
    /// Continue from the slot at word `base`, with its operator columns if `operator`.
    Load {
        /// Word of the slot.
        base: u32,
        /// Whether an operator is under construction there.
        operator: bool,
    },
    /// Run `rows` rows from `first`.
    Run {
        /// First row of the pass.
        first: u32,
        /// Rows.
        rows: u32,
    },
    /// The operator columns start here, from `0 | I`.
    Begin,
    /// `h ← T·h + S`.
    Apply {
        /// Slab of the operator.
        slab: SlabId,
        /// Word of S.
        s: u32,
        /// Word of T (unused if it is zero or the identity).
        t: u32,
        /// How T is applied.
        form: Form,
        /// The angle ([`super::PassBuilder::angle`]) by which the operator moves: `R·S`, `R·T·Rᵀ`.
        moved: Option<u32>,
    },
    /// Store the running state alone to the slot at word `base`, which may be another than the chain's.
    Snapshot {
        /// Word of the slot.
        base: u32,
    },
    /// Store to the slot at word `base`.
    Store {
        /// Word of the slot.
        base: u32,
        /// Whether the operator columns are stored too.
        operator: bool,
    },
}

/// One chain of a pass: its slot and its steps.
#[derive(Clone, Debug)]
pub struct ChainSpec {
    /// Private slab of the slot.
    pub private: u32,
    /// Word of the slot, used where the chain must be split.
    pub base: u32,
    /// Whether the slot has room for operator columns, so that steps may begin an operator.
    pub operator: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

/// A piece of a chain within one launch: its flags and its encoded steps.
pub(crate) type Piece = (u32, Vec<[u32; STEP_WORDS]>);

struct Cursor<'a> {
    chain: &'a ChainSpec,
    next: usize,
    /// Rows of the next step, a run, that an earlier launch has done.
    done: u32,
    begun: bool,
}

/// What a step costs, in tokens: an operator takes as long as so many.
fn cost(step: &Step) -> u32 {
    match step {
        Step::Run { rows, .. } => *rows,
        Step::Apply { form: Form::Dense, .. } => 64,
        _ => 2,
    }
}

/// Splits chains so that no launch needs more than [`SHARED_SLABS`] shared slabs, or two private ones, and no chain takes
/// longer than about `budget` tokens in one. Where a chain is cut its state waits in its slot; runs are cut at whole chunks.
pub(crate) fn split(chains: &[ChainSpec], budget: u32) -> Vec<(ChainLaunch, Vec<Piece>)> {
    let mut privates: Vec<u32> = chains.iter().map(|c| c.private).collect();
    privates.sort_unstable();
    privates.dedup();
    let mut launches = Vec::new();
    for private in privates {
        let mut cursors: Vec<Cursor<'_>> = chains
            .iter()
            .filter(|c| c.private == private && !c.steps.is_empty())
            .map(|chain| Cursor { chain, next: 0, done: 0, begun: false })
            .collect();
        while !cursors.is_empty() {
            let mut shared: Vec<u32> = Vec::new();
            let pieces: Vec<_> =
                cursors.iter_mut().map(|c| c.take(&mut shared, budget)).filter(|p| !p.1.is_empty()).collect();
            let operator = pieces.iter().any(|(flags, _)| flags & CHAIN_OPERATOR != 0);
            let shape = ChainLaunch { chains: bucket(pieces.len() as u32), operator, private, shared };
            launches.push((shape, pieces));
            cursors.retain(|c| c.next < c.chain.steps.len());
        }
    }
    launches
}

impl Cursor<'_> {
    /// Takes steps while their slabs fit among the launch's, adding slabs where there is room, and the budget lasts.
    fn take(&mut self, shared: &mut Vec<u32>, budget: u32) -> Piece {
        let mut steps = Vec::new();
        let resumed = self.next > 0 || self.done > 0;
        let started = self.begun;
        let mut left = budget;
        while let Some(step) = self.chain.steps.get(self.next) {
            let step = match *step {
                Step::Run { first, rows } => {
                    let (first, rows) = (first + self.done, rows - self.done);
                    // A piece of at least one chunk, so that every launch gets on.
                    let most = (left / CHUNK_TOKENS as u32 * CHUNK_TOKENS as u32).max(CHUNK_TOKENS as u32);
                    if rows > left && (left >= CHUNK_TOKENS as u32 || steps.is_empty()) && rows > most {
                        steps.push(encode(&Step::Run { first, rows: most }, 0));
                        self.done += most;
                        break;
                    }
                    Step::Run { first, rows }
                }
                step => step,
            };
            let step = &step;
            if cost(step) > left && !steps.is_empty() {
                break;
            }
            let binding = match step {
                Step::Apply { slab: SlabId::Shared(slab), .. } => match shared.iter().position(|s| s == slab) {
                    Some(at) => at as u32,
                    None if shared.len() < SHARED_SLABS => {
                        shared.push(*slab);
                        shared.len() as u32 - 1
                    }
                    None => break,
                },
                _ => SHARED_SLABS as u32,
            };
            match step {
                Step::Begin => self.begun = true,
                Step::Load { operator: true, .. } => self.begun = true,
                _ => {}
            }
            steps.push(encode(step, binding));
            left = left.saturating_sub(cost(step));
            (self.next, self.done) = (self.next + 1, 0);
        }
        if steps.is_empty() {
            return (0, steps);
        }
        let base = self.chain.base;
        if resumed {
            steps.insert(0, encode(&Step::Load { base, operator: started }, 0));
        }
        if self.next < self.chain.steps.len() {
            steps.push(encode(&Step::Store { base, operator: self.begun }, 0));
        }
        let flags = if self.chain.operator && self.begun { CHAIN_OPERATOR } else { 0 };
        (flags, steps)
    }
}

fn encode(step: &Step, binding: u32) -> [u32; STEP_WORDS] {
    let mut words = [0; STEP_WORDS];
    let operands: &[u32] = match *step {
        Step::Zero => &[STEP_ZERO],
        Step::Load { base, operator } => &[STEP_LOAD, base, u32::from(operator)],
        Step::Run { first, rows } => &[STEP_RUN, first, rows],
        Step::Begin => &[STEP_BEGIN],
        Step::Apply { s, t, form, moved, .. } => &[
            STEP_APPLY,
            binding,
            s,
            t,
            match form {
                Form::Zero => FORM_ZERO,
                Form::Identity => FORM_IDENTITY,
                Form::Scalar => FORM_SCALAR,
                Form::Diagonal => FORM_DIAGONAL,
                Form::Dense => FORM_DENSE,
            },
            moved.map_or(0, |angle| angle + 1),
        ],
        Step::Snapshot { base } => &[STEP_SNAPSHOT, base],
        Step::Store { base, operator } => &[STEP_STORE, base, u32::from(operator)],
    };
    words[..operands.len()].copy_from_slice(operands);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(slab: u32) -> Step {
        Step::Apply { slab: SlabId::Shared(slab), s: 0, t: 0, form: Form::Dense, moved: None }
    }

    #[test]
    fn one_launch_where_slabs_fit() {
        let chain = ChainSpec {
            private: 0,
            base: 0,
            operator: false,
            steps: vec![Step::Zero, apply(5), apply(6), apply(5), apply(9), Step::Store { base: 0, operator: false }],
        };
        let split = split(&[chain.clone(), chain], u32::MAX);
        assert_eq!(split.len(), 1);
        assert_eq!(split[0].0.shared, [5, 6, 9]);
        assert_eq!(split[0].1.len(), 2);
        assert!(split[0].1.iter().all(|(_, steps)| steps.len() == 6));
    }

    /// Every step stands in some launch in its order; a cut stores to the slot and the next launch loads from it.
    #[test]
    fn cuts_resume_from_the_slot() {
        let steps: Vec<Step> = (0..10).map(apply).collect();
        let chain = ChainSpec { private: 2, base: 77, operator: false, steps };
        let split = split(&[chain], u32::MAX);
        assert_eq!(split.len(), 4, "ten slabs by threes");
        let mut applied = 0;
        for (i, (shape, pieces)) in split.iter().enumerate() {
            assert!(shape.shared.len() <= SHARED_SLABS);
            let steps = &pieces[0].1;
            if i > 0 {
                assert_eq!(steps[0][..3], [STEP_LOAD, 77, 0]);
            }
            if i + 1 < split.len() {
                assert_eq!(steps[steps.len() - 1][..3], [STEP_STORE, 77, 0]);
            }
            for step in steps.iter().filter(|s| s[0] == STEP_APPLY) {
                assert_eq!(shape.shared[step[1] as usize], applied, "order kept");
                applied += 1;
            }
        }
        assert_eq!(applied, 10);
    }

    /// A cut while an operator is under construction carries its columns along.
    #[test]
    fn a_cut_keeps_the_operator() {
        let mut steps = vec![Step::Zero, Step::Begin];
        steps.extend((0..4).map(apply));
        let split = split(&[ChainSpec { private: 0, base: 8, operator: true, steps }], u32::MAX);
        assert_eq!(split.len(), 2);
        assert!(split.iter().all(|(shape, _)| shape.operator));
        assert_eq!(split[0].1[0].1.last().map(|s| s[..3].to_vec()), Some(vec![STEP_STORE, 8, 1]));
        assert_eq!(split[1].1[0].1[0][..3], [STEP_LOAD, 8, 1]);
    }

    #[test]
    fn private_slabs_never_share_a_launch() {
        let chain = |private| ChainSpec { private, base: 0, operator: false, steps: vec![Step::Zero] };
        let split = split(&[chain(1), chain(0), chain(1)], u32::MAX);
        assert_eq!(split.iter().map(|(s, p)| (s.private, p.len())).collect::<Vec<_>>(), [(0, 1), (1, 2)]);
    }

    /// Runs are cut at whole chunks, every row runs once and in order, and no piece passes the budget by more than one step.
    #[test]
    fn a_budget_cuts_by_time() {
        let run = |first, rows| Step::Run { first, rows };
        let steps = vec![Step::Zero, run(0, 100), Step::Begin, run(100, 7), apply(1), apply(2), run(107, 50)];
        for budget in [0, 1, 16, 40, 64, 100, 1000] {
            let chain = ChainSpec { private: 0, base: 5, operator: true, steps: steps.clone() };
            let launches = split(&[chain], budget);
            let (mut next, mut applied) = (0, 0);
            for (i, (_, pieces)) in launches.iter().enumerate() {
                let piece = &pieces[0].1;
                assert_eq!(piece[0][0] == STEP_LOAD, i > 0, "{budget}");
                assert_eq!(piece[piece.len() - 1][0] == STEP_STORE, i + 1 < launches.len(), "{budget}");
                let mut cost = 0;
                for step in piece {
                    if step[0] == STEP_RUN {
                        assert_eq!(step[1], next, "{budget}: rows in order");
                        assert!([100, 107, 157].contains(&(step[1] + step[2])) || step[2].is_multiple_of(16));
                        next += step[2];
                        cost += step[2];
                    }
                    if step[0] == STEP_APPLY {
                        applied += 1;
                        cost += 64;
                    }
                }
                assert!(cost <= budget.max(64) || piece.len() <= 3, "{budget}: {cost}");
            }
            assert_eq!((next, applied), (157, 2), "{budget}");
            assert_eq!(launches.len() == 1, budget >= 1000, "{budget}");
        }
    }
}
