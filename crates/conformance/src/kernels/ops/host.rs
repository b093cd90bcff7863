//! Decays that a model fixes: values of the host, which no kernel computes.

use seam_algebra::AlgebraError;
use seam_algebra::families::lightning::{self, Schedule};
use seam_algebra::families::retnet;

use super::{Case, Checks};
use crate::kernels::golden::GoldenError;
use crate::kernels::measure::values;
use crate::tolerance::HOST;

fn known<T>(case: &Case<'_>, result: Result<T, AlgebraError>) -> Result<T, GoldenError> {
    result.map_err(|error| case.golden.not_understood(format!("{}: {error}", case.name)))
}

/// Slopes of lightning attention: `base[h]`, and with the factor of each layer in both published schedules `[layers, h]`.
pub(super) fn slopes(case: &Case<'_>) -> Checks {
    case.only(&["base", "serving", "hub"])?;
    let [heads] = case.shape("base")?;
    let base = known(case, lightning::slopes(heads))?;
    let mut checks = vec![values(&case.tensor("base"), &base, &case.floats("base", &[heads])?, HOST)];
    for (name, schedule) in [("serving", Schedule::Serving), ("hub", Schedule::Hub)] {
        let [layers, _] = case.shape(name)?;
        let mut found = Vec::new();
        for layer in 0..layers {
            let gates = known(case, lightning::log_gates(heads, layer, layers, schedule))?;
            found.extend(gates.iter().map(|g| -g));
        }
        checks.push(values(&case.tensor(name), &found, &case.floats(name, &[layers, heads])?, HOST));
    }
    Ok(checks)
}

/// `log γ_h` of RetNet.
pub(super) fn gamma(case: &Case<'_>) -> Checks {
    case.only(&["log_gamma"])?;
    let [heads] = case.shape("log_gamma")?;
    let found = known(case, retnet::log_gates(heads))?;
    Ok(vec![values(&case.tensor("log_gamma"), &found, &case.floats("log_gamma", &[heads])?, HOST)])
}
