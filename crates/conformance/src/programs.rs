//! Random programs of chain steps on a device against their f64 interpretation: any interleaving of zero, load, run, begin,
//! apply, snapshot and store, cut into launches in any way.

use std::sync::Arc;

use seam_algebra::laws::SubjectError;
use seam_algebra::strategy::{Case, Kind, Rounding};
use seam_algebra::{Family, Operator, Run, Transition, apply_heads, compose_heads, frobenius};
use seam_device::Device;
use seam_ops::{Form, Step};

use crate::chains::{Chains, Rows, Start, Walk};
use crate::lower::{Lowering, failed, runs};
use crate::machine::Method;

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Decides everything.
    pub seed: u64,
    /// Steps.
    pub steps: usize,
    /// Most tokens of a run.
    pub longest: usize,
    /// Tokens of the chain in one launch: what it is cut by.
    pub budget: u32,
    /// Heads and sizes.
    pub sizes: (usize, usize, usize, usize),
}

/// Slots that a program may load from and store to, besides its own.
const SLOTS: usize = 3;

/// A small generator: what is random here need not be good.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// A state, and the operator that is built beside it.
#[derive(Clone)]
struct State {
    running: Vec<f64>,
    operator: Option<Vec<Operator>>,
}

/// Largest errors of a program, relative to the largest norm that the head's state, or its S, had on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Of an output.
    pub output: f64,
    /// Of a state, an S or a T (that to max(1, ‖T‖)).
    pub state: f64,
}

impl Errors {
    /// The larger one.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.output.max(self.state)
    }
}

/// Runs a program of `family` on `device`.
///
/// # Errors
/// [`SubjectError::NotApplicable`] where the device has no kernel; what the device or the algebra says.
pub fn run(
    device: &Arc<dyn Device>,
    family: &'static dyn Family,
    method: Method,
    program: &Program,
) -> Result<Errors, SubjectError> {
    if !runs(device.caps(), family, method) {
        return Err(SubjectError::NotApplicable { why: format!("no {} kernel of {}", method.name(), family.name()) });
    }
    let mut random = Random(program.seed);
    let (key_heads, ratio, key_dim, value_dim) = program.sizes;
    let kinds = [Kind::Typical, Kind::SlowDecay, Kind::RepeatedKeys, Kind::HardReset, Kind::BetaToTwo];
    let kind = kinds[random.below(kinds.len())];
    // One case: tokens to run, operators' tokens and the start state are cut from it, so that a fixed decay is one.
    let tokens = (program.longest + 1) * program.steps;
    let case = Case { seed: program.seed, kind, tokens, key_heads, ratio, key_dim, value_dim };
    let rounding = if method == Method::Tile { Rounding::Bf16Keys } else { Rounding::F32 };
    let (x, s0) = family.inputs(&case, rounding);
    let on = Lowering::new(family, &x.sizes, x.decay, method, None)?;
    let mut chains = Chains::new(device);
    (chains.budget, chains.extra_slots) = (program.budget, SLOTS);

    let slot_words = on.machine.slot();
    let base = |slot: usize| (1 + slot) as u32 * slot_words;
    let mut now = State { running: s0.clone(), operator: None };
    let mut kept: [Option<State>; SLOTS] = [None, None, None];
    let (mut rows, mut steps, mut stored, mut outputs) = (Rows::default(), Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut peak) = (0, vec![0.0; x.sizes.value_heads]);
    raise(&mut peak, &now, x.sizes.value_heads);
    for _ in 0..program.steps {
        match random.below(10) {
            0..4 => {
                let n = 1 + random.below(program.longest);
                let piece = x.slice(next..next + n)?;
                next += n;
                let first = rows.count;
                on.push(&mut rows, &piece);
                steps.push((Step::Run { first, rows: rows.count - first }, 0));
                let run = family.run(&piece, &now.running)?;
                let scale = (0..n * x.sizes.value_heads).map(|i| {
                    let (t, hv) = (i / x.sizes.value_heads, i % x.sizes.value_heads);
                    let end = head(&run.state, hv, x.sizes.value_heads);
                    family.output_scale(&piece, t, hv, peak[hv].max(frobenius(end)), end)
                });
                outputs.push((piece.clone(), run.o.clone(), scale.collect::<Vec<_>>()));
                now.running = run.state;
                if let Some(operator) = &now.operator {
                    let later = family.operator(&piece, 0..n)?;
                    now.operator = Some(compose_heads(&later, operator)?.strict()?);
                }
            }
            4 | 5 => {
                let n = random.below(20);
                let at = random.below(tokens - n);
                // A recurrence without decay keeps no transition, so its operators under construction cannot lose theirs.
                let may_lose = now.operator.is_none() || on.machine.form() != Form::Identity;
                let operators = match random.below(6) {
                    0 if may_lose => operators_without_transition(&family.operator(&x, at..at + n)?)?,
                    _ => family.operator(&x, at..at + n)?,
                };
                let stored_now = on.store(&operators, 0)?;
                // What the device sees are rounded numbers.
                let rounded = on.rounded(&operators, &stored_now)?;
                stored.push(stored_now);
                steps.push((Step::Begin, i64::MIN));
                now.running = apply_heads(&rounded, &now.running)?.strict()?;
                if let Some(operator) = &now.operator {
                    now.operator = Some(compose_heads(&rounded, operator)?.strict()?);
                }
            }
            6 if random.below(3) == 0 => {
                steps.push((Step::Zero, 0));
                now.running = family.zero_state(&x.sizes);
            }
            6 => {
                steps.push((Step::Begin, 0));
                now.operator = Some(family.identity(&x.sizes)?);
            }
            7 => {
                let slot = random.below(SLOTS);
                steps.push((Step::Snapshot { base: base(slot) }, 0));
                kept[slot] = Some(State { running: now.running.clone(), operator: None });
            }
            8 => {
                let slot = random.below(SLOTS);
                steps.push((Step::Store { base: base(slot), operator: now.operator.is_some() }, 0));
                kept[slot] = Some(now.clone());
            }
            _ => {
                let slot = random.below(SLOTS);
                if let Some(state) = kept[slot].clone() {
                    // An operator under construction goes on beside another running state.
                    let operator = state.operator.is_some();
                    steps.push((Step::Load { base: base(slot), operator }, 0));
                    now = State { operator: state.operator.or(now.operator), running: state.running };
                }
            }
        }
        raise(&mut peak, &now, x.sizes.value_heads);
    }
    // Operators were marked by their place; now they have words.
    let mut applies = chains.upload(&on.machine, &stored).map_err(failed("uploading operators"))?.into_iter();
    for step in steps.iter_mut().filter(|step| step.1 == i64::MIN) {
        *step = applies.next().unwrap_or((Step::Zero, 0));
    }
    let start = on.state(&s0);
    let walk = Walk { start: Start::State(&start), steps, operator: now.operator.is_some() };
    let walked = chains.walk(&on.machine, &rows, &[walk]).map_err(failed("a program"))?;

    let (mut errors, mut at) = (Errors::default(), 0);
    for (piece, o, scale) in &outputs {
        let width = on.rows(piece.sizes.tokens) as usize * on.machine.out() as usize;
        let got = on.outputs(walked.o.get(at..at + width).unwrap_or_default(), piece);
        at += width;
        let rows = got.chunks_exact(piece.sizes.value_dim).zip(o.chunks_exact(piece.sizes.value_dim)).zip(scale);
        let worst = |worst: f64, ((got, want), scale): ((&[f64], &[f64]), &f64)| worst.max(relative(got, want, *scale));
        errors.output = rows.fold(errors.output, worst);
    }
    let last = State { running: now.running.clone(), operator: now.operator.clone() };
    let expected = std::iter::once(Some(last)).chain(kept);
    for (slot, want) in walked.slots.iter().zip(expected) {
        let Some(want) = want else { continue };
        let state = Run { o: Vec::new(), state: on.own_state(&slot.state) }.state;
        for (hv, peak) in peak.iter().enumerate() {
            let heads = x.sizes.value_heads;
            let worst = &mut errors.state;
            *worst = worst.max(relative(head(&state, hv, heads), head(&want.running, hv, heads), *peak));
        }
        if let Some(want) = &want.operator {
            for ((got, want), peak) in on.operators(slot)?.iter().zip(want).zip(&peak) {
                let worst = &mut errors.state;
                *worst = worst.max(relative(got.state(), want.state(), peak.max(want.state_norm())));
                let (got, want) =
                    (got.transition().to_dense(x.sizes.key_dim), want.transition().to_dense(x.sizes.key_dim));
                *worst = worst.max(relative(&got, &want, frobenius(&want).max(1.0)));
            }
        }
    }
    Ok(errors)
}

/// The same S with T = 0, as `last-state` applies it.
fn operators_without_transition(operators: &[Operator]) -> Result<Vec<Operator>, SubjectError> {
    let one = |o: &Operator| {
        let zero = Transition::Scalar { log: f64::MIN };
        let written = Operator::new(o.key_dim(), o.value_dim(), zero, o.state().to_vec())?;
        Ok(if o.is_log_scaled() { written.log_scaled() } else { written })
    };
    operators.iter().map(one).collect()
}

fn head(state: &[f64], hv: usize, heads: usize) -> &[f64] {
    let len = state.len() / heads.max(1);
    &state[hv * len..(hv + 1) * len]
}

fn raise(peak: &mut [f64], state: &State, heads: usize) {
    for (hv, peak) in peak.iter_mut().enumerate() {
        let own = state.operator.as_ref().and_then(|o| o.get(hv)).map_or(0.0, Operator::state_norm);
        *peak = peak.max(frobenius(head(&state.running, hv, heads))).max(own);
    }
}

/// `‖got − want‖ / scale`; infinite where something is no number.
fn relative(got: &[f64], want: &[f64], scale: f64) -> f64 {
    let apart: Vec<f64> = got.iter().zip(want).map(|(a, b)| a - b).collect();
    let error = frobenius(&apart);
    match error {
        0.0 if got.len() == want.len() => 0.0,
        error if error.is_finite() && got.len() == want.len() => error / scale.max(f64::MIN_POSITIVE),
        _ => f64::INFINITY,
    }
}
