//! The laws of the state algebra, held against a device.

use std::sync::Arc;

use seam_algebra::laws::{ChainStep, LawReport, Limits, Options, Subject, SubjectError, run_laws};
use seam_algebra::strategy::Rounding;
use seam_algebra::{AlgebraError, Family, Inputs, Operator, Run, Sizes, Transition};
use seam_device::{Device, DeviceKind};
use seam_ops::{Form, OpError, Step};

use crate::chains::{Chains, Rows, Shape, Slot, Start, Stored, Walk};
use crate::tolerance::LAWS;

/// Rows that a software driver suggests for a pass are fewer than this; see [`DeviceSubject::limits`].
const SLOW_ROWS: u32 = 512;

/// The gated delta rule as a device runs it, through the chain operation of a pass.
pub struct DeviceSubject {
    name: String,
    limits: Limits,
    chains: Chains,
}

impl DeviceSubject {
    /// The subject on `device`. Memory is allocated when it is needed.
    #[must_use]
    pub fn new(device: &Arc<dyn Device>) -> Self {
        let caps = device.caps();
        let slow = caps.kind == DeviceKind::Wgpu && caps.rows_hint < SLOW_ROWS;
        // Sizes of keys that kernels exist for; of values also such that are no multiple of a vector of 4, and with the
        // operator's columns more than the 32 of a workgroup. A software driver takes seconds to compile the kernel of
        // a key size, longer the larger it is, and milliseconds a head to run 70 tokens.
        let few = Limits {
            max_tokens: 70,
            max_cases: 16,
            max_ratio: 2,
            key_dims: vec![4, 12, 16, 32],
            value_dims: vec![4, 3, 12],
            ..Limits::default()
        };
        let many = Limits {
            key_dims: vec![4, 8, 12, 16, 24, 32, 64],
            value_dims: vec![4, 3, 8, 12, 32, 40, 64],
            ..Limits::default()
        };
        let limits = Limits { rounding: Rounding::F32, tolerances: LAWS, ..if slow { few } else { many } };
        Self { name: format!("{} ({})/recurrent", caps.kind, caps.name), limits, chains: Chains::new(device) }
    }

    /// Walks one chain; returns its outputs and its slot.
    fn one(&mut self, shape: &Shape, rows: &Rows, walk: Walk<'_>) -> Result<(Vec<f64>, Slot), SubjectError> {
        let mut walked = self.chains.walk(shape, rows, &[walk]).map_err(failed("a chain"))?;
        let slot = walked.slots.pop().ok_or_else(|| failed("a chain")(missing("it left no slot")))?;
        Ok((walked.o, slot))
    }
}

impl Subject for DeviceSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError> {
        let shape = shape_of(&x.sizes)?;
        let rows = rows_of(&shape, [x]);
        let s0 = single(s0);
        let walk = Walk { start: Start::State(&s0), steps: run_step(0, x), operator: false };
        let (o, slot) = self.one(&shape, &rows, walk)?;
        Ok(Run { o, state: slot.state })
    }

    fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError> {
        let shape = shape_of(&x.sizes)?;
        let (seam, rest) = (x.slice(0..first)?, x.slice(first..x.sizes.tokens)?);
        let mut steps = run_step(0, &seam);
        steps.push(Step::Begin);
        steps.extend(run_step(first, &rest));
        let walk = Walk { start: Start::Zero, steps, operator: true };
        let (_, slot) = self.one(&shape, &rows_of(&shape, [x]), walk)?;
        operators(&shape, &slot)
    }

    fn chain(&mut self, sizes: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        let shape = shape_of(sizes)?;
        let runs = steps.iter().filter_map(|step| if let ChainStep::Run(x) = step { Some(*x) } else { None });
        let rows = rows_of(&shape, runs);
        let stored: Vec<Stored> = steps
            .iter()
            .filter_map(|step| match step {
                ChainStep::Run(_) => None,
                ChainStep::Apply(operators) => Some(Ok(store(operators))),
                ChainStep::Moved { operators, rotation, delta } => {
                    let decay = self.family().decay().on_pairs();
                    Some(rotation.rerotate_heads(operators, decay, *delta).map(|moved| store(&moved)))
                }
            })
            .collect::<Result<_, AlgebraError>>()?;
        let mut applies = self.chains.upload(&shape, &stored).map_err(failed("uploading operators"))?.into_iter();
        let (mut walked, mut first) = (Vec::new(), 0);
        for step in steps {
            match step {
                ChainStep::Run(x) => {
                    walked.extend(run_step(first, x));
                    first += x.sizes.tokens;
                }
                ChainStep::Apply(_) | ChainStep::Moved { .. } => walked.extend(applies.next()),
            }
        }
        let s0 = single(s0);
        let walk = Walk { start: Start::State(&s0), steps: walked, operator: false };
        let (o, slot) = self.one(&shape, &rows, walk)?;
        Ok(Run { o, state: slot.state })
    }

    fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
        let Some((one, _)) = xs.first() else { return Ok(Vec::new()) };
        let shape = shape_of(&one.sizes)?;
        let rows = rows_of(&shape, xs.iter().map(|(x, _)| x));
        let starts: Vec<Vec<f32>> = xs.iter().map(|(_, s0)| single(s0)).collect();
        let mut first = 0;
        let mut walks = Vec::new();
        for ((x, _), s0) in xs.iter().zip(&starts) {
            walks.push(Walk { start: Start::State(s0), steps: run_step(first, x), operator: false });
            first += x.sizes.tokens;
        }
        let walked = self.chains.walk(&shape, &rows, &walks).map_err(failed("a batch of chains"))?;
        let mut o = walked.o.into_iter();
        let run = |((x, _), slot): (&(Inputs, Vec<f64>), Slot)| Run {
            o: o.by_ref().take(x.sizes.tokens * shape.out() as usize).collect(),
            state: slot.state,
        };
        Ok(xs.iter().zip(walked.slots).map(run).collect())
    }

    /// On the device: operators applied to operator columns that were just begun compose.
    fn compose(&mut self, later: &[Operator], earlier: &[Operator]) -> Result<Vec<Operator>, SubjectError> {
        let (Some(first), true) = (later.first(), later.len() == earlier.len()) else {
            return Err(failed("composing")(missing("the operators are of different numbers of heads")));
        };
        let shape = Shape::new(1, later.len(), first.key_dim(), first.value_dim()).map_err(failed("composing"))?;
        let applies = self.chains.upload(&shape, &[store(earlier), store(later)]);
        let steps = std::iter::once(Step::Begin).chain(applies.map_err(failed("uploading operators"))?).collect();
        let walk = Walk { start: Start::Zero, steps, operator: true };
        let (_, slot) = self.one(&shape, &Rows::default(), walk)?;
        operators(&shape, &slot)
    }
}

/// What `device` has for a family: one subject a form, none where it has no kernel.
#[must_use]
pub fn subjects(device: &Arc<dyn Device>, family: &'static dyn Family) -> Vec<Box<dyn Subject + Send>> {
    let subject = DeviceSubject::new(device);
    if family.name() == subject.family().name() { vec![Box::new(subject)] } else { Vec::new() }
}

/// Runs all laws on `device`. `progress` hears of every case before it runs: the law's name and the case's number. An
/// error of the device fails the law that met it.
pub fn run(device: &Arc<dyn Device>, options: &Options, progress: &mut dyn FnMut(&str, usize)) -> Vec<LawReport> {
    run_laws(&mut DeviceSubject::new(device), options, progress)
}

fn failed(what: &str) -> impl FnOnce(OpError) -> SubjectError {
    move |error| SubjectError::Failed { what: what.to_owned(), source: Box::new(error) }
}

fn missing(what: &str) -> OpError {
    OpError::Shape { op: "delta_chain", what: what.to_owned() }
}

fn shape_of(sizes: &Sizes) -> Result<Shape, SubjectError> {
    Shape::new(sizes.key_heads, sizes.value_heads, sizes.key_dim, sizes.value_dim).map_err(failed("the sizes"))
}

fn rows_of<'a>(shape: &Shape, xs: impl IntoIterator<Item = &'a Inputs>) -> Rows {
    let mut rows = Rows::default();
    for x in xs {
        rows.push(shape, x.scale, [&x.q, &x.k, &x.v, &x.g, &x.beta]);
    }
    rows
}

/// The step that runs the rows of `x`, which begin at row `first`; none for no rows.
fn run_step(first: usize, x: &Inputs) -> Vec<Step> {
    match x.sizes.tokens as u32 {
        0 => Vec::new(),
        rows => vec![Step::Run { first: first as u32, rows }],
    }
}

fn single(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&x| x as f32).collect()
}

/// The operators of all heads in the form of the whole: T is the identity or zero where it is for every head.
fn store(operators: &[Operator]) -> Stored {
    let all = |test: fn(&Transition) -> bool| operators.iter().all(|o| test(o.transition()));
    let form = if all(|t| *t == Transition::IDENTITY) {
        Form::Identity
    } else if all(|t| matches!(t, Transition::Absent(_))) {
        Form::Zero
    } else {
        Form::Dense
    };
    let t = operators.iter().flat_map(|o| single(&o.transition().to_dense(o.key_dim()))).collect();
    Stored { s: operators.iter().flat_map(|o| single(o.state())).collect(), t, form }
}

fn operators(shape: &Shape, slot: &Slot) -> Result<Vec<Operator>, SubjectError> {
    let (k, v) = (shape.key as usize, shape.value as usize);
    let heads = slot.t.chunks_exact(k * k).zip(slot.s.chunks_exact(k * v));
    heads.map(|(t, s)| Ok(Operator::new(k, v, Transition::Dense { matrix: t.to_vec() }, s.to_vec())?)).collect()
}
