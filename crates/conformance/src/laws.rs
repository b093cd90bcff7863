//! The laws of the state algebra, held against a device.

use std::sync::Arc;

use seam_algebra::families::GatedDeltaRule;
use seam_algebra::laws::{ChainStep, LawReport, Limits, Options, Subject, SubjectError, run_laws};
use seam_algebra::rerotate;
use seam_algebra::strategy::Rounding;
use seam_algebra::{DecayKind, Family, Inputs, Operator, Run, Sizes};
use seam_device::{Device, DeviceKind};
use seam_ops::{OpError, Pairing, Rotation, Step};

use crate::chains::{Chains, Rows, Slot, Start, Walk};
use crate::lower::{Lowering, failed, runs};
use crate::machine::Method;
use crate::tolerance::LAWS;

/// Rows that a software driver suggests for a pass are fewer than this; see [`DeviceSubject::limits`].
const SLOW_ROWS: u32 = 512;

/// A family as a device runs it, through the chain operations of a pass.
pub struct DeviceSubject {
    name: String,
    limits: Limits,
    family: &'static dyn Family,
    method: Method,
    chains: Chains,
}

impl DeviceSubject {
    /// `family` on `device`, run by `method`; nothing where there is no such kernel. Memory is allocated when it is needed.
    #[must_use]
    pub fn new(device: &Arc<dyn Device>, family: &'static dyn Family, method: Method) -> Option<Self> {
        let caps = device.caps();
        if !runs(caps, family, method) {
            return None;
        }
        let slow = caps.kind == DeviceKind::Wgpu && caps.rows_hint < SLOW_ROWS;
        // Sizes of keys that kernels exist for; of values also such that are no multiple of a vector of 4, and with the
        // operator's columns more than the 32 of a workgroup. A software driver takes long to compile the kernels of
        // a key size, longer the larger it is, and milliseconds a head to run 70 tokens: four pairs of sizes there.
        let few = Limits {
            max_tokens: 70,
            max_cases: 16,
            max_ratio: 2,
            key_dims: vec![4, 16],
            value_dims: vec![3, 12],
            ..Limits::default()
        };
        let many = Limits {
            key_dims: vec![4, 8, 12, 16, 24, 32, 64],
            value_dims: vec![4, 3, 8, 12, 32, 40, 64],
            ..Limits::default()
        };
        let limits = Limits { rounding: Rounding::F32, tolerances: LAWS, ..if slow { few } else { many } };
        let name = format!("{} ({})/{}", caps.kind, caps.name, method.name());
        Some(Self { name, limits, family, method, chains: Chains::new(device) })
    }

    /// Cuts chains where a launch would run about more than so many tokens of one.
    #[must_use]
    pub fn with_budget(mut self, tokens: u32) -> Self {
        self.chains.budget = tokens;
        self
    }

    fn lowering(&self, sizes: &Sizes, decay: DecayKind, rotation: Option<Rotation>) -> Result<Lowering, SubjectError> {
        Lowering::new(self.family, sizes, decay, self.method, rotation)
    }

    /// Walks one chain; returns its outputs and its slot.
    fn one(&mut self, on: &Lowering, rows: &Rows, walk: Walk<'_>) -> Result<(Vec<f64>, Slot), SubjectError> {
        let mut walked = self.chains.walk(&on.machine, rows, &[walk]).map_err(failed("a chain"))?;
        let slot = walked.slots.pop().ok_or_else(|| failed("a chain")(missing("it left no slot")))?;
        Ok((walked.o, slot))
    }
}

/// `family` on `device`, by every method that there are kernels for.
#[must_use]
pub fn subjects(device: &Arc<dyn Device>, family: &'static dyn Family) -> Vec<Box<dyn Subject + Send>> {
    Method::ALL
        .into_iter()
        .filter_map(|method| DeviceSubject::new(device, family, method))
        .map(|subject| Box::new(subject) as Box<dyn Subject + Send>)
        .collect()
}

impl Subject for DeviceSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn family(&self) -> &'static dyn Family {
        self.family
    }

    fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError> {
        let on = self.lowering(&x.sizes, x.decay, None)?;
        let mut rows = Rows::default();
        on.push(&mut rows, x);
        let s0 = on.state(s0);
        let walk = Walk { start: Start::State(&s0), steps: run_step(&on, 0, x), operator: false };
        let (o, slot) = self.one(&on, &rows, walk)?;
        Ok(on.run(&o, x, &slot))
    }

    fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError> {
        let on = self.lowering(&x.sizes, x.decay, None)?;
        let mut rows = Rows::default();
        on.push(&mut rows, x);
        let (seam, rest) = (x.slice(0..first)?, x.slice(first..x.sizes.tokens)?);
        let mut steps = run_step(&on, 0, &seam);
        steps.push((Step::Begin, 0));
        steps.extend(run_step(&on, first, &rest));
        let walk = Walk { start: Start::Zero, steps, operator: true };
        let (_, slot) = self.one(&on, &rows, walk)?;
        on.operators(&slot)
    }

    fn chain(&mut self, sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        let runs: Vec<&Inputs> =
            steps.iter().filter_map(|step| if let ChainStep::Run(x) = step { Some(*x) } else { None }).collect();
        let decay = runs.first().map_or(self.family.decay(), |x| x.decay);
        let moves = steps.iter().find_map(|step| match step {
            ChainStep::Moved { operators, rotation, delta } => Some((*operators, *rotation, *delta)),
            _ => None,
        });
        if let Some((operators, rotation, delta)) = moves {
            // What the algebra refuses, no kernel is asked for.
            rotation.rerotate_heads(operators, self.family.decay().on_pairs(), delta)?;
            self.chains.frequencies = rotation.frequencies().to_vec();
        }
        let on = self.lowering(sizes, decay, moves.map(|(_, rotation, _)| on_device(rotation)))?;
        let mut rows = Rows::default();
        runs.iter().for_each(|x| on.push(&mut rows, x));
        let mut stored = Vec::new();
        for step in steps {
            match step {
                ChainStep::Run(_) => {}
                ChainStep::Apply(operators) => stored.push(on.store(operators, 0)?),
                ChainStep::Moved { operators, delta, .. } => stored.push(on.store(operators, *delta)?),
            }
        }
        let mut applies = self.chains.upload(&on.machine, &stored).map_err(failed("uploading operators"))?.into_iter();
        let (mut walked, mut first) = (Vec::new(), 0);
        for step in steps {
            match step {
                ChainStep::Run(x) => {
                    walked.extend(run_step(&on, first, x));
                    first += x.sizes.tokens;
                }
                ChainStep::Apply(_) | ChainStep::Moved { .. } => walked.extend(applies.next()),
            }
        }
        let s0 = on.state(s0);
        let walk = Walk { start: Start::State(&s0), steps: walked, operator: false };
        let (o, slot) = self.one(&on, &rows, walk)?;
        let (mut all, mut at) = (Vec::new(), 0);
        for x in runs {
            let width = on.rows(x.sizes.tokens) as usize * on.machine.out() as usize;
            all.extend(on.outputs(o.get(at..at + width).unwrap_or_default(), x));
            at += width;
        }
        Ok(Run { o: all, state: on.own_state(&slot.state) })
    }

    fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
        let Some((one, _)) = xs.first() else { return Ok(Vec::new()) };
        // The one row of fixed gates, and D, belong to a layer.
        if xs.iter().any(|(x, _)| x.skip != one.skip || (one.decay == DecayKind::Fixed && x.g != one.g)) {
            return Err(SubjectError::NotApplicable { why: "members of different layers".to_owned() });
        }
        let on = self.lowering(&one.sizes, one.decay, None)?;
        let mut rows = Rows::default();
        xs.iter().for_each(|(x, _)| on.push(&mut rows, x));
        let starts: Vec<Vec<f32>> = xs.iter().map(|(_, s0)| on.state(s0)).collect();
        let mut first = 0;
        let mut walks = Vec::new();
        for ((x, _), s0) in xs.iter().zip(&starts) {
            walks.push(Walk { start: Start::State(s0), steps: run_step(&on, first, x), operator: false });
            first += x.sizes.tokens;
        }
        let walked = self.chains.walk(&on.machine, &rows, &walks).map_err(failed("a batch of chains"))?;
        let mut o = walked.o.into_iter();
        let run = |((x, _), slot): (&(Inputs, Vec<f64>), Slot)| {
            let own: Vec<f64> = o.by_ref().take(on.rows(x.sizes.tokens) as usize * on.machine.out() as usize).collect();
            on.run(&own, x, &slot)
        };
        Ok(xs.iter().zip(walked.slots).map(run).collect())
    }

    /// On the device: operators applied to operator columns that were just begun compose.
    fn compose(&mut self, later: &[Operator], earlier: &[Operator]) -> Result<Vec<Operator>, SubjectError> {
        let (Some(first), true) = (later.first(), later.len() == earlier.len()) else {
            return Err(failed("composing")(missing("the operators are of different numbers of heads")));
        };
        // A state may have more columns than the values.
        let extra = self.family.state_columns(0);
        let sizes = Sizes {
            tokens: 0,
            key_heads: 1,
            value_heads: later.len(),
            key_dim: first.key_dim(),
            value_dim: first.value_dim().saturating_sub(extra),
        };
        let on = self.lowering(&sizes, self.family.decay(), None)?;
        let stored = [on.store(earlier, 0)?, on.store(later, 0)?];
        let applies = self.chains.upload(&on.machine, &stored).map_err(failed("uploading operators"))?;
        let steps = std::iter::once((Step::Begin, 0)).chain(applies).collect();
        let walk = Walk { start: Start::Zero, steps, operator: true };
        let (_, slot) = self.one(&on, &Rows::default(), walk)?;
        on.operators(&slot)
    }
}

/// Runs all laws of the gated delta rule, token by token, on `device`. `progress` hears of every case before it runs: the
/// law's name and the case's number. An error of the device fails the law that met it.
pub fn run(device: &Arc<dyn Device>, options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Vec<LawReport> {
    match DeviceSubject::new(device, &GatedDeltaRule, Method::Recurrent) {
        Some(mut subject) => run_laws(&mut subject, options, progress),
        None => Vec::new(),
    }
}

/// A rotation of the algebra as the kernels know it; its frequencies are those of the pass.
fn on_device(rotation: &rerotate::Rotation) -> Rotation {
    let pairing = match rotation.pairing() {
        rerotate::Pairing::Halves => Pairing::Halves,
        rerotate::Pairing::Interleaved => Pairing::Interleaved,
    };
    Rotation { pairing, dims: rotation.rotated_dims() as u32 }
}

fn missing(what: &str) -> OpError {
    OpError::Shape { op: "chain", what: what.to_owned() }
}

/// The step that runs the rows of `x`, whose first token is token `first`; none for no rows.
fn run_step(on: &Lowering, first: usize, x: &Inputs) -> Vec<(Step, i64)> {
    match on.rows(x.sizes.tokens) {
        0 => Vec::new(),
        rows => vec![(Step::Run { first: on.rows(first), rows }, 0)],
    }
}
