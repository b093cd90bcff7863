//! Goldens of recurrences, through chains.

use std::sync::Arc;

use seam_device::Device;
use seam_kernels::chain::LOG_ZERO;
use seam_ops::{Decay, Form, OpError, Recurrence, Step, Update};

use super::golden::{Golden, GoldenError};
use super::measure::{groups, norms};
use crate::chains::{Arrays, Chains, Rows, Slot, Start, Stored, Walk};
use crate::machine::{Machine, Method};
use crate::report::{Check, Report};
use crate::tolerance::{APPLIED, CHAIN_OUTPUT, CHAIN_STATE, CHAIN_TRANSITION, ROUNDED, Tolerance};

/// What a golden's family is on kernels.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) decay: Decay,
    pub(super) update: Update,
}

/// The families of the standard layout.
pub(super) fn kind(family: &str) -> Option<Kind> {
    let (decay, update) = match family {
        "linear_attn" => (Decay::None, Update::Add),
        "retention" | "lightning" => (Decay::Fixed, Update::Add),
        "simple_gla" => (Decay::Scalar, Update::Add),
        "gla" => (Decay::Diagonal, Update::Add),
        "delta_rule" => (Decay::None, Update::Delta),
        "gated_delta_rule" => (Decay::Scalar, Update::Delta),
        "kda" => (Decay::Diagonal, Update::Delta),
        "mamba2_ssd" => (Decay::Scalar, Update::Strength),
        _ => return None,
    };
    Some(Kind { decay, update })
}

/// One case: inputs, and the results as f64.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) recurrence: Recurrence,
    pub(super) method: Method,
    pub(super) tokens: usize,
    /// q (already scaled), k, v, g, beta; those that the family does not have are empty.
    pub(super) inputs: [Vec<f64>; 5],
    /// Names of o, for reports.
    pub(super) output: &'static str,
    /// `D` `[HV]`, by which a token's value is added to its output; empty where there is none.
    pub(super) skip: Vec<f64>,
    pub(super) s0: Vec<f32>,
    pub(super) o: Vec<f64>,
    pub(super) s_final: Vec<f64>,
    pub(super) s_zero: Vec<f64>,
    /// T in the machine's form, factors and not logarithms.
    pub(super) t_c: Vec<f64>,
}

/// Checks every case by every method that the device has.
pub(super) fn check(
    device: &Arc<dyn Device>,
    golden: &Golden,
    family: &str,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let Some(kind) = kind(family) else {
        return Err(golden.not_understood(format!("the family {family} is not known")));
    };
    let mut chains = Chains::new(device);
    for name in golden.cases.keys() {
        let read = |method| match family {
            "mamba2_ssd" => Case::read_ssd(golden, name, method),
            _ => Case::read(golden, name, kind, method),
        };
        for method in Method::ALL.into_iter().filter(|method| Machine::runs(device.caps(), kind.update, *method)) {
            let case = read(method)?;
            case.in_one_pass(&mut chains, report)?;
            case.in_two_passes(&mut chains, report)?;
            if method == Method::Recurrent {
                case.applied(&mut chains, report)?;
            }
            if family == "linear_attn" {
                let want = golden.floats(name, "o_norm_abs", &golden.shape::<3>(name, "o_norm_abs")?)?;
                case.normalised(&mut chains, &want, report)?;
            }
        }
    }
    Ok(())
}

fn shaped(op: &Recurrence, method: Method) -> Result<Machine, OpError> {
    let machine = Machine::Chain { recurrence: *op, method };
    machine.check()?;
    Ok(machine)
}

fn narrow(sizes: [usize; 4]) -> Result<[u32; 4], OpError> {
    let fits = sizes.iter().all(|&n| n < 1 << 20);
    if fits { Ok(sizes.map(|n| n as u32)) } else { Err(OpError::Shape { op: "chain", what: format!("{sizes:?}") }) }
}

impl Case {
    fn read(golden: &Golden, name: &str, kind: Kind, method: Method) -> Result<Self, GoldenError> {
        let Kind { decay, update } = kind;
        let (gated, delta) = (decay != Decay::None, update == Update::Delta);
        let mut known = vec!["q", "k", "v", "s0", "o", "s_final", "s_zero", "t_c"];
        known.extend(gated.then_some("g"));
        known.extend(delta.then_some("beta"));
        known.extend((!gated && !delta).then_some("o_norm_abs"));
        golden.only(name, &known)?;
        let [t, h, k] = golden.shape(name, "q")?;
        let [_, hv, v] = golden.shape(name, "v")?;
        let [heads, value_heads, key, value] = narrow([h, hv, k, v])?;
        let recurrence = Recurrence { decay, update, heads, value_heads, key, value, rotation: None };
        let machine = shaped(&recurrence, method)?;
        let scale = golden.field(&format!("case:{name}"), "scale").and_then(|s| s.as_f64());
        let scale = scale.ok_or_else(|| golden.not_understood(format!("the case {name} has no scale")))?;
        let mut q = golden.floats(name, "q", &[t, h, k])?;
        q.iter_mut().for_each(|q| *q *= scale);
        let g = match decay {
            Decay::None => Vec::new(),
            Decay::Scalar => golden.floats(name, "g", &[t, hv])?,
            Decay::Diagonal => golden.floats(name, "g", &[t, hv, k])?,
            Decay::Fixed => {
                let g = golden.floats(name, "g", &[t, hv])?;
                if g.chunks_exact(hv).any(|row| row != &g[..hv]) {
                    return Err(golden.not_understood(format!("the gates of {name} change from token to token")));
                }
                g[..hv].to_vec()
            }
        };
        let beta = if delta { golden.floats(name, "beta", &[t, hv])? } else { Vec::new() };
        let transition: &[usize] = match machine.form() {
            Form::Dense => &[hv, k, k],
            Form::Diagonal => &[hv, k],
            _ => &[hv],
        };
        let state = [hv, k, v];
        Ok(Self {
            name: name.to_owned(),
            recurrence,
            method,
            tokens: t,
            inputs: [q, golden.floats(name, "k", &[t, h, k])?, golden.floats(name, "v", &[t, hv, v])?, g, beta],
            output: "o",
            skip: Vec::new(),
            s0: golden.singles(name, "s0", &state)?,
            o: golden.floats(name, "o", &[t, hv, v])?,
            s_final: golden.floats(name, "s_final", &state)?,
            s_zero: golden.floats(name, "s_zero", &state)?,
            t_c: golden.floats(name, "t_c", transition)?,
        })
    }

    /// Mamba-2 in its own names: x, dt, A, B, C, D, and states with the value axis first.
    fn read_ssd(golden: &Golden, name: &str, method: Method) -> Result<Self, GoldenError> {
        golden.only(name, &["x", "dt", "A", "B", "C", "D", "s0", "y", "s_final", "s_zero", "t_c"])?;
        let [t, hv, v] = golden.shape(name, "x")?;
        let [_, h, k] = golden.shape(name, "B")?;
        let [heads, value_heads, key, value] = narrow([h, hv, k, v])?;
        let (decay, update) = (Decay::Scalar, Update::Strength);
        let recurrence = Recurrence { decay, update, heads, value_heads, key, value, rotation: None };
        shaped(&recurrence, method)?;
        let dt = golden.floats(name, "dt", &[t, hv])?;
        let a = golden.floats(name, "A", &[hv])?;
        let g = dt.iter().zip(a.iter().cycle()).map(|(dt, a)| dt * a).collect();
        let key_first = |tensor: &str| -> Result<Vec<f64>, GoldenError> {
            let state = golden.floats(name, tensor, &[hv, v, k])?;
            let turn = |head: &[f64]| (0..k * v).map(|i| head[i % v * k + i / v]).collect::<Vec<_>>();
            Ok(state.chunks_exact(k * v).flat_map(turn).collect())
        };
        Ok(Self {
            name: name.to_owned(),
            recurrence,
            method,
            tokens: t,
            inputs: [
                golden.floats(name, "C", &[t, h, k])?,
                golden.floats(name, "B", &[t, h, k])?,
                golden.floats(name, "x", &[t, hv, v])?,
                g,
                dt,
            ],
            output: "y",
            skip: golden.floats(name, "D", &[hv])?,
            s0: key_first("s0")?.iter().map(|&s| s as f32).collect(),
            o: golden.floats(name, "y", &[t, hv, v])?,
            s_final: key_first("s_final")?,
            s_zero: key_first("s_zero")?,
            t_c: golden.floats(name, "t_c", &[hv])?,
        })
    }

    fn machine(&self) -> Machine {
        Machine::Chain { recurrence: self.recurrence, method: self.method }
    }

    /// Elements of one head's state.
    fn state_len(&self) -> usize {
        (self.recurrence.key * self.recurrence.value) as usize
    }

    /// Elements of one head's transition.
    fn transition_len(&self) -> usize {
        self.t_c.len() / self.recurrence.value_heads as usize
    }

    /// What errors of each head's end state are relative to.
    fn state_scale(&self) -> Vec<f64> {
        let start: Vec<f64> = self.s0.iter().map(|&s| f64::from(s)).collect();
        let heads = norms(&start, self.state_len()).into_iter().zip(norms(&self.s_final, self.state_len()));
        heads.map(|(a, b)| a.max(b)).collect()
    }

    /// The same for the outputs of each row and head.
    fn output_scale(&self) -> Vec<f64> {
        let r = self.recurrence;
        let (h, hv) = (r.heads as usize, r.value_heads as usize);
        let (states, queries) = (self.state_scale(), norms(&self.inputs[0], r.key as usize));
        let values = norms(&self.inputs[2], r.value as usize);
        let skipped = |row: usize| self.skip.get(row % hv).map_or(0.0, |d| d.abs() * values[row]);
        (0..self.tokens * hv)
            .map(|row| states[row % hv] * queries[row / hv * h + row % hv * h / hv] + skipped(row))
            .collect()
    }

    /// The same for each head's S and T.
    fn operator_scale(&self) -> (Vec<f64>, Vec<f64>) {
        let transitions = norms(&self.t_c, self.transition_len()).into_iter().map(|t| t.max(1.0)).collect();
        (norms(&self.s_zero, self.state_len()), transitions)
    }

    /// The rows of some of the tokens.
    fn rows(&self, tokens: std::ops::Range<usize>) -> Rows {
        let fixed = self.recurrence.decay == Decay::Fixed;
        let part = |i: usize| {
            let array = &self.inputs[i];
            let width = array.len() / self.tokens;
            if i == 3 && fixed { array } else { &array[tokens.start * width..tokens.end * width] }
        };
        let x = Arrays { q: part(0), k: part(1), v: part(2), g: part(3), beta: part(4), ..Arrays::default() };
        let mut rows = Rows::default();
        rows.push(&self.machine(), 1.0, &x);
        rows.skip = self.skip.iter().map(|&d| d as f32).collect();
        rows
    }

    fn run(rows: &Rows) -> (Step, i64) {
        (Step::Run { first: 0, rows: rows.count }, 0)
    }

    /// Load s0, begin the operator, run all rows, store with the operator.
    fn in_one_pass(&self, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let rows = self.rows(0..self.tokens);
        let steps = vec![(Step::Begin, 0), Self::run(&rows)];
        let walk = Walk { start: Start::State(&self.s0), steps, operator: true };
        let walked = chains.walk(&self.machine(), &rows, &[walk])?;
        let how = format!(" ({})", self.method.name());
        report.checks.push(self.outputs(&how, &walked.o));
        for slot in &walked.slots {
            report.checks.push(self.state(&how, slot, CHAIN_STATE));
            report.checks.extend(self.operator(&how, slot, CHAIN_STATE, CHAIN_TRANSITION));
        }
        Ok(())
    }

    /// The same in two passes, cut at an odd place (before the only token where there is one); state and operator wait
    /// in the slot.
    fn in_two_passes(&self, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let cut = if self.tokens > 1 { (self.tokens / 2) | 1 } else { 0 };
        let (head, tail) = (self.rows(0..cut), self.rows(cut..self.tokens));
        let mut steps = vec![(Step::Begin, 0)];
        steps.extend((cut > 0).then(|| Self::run(&head)));
        let first = Walk { start: Start::State(&self.s0), steps, operator: true };
        let mut o = chains.walk(&self.machine(), &head, &[first])?.o;
        let steps = if tail.count > 0 { vec![Self::run(&tail)] } else { Vec::new() };
        let second = Walk { start: Start::Kept, steps, operator: true };
        let walked = chains.walk(&self.machine(), &tail, &[second])?;
        o.extend(walked.o);
        let how = format!(" ({}, in two passes)", self.method.name());
        report.checks.push(self.outputs(&how, &o));
        for slot in &walked.slots {
            report.checks.push(self.state(&how, slot, CHAIN_STATE));
            report.checks.extend(self.operator(&how, slot, CHAIN_STATE, CHAIN_TRANSITION));
        }
        Ok(())
    }

    /// The golden operator, rounded to f32, applied to s0, alone and with operator columns beside: applied to `0 | I`
    /// these give it back.
    fn applied(&self, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let single = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let form = self.recurrence.form();
        let t = match form {
            Form::Dense => single(&self.t_c),
            Form::Scalar | Form::Diagonal => self.t_c.iter().map(|t| (t.ln() as f32).max(LOG_ZERO)).collect(),
            Form::Identity | Form::Zero => Vec::new(),
        };
        let stored = Stored { s: single(&self.s_zero), t, form, moved: 0 };
        let apply = chains.upload(&self.machine(), &[stored])?;
        let plain = Walk { start: Start::State(&self.s0), steps: apply.clone(), operator: false };
        let steps = std::iter::once((Step::Begin, 0)).chain(apply).collect();
        let beside = Walk { start: Start::State(&self.s0), steps, operator: true };
        let walked = chains.walk(&self.machine(), &Rows::default(), &[plain, beside])?;
        if let [plain, beside] = walked.slots.as_slice() {
            report.checks.push(self.state(" (applied)", plain, APPLIED));
            report.checks.push(self.state(" (applied beside an operator)", beside, APPLIED));
            let transition = if form == Form::Dense { ROUNDED } else { APPLIED };
            report.checks.extend(self.operator(" (applied to the identity)", beside, ROUNDED, transition));
        }
        Ok(())
    }

    /// Positive queries and keys with a value column of ones: outputs divided by that column.
    fn normalised(&self, chains: &mut Chains, want: &[f64], report: &mut Report) -> Result<(), GoldenError> {
        let r = self.recurrence;
        let v = r.value as usize;
        let wide = Recurrence { value: r.value + 1, ..r };
        let machine = shaped(&wide, self.method)?;
        // The queries are already scaled; so is the 0.01 that keeps them positive.
        let scale = f64::from(r.key).sqrt().recip();
        let positive = |x: &[f64], small: f64| x.iter().map(|x| x.abs() + small).collect::<Vec<_>>();
        let (q, k) = (positive(&self.inputs[0], 0.01 * scale), positive(&self.inputs[1], 0.01));
        let values: Vec<f64> =
            self.inputs[2].chunks_exact(v).flat_map(|row| row.iter().copied().chain([1.0])).collect();
        let mut rows = Rows::default();
        rows.push(&machine, 1.0, &Arrays { q: &q, k: &k, v: &values, ..Arrays::default() });
        let walk = Walk { start: Start::Zero, steps: vec![Self::run(&rows)], operator: false };
        let o = chains.walk(&machine, &rows, &[walk])?.o;
        let divided: Vec<f64> =
            o.chunks_exact(v + 1).flat_map(|row| row[..v].iter().map(move |o| o / (row[v] + 1e-10))).collect();
        // A weighted mean of values with positive weights: relative to the largest value.
        let largest = norms(&self.inputs[2], v).into_iter().fold(0.0, f64::max);
        let scale = vec![largest; self.tokens * r.value_heads as usize];
        let name = format!("{}/o_norm_abs ({})", self.name, self.method.name());
        report.checks.push(groups(&name, &divided, want, &scale, CHAIN_OUTPUT));
        Ok(())
    }

    fn outputs(&self, how: &str, o: &[f64]) -> Check {
        groups(&format!("{}/{}{how}", self.name, self.output), o, &self.o, &self.output_scale(), CHAIN_OUTPUT)
    }

    fn state(&self, how: &str, slot: &Slot, tolerance: Tolerance) -> Check {
        groups(&format!("{}/s_final{how}", self.name), &slot.state, &self.s_final, &self.state_scale(), tolerance)
    }

    fn operator(&self, how: &str, slot: &Slot, state: Tolerance, transition: Tolerance) -> [Check; 2] {
        let (s, t) = &self.operator_scale();
        let own: Vec<f64> = match self.recurrence.form() {
            Form::Dense => slot.t.clone(),
            Form::Scalar | Form::Diagonal => slot.t.iter().map(|log| log.exp()).collect(),
            Form::Identity | Form::Zero => vec![1.0; self.t_c.len()],
        };
        [
            groups(&format!("{}/s_zero{how}", self.name), &slot.s, &self.s_zero, s, state),
            groups(&format!("{}/t_c{how}", self.name), &own, &self.t_c, t, transition),
        ]
    }
}
