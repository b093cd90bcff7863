//! Goldens of operators that move: keys rotated at several positions.

use std::sync::Arc;

use seam_algebra::rerotate::{Pairing, Rotation};
use seam_device::Device;
use seam_ops::{Decay, Form, Recurrence, Step, Update};

use super::golden::{Golden, GoldenError};
use super::measure::{groups, norms};
use crate::chains::{Arrays, Chains, Rows, Start, Stored, Walk};
use crate::machine::{Machine, Method};
use crate::report::Report;
use crate::tolerance::{CHAIN_OUTPUT, CHAIN_STATE, MOVED};

/// Positions at which the file has states; those with outputs first.
const POSITIONS: [i64; 5] = [0, 37, 1, 4096, 100_000];

/// Checks every case: states and outputs computed at a position, and the state computed at 0 moved there.
pub(super) fn check(device: &Arc<dyn Device>, golden: &Golden, report: &mut Report) -> Result<(), GoldenError> {
    let mut chains = Chains::new(device);
    for name in golden.cases.keys() {
        let mut known: Vec<String> = ["q_raw", "k_raw", "v", "g", "o_at_0", "o_at_37"].map(str::to_owned).to_vec();
        known.extend(POSITIONS.map(|p| format!("s_at_{p}")));
        golden.only(name, &known.iter().map(String::as_str).collect::<Vec<_>>())?;
        let methods = Method::ALL.into_iter().filter(|m| Machine::runs(device.caps(), Update::Add, *m));
        for method in methods {
            Case::read(golden, name, method)?.check(golden, &mut chains, report)?;
        }
    }
    Ok(())
}

struct Case<'a> {
    name: &'a str,
    method: Method,
    recurrence: Recurrence,
    rotation: Rotation,
    scale: f64,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    g: Vec<f64>,
}

impl<'a> Case<'a> {
    fn read(golden: &Golden, name: &'a str, method: Method) -> Result<Self, GoldenError> {
        let number = |field: &str| {
            let value = golden.field(&format!("case:{name}"), field).and_then(|x| x.as_f64());
            value.ok_or_else(|| golden.not_understood(format!("the case {name} has no {field}")))
        };
        let [t, h, k] = golden.shape(name, "k_raw")?;
        let [_, hv, v] = golden.shape(name, "v")?;
        let rotation = Rotation::rope(Pairing::Halves, number("rot")? as usize, number("theta")?)
            .map_err(|e| golden.not_understood(e.to_string()))?;
        let turned = seam_ops::Rotation { pairing: seam_ops::Pairing::Halves, dims: rotation.rotated_dims() as u32 };
        let recurrence = Recurrence {
            decay: Decay::Fixed,
            update: Update::Add,
            heads: h as u32,
            value_heads: hv as u32,
            key: k as u32,
            value: v as u32,
            rotation: Some(turned),
        };
        recurrence.check("chain")?;
        let g = golden.floats(name, "g", &[t, hv])?;
        if g.chunks_exact(hv).any(|row| row != &g[..hv]) {
            return Err(golden.not_understood(format!("the gates of {name} change from token to token")));
        }
        Ok(Self {
            name,
            method,
            recurrence,
            rotation,
            scale: number("scale")?,
            q: golden.floats(name, "q_raw", &[t, h, k])?,
            k: golden.floats(name, "k_raw", &[t, h, k])?,
            v: golden.floats(name, "v", &[t, hv, v])?,
            g: g[..hv].to_vec(),
        })
    }

    fn machine(&self) -> Machine {
        Machine::Chain { recurrence: self.recurrence, method: self.method }
    }

    fn check(&self, golden: &Golden, chains: &mut Chains, report: &mut Report) -> Result<(), GoldenError> {
        let r = self.recurrence;
        let [hv, k, v] = [r.value_heads, r.key, r.value].map(|n| n as usize);
        chains.frequencies = self.rotation.frequencies().to_vec();
        let label = |what: &str, how: &str| format!("{}/{what} ({}, {how})", self.name, self.method.name());
        let mut at_zero = Vec::new();
        for position in POSITIONS {
            let want = golden.floats(self.name, &format!("s_at_{position}"), &[hv, k, v])?;
            let scale = norms(&want, k * v);
            let rows = self.rows(golden, position)?;
            let steps = vec![(Step::Run { first: 0, rows: rows.count }, 0)];
            let walked = chains.walk(&self.machine(), &rows, &[Walk { start: Start::Zero, steps, operator: false }])?;
            let Some(slot) = walked.slots.into_iter().next() else { continue };
            let name = label(&format!("s_at_{position}"), "computed");
            report.checks.push(groups(&name, &slot.state, &want, &scale, CHAIN_STATE));
            if matches!(position, 0 | 37) {
                let tokens = self.v.len() / (hv * v);
                let outputs = golden.floats(self.name, &format!("o_at_{position}"), &[tokens, hv, v])?;
                let queries = norms(&self.q, k);
                let scales: Vec<f64> =
                    (0..tokens * hv).map(|i| scale[i % hv] * queries[i * r.heads as usize / hv] * self.scale).collect();
                let name = label(&format!("o_at_{position}"), "computed");
                report.checks.push(groups(&name, &walked.o, &outputs, &scales, CHAIN_OUTPUT));
            }
            if position == 0 {
                at_zero = want;
                continue;
            }
            let s = at_zero.iter().map(|&s| s as f32).collect();
            let log = self.g.iter().map(|&g| g as f32).collect();
            let apply = chains.upload(&self.machine(), &[Stored { s, t: log, form: Form::Scalar, moved: position }])?;
            let moved = Walk { start: Start::Zero, steps: apply, operator: false };
            for slot in chains.walk(&self.machine(), &Rows::default(), &[moved])?.slots {
                let name = label(&format!("s_at_{position}"), "moved from 0");
                report.checks.push(groups(&name, &slot.state, &want, &scale, MOVED));
            }
        }
        Ok(())
    }

    /// The rows with queries and keys rotated as of a position.
    fn rows(&self, golden: &Golden, position: i64) -> Result<Rows, GoldenError> {
        let r = self.recurrence;
        let turn = |array: &[f64]| -> Result<Vec<f64>, GoldenError> {
            let mut array = array.to_vec();
            for (i, row) in array.chunks_exact_mut(r.key as usize).enumerate() {
                let t = (i / r.heads as usize) as i64;
                self.rotation
                    .rotate(row, r.key as usize, 1, position + t)
                    .map_err(|e| golden.not_understood(e.to_string()))?;
            }
            Ok(array)
        };
        let mut rows = Rows::default();
        let x = Arrays { q: &turn(&self.q)?, k: &turn(&self.k)?, v: &self.v, g: &self.g, ..Arrays::default() };
        rows.push(&self.machine(), self.scale, &x);
        Ok(rows)
    }
}
