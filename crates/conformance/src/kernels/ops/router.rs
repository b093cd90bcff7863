//! Routers of experts.

use seam_ops::{Operation, Router, Scoring, Tensor};

use super::{Case, Checks, OnDevice};
use crate::kernels::measure::values;
use crate::tolerance::{EXACT, ROUTER_WEIGHT};

/// The router of Ring: 4 groups of which 2 are kept, weights scaled by 2.5.
pub(super) const GROUPED: fn(&Tensor) -> Scoring<'_> =
    |bias| Scoring::Sigmoid { bias, groups: 4, keep: 2, renormalise: true, scale: 2.5 };

/// The experts of each row, best first, and their weights: `logits` is `[rows, experts]`. Routers without a bias do not
/// read the one they are given.
pub(super) fn router(on: &OnDevice<'_>, case: &Case<'_>, scoring: impl Fn(&Tensor) -> Scoring<'_>) -> Checks {
    case.only(&["logits", "bias", "index", "weight"])?;
    let shape @ [count, experts] = case.shape("logits")?;
    let chosen @ [_, top] = case.shape("index")?;
    let (e, k) = (case.narrow(experts)?, case.narrow(top)?);
    let pass = on.rows(count)?;
    let logits = on.tensor(&pass, "logits", e, &case.singles("logits", &shape)?)?;
    let bias = match case.golden.cases.get(case.name).is_some_and(|names| names.iter().any(|name| name == "bias")) {
        true => case.singles("bias", &[experts])?,
        false => vec![f32::NAN; experts],
    };
    let bias = on.weight("bias", &bias)?;
    let [index, weight] = [on.result(&pass, "index", k)?, on.result(&pass, "weight", k)?];
    on.run(&pass, &|recorder, tables| {
        let scoring = scoring(&bias);
        Router { tables, logits: &logits, index: &index, weight: &weight, scoring }.record(recorder, on.device.caps())
    })?;
    let found: Vec<f64> = on.bits(&index, count)?.into_iter().map(f64::from).collect();
    let indices: Vec<f64> = case.golden.whole(case.name, "index", &chosen)?.into_iter().map(f64::from).collect();
    let weights = case.floats("weight", &chosen)?;
    Ok(vec![
        values(&case.tensor("index"), &found, &indices, EXACT),
        values(&case.tensor("weight"), &on.read(&weight, count)?, &weights, ROUTER_WEIGHT),
    ])
}
