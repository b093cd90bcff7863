//! Goldens of the gated delta rule, through chains.

use std::sync::Arc;

use seam_device::Device;
use seam_ops::{Form, Step};

use super::golden::{Golden, GoldenError};
use super::measure::{groups, norms};
use crate::chains::{Chains, Rows, Shape, Slot, Start, Stored, Walk};
use crate::report::{Check, Report};
use crate::tolerance::{APPLIED, CHAIN_OUTPUT, CHAIN_STATE, CHAIN_TRANSITION, ROUNDED, Tolerance};

/// One case: inputs, and the results as f64.
struct Case {
    name: String,
    shape: Shape,
    tokens: usize,
    /// q (already scaled), k, v, g, beta.
    inputs: [Vec<f64>; 5],
    s0: Vec<f32>,
    o: Vec<f64>,
    s_final: Vec<f64>,
    s_zero: Vec<f64>,
    t_c: Vec<f64>,
    /// What errors of each head's end state are relative to.
    state_scale: Vec<f64>,
    /// The same for the outputs of each row and head.
    output_scale: Vec<f64>,
    /// The same for each head's S and T.
    operator_scale: (Vec<f64>, Vec<f64>),
}

/// Checks every case; `gated` if there is a decay, otherwise g = 0.
pub(super) fn check(
    device: &Arc<dyn Device>,
    golden: &Golden,
    gated: bool,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let mut chains = Chains::new(device);
    for name in golden.cases.keys() {
        let case = Case::read(golden, name, gated)?;
        case.in_one_pass(&mut chains, report)?;
        case.in_two_passes(&mut chains, report)?;
        case.applied(&mut chains, report)?;
    }
    Ok(())
}

impl Case {
    fn read(golden: &Golden, name: &str, gated: bool) -> Result<Self, GoldenError> {
        let mut known = vec!["q", "k", "v", "beta", "s0", "o", "s_final", "s_zero", "t_c"];
        known.extend(gated.then_some("g"));
        golden.only(name, &known)?;
        let [t, h, k] = golden.shape(name, "q")?;
        let [_, hv, v] = golden.shape(name, "v")?;
        let shape = Shape::new(h, hv, k, v)?;
        let scale = golden.field(&format!("case:{name}"), "scale").and_then(|s| s.as_f64());
        let scale = scale.ok_or_else(|| golden.not_understood(format!("the case {name} has no scale")))?;
        let mut q = golden.floats(name, "q", &[t, h, k])?;
        q.iter_mut().for_each(|q| *q *= scale);
        let heads = |tensor: &str| golden.floats(name, tensor, &[t, hv]);
        let g = if gated { heads("g")? } else { vec![0.0; t * hv] };
        let state = [hv, k, v];
        let s0 = golden.singles(name, "s0", &state)?;
        let s_final = golden.floats(name, "s_final", &state)?;
        let s_zero = golden.floats(name, "s_zero", &state)?;
        let t_c = golden.floats(name, "t_c", &[hv, k, k])?;
        let start: Vec<f64> = s0.iter().map(|&s| f64::from(s)).collect();
        let larger = |a: Vec<f64>, b: Vec<f64>| a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect::<Vec<_>>();
        let state_scale = larger(norms(&start, k * v), norms(&s_final, k * v));
        let queries = norms(&q, k);
        let output_scale =
            (0..t * hv).map(|row| state_scale[row % hv] * queries[row / hv * h + row % hv * h / hv]).collect();
        let transitions = norms(&t_c, k * k).into_iter().map(|t| t.max(1.0)).collect();
        let operator_scale = (norms(&s_zero, k * v), transitions);
        Ok(Self {
            name: name.to_owned(),
            shape,
            tokens: t,
            inputs: [
                q,
                golden.floats(name, "k", &[t, h, k])?,
                golden.floats(name, "v", &[t, hv, v])?,
                g,
                heads("beta")?,
            ],
            s0,
            o: golden.floats(name, "o", &[t, hv, v])?,
            s_final,
            s_zero,
            t_c,
            state_scale,
            output_scale,
            operator_scale,
        })
    }

    /// The rows of some of the tokens.
    fn rows(&self, tokens: std::ops::Range<usize>) -> Rows {
        let part = |x: &'_ Vec<f64>| -> std::ops::Range<usize> {
            let width = x.len() / self.tokens;
            tokens.start * width..tokens.end * width
        };
        let mut rows = Rows::default();
        rows.push(&self.shape, 1.0, self.inputs.each_ref().map(|x| &x[part(x)]));
        rows
    }

    fn run(rows: &Rows) -> Step {
        Step::Run { first: 0, rows: rows.count }
    }

    /// Load s0, begin the operator, run all rows, store with the operator.
    fn in_one_pass(&self, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let rows = self.rows(0..self.tokens);
        let steps = vec![Step::Begin, Self::run(&rows)];
        let walk = Walk { start: Start::State(&self.s0), steps, operator: true };
        let walked = chains.walk(&self.shape, &rows, &[walk])?;
        report.checks.push(self.outputs("", &walked.o));
        for slot in &walked.slots {
            report.checks.push(self.state("", slot, CHAIN_STATE));
            report.checks.extend(self.operator("", slot, CHAIN_STATE, CHAIN_TRANSITION));
        }
        Ok(())
    }

    /// The same in two passes, cut at an odd place (before the only token where there is one); state and operator wait
    /// in the slot.
    fn in_two_passes(&self, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let cut = if self.tokens > 1 { (self.tokens / 2) | 1 } else { 0 };
        let (head, tail) = (self.rows(0..cut), self.rows(cut..self.tokens));
        let mut steps = vec![Step::Begin];
        steps.extend((cut > 0).then(|| Self::run(&head)));
        let first = Walk { start: Start::State(&self.s0), steps, operator: true };
        let mut o = chains.walk(&self.shape, &head, &[first])?.o;
        let steps = if tail.count > 0 { vec![Self::run(&tail)] } else { Vec::new() };
        let second = Walk { start: Start::Kept, steps, operator: true };
        let walked = chains.walk(&self.shape, &tail, &[second])?;
        o.extend(walked.o);
        report.checks.push(self.outputs(" (in two passes)", &o));
        for slot in &walked.slots {
            report.checks.push(self.state(" (in two passes)", slot, CHAIN_STATE));
            report.checks.extend(self.operator(" (in two passes)", slot, CHAIN_STATE, CHAIN_TRANSITION));
        }
        Ok(())
    }

    /// The golden operator, rounded to f32, applied to s0, alone and with operator columns beside: applied to `0 | I`
    /// these give it back.
    fn applied(&self, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let single = |x: &[f64]| x.iter().map(|&x| x as f32).collect();
        let stored = Stored { s: single(&self.s_zero), t: single(&self.t_c), form: Form::Dense };
        let apply = chains.upload(&self.shape, &[stored])?;
        let plain = Walk { start: Start::State(&self.s0), steps: apply.clone(), operator: false };
        let steps = std::iter::once(Step::Begin).chain(apply).collect();
        let beside = Walk { start: Start::State(&self.s0), steps, operator: true };
        let walked = chains.walk(&self.shape, &Rows::default(), &[plain, beside])?;
        if let [plain, beside] = walked.slots.as_slice() {
            report.checks.push(self.state(" (applied)", plain, APPLIED));
            report.checks.push(self.state(" (applied beside an operator)", beside, APPLIED));
            report.checks.extend(self.operator(" (applied to the identity)", beside, ROUNDED, ROUNDED));
        }
        Ok(())
    }

    fn outputs(&self, how: &str, o: &[f64]) -> Check {
        groups(&format!("{}/o{how}", self.name), o, &self.o, &self.output_scale, CHAIN_OUTPUT)
    }

    fn state(&self, how: &str, slot: &Slot, tolerance: Tolerance) -> Check {
        groups(&format!("{}/s_final{how}", self.name), &slot.state, &self.s_final, &self.state_scale, tolerance)
    }

    fn operator(&self, how: &str, slot: &Slot, state: Tolerance, transition: Tolerance) -> [Check; 2] {
        let (s, t) = &self.operator_scale;
        [
            groups(&format!("{}/s_zero{how}", self.name), &slot.s, &self.s_zero, s, state),
            groups(&format!("{}/t_c{how}", self.name), &slot.t, &self.t_c, t, transition),
        ]
    }
}
