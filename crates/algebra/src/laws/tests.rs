//! The laws hold for the oracle, and for a plain f32 recurrence within f32 tolerances.

use super::*;
use crate::inputs::{Inputs, Run, Sizes, round_to_f32};
use crate::operator::Operator;
use crate::strategy::{Case, CaseParams, Kind, Rounding, cases};
use crate::transition::Transition;
use proptest::prelude::*;

fn holds(law: Law, case: &Case) -> Result<(), TestCaseError> {
    match check(law, &mut OracleSubject::default(), case) {
        Ok(m) => prop_assert!(m.holds(), "{law:?} {}: {:e} > {:e}", m.part, m.error, m.tolerance),
        Err(SubjectError::NotApplicable { why }) => return Err(TestCaseError::reject(why)),
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    }
    Ok(())
}

macro_rules! law_properties {
    ($($name:ident: $law:ident,)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
            $(#[test] fn $name(case in cases(&CaseParams::default())) { holds(Law::$law, &case)?; })*

            #[test]
            fn rerotation(case in rotation_cases(130)) {
                for law in RerotationLaw::ALL {
                    let m = check_rerotation(law, &case).unwrap();
                    prop_assert!(m.holds(), "{law:?} {}: {:e} > {:e}", m.part, m.error, m.tolerance);
                }
            }
        }
    };
}

law_properties! {
    oracle: Oracle,
    operator: Operator,
    identity: Identity,
    associativity: Associativity,
    split_invariance: SplitInvariance,
    apply_compose: ApplyCompose,
    short_lengths: ShortLengths,
    order_sensitivity: OrderSensitivity,
    contraction: Contraction,
    batch: Batch,
    chain: Chain,
}

#[test]
fn every_law_holds_for_the_oracle_and_the_run_is_deterministic() {
    let options = Options { seed: 11, cases: 24, max_len: 129 };
    let mut heard = Vec::new();
    let mut run = || {
        run_laws(&mut OracleSubject::default(), &options, &mut |law, case| {
            heard.push((law.to_string(), case));
        })
    };
    let first = run();
    assert_eq!(first, run());
    assert_eq!(first.len(), Law::ALL.len());
    for report in &first {
        assert!(report.passed, "{report}");
        assert_eq!(report.cases + report.skipped, 24);
        assert!(report.worst_error <= report.tolerance);
    }
    // Composition rounds: a law that only ever measured an exact 0 would be measuring nothing.
    assert!(first[3].worst_error > 0.0 && first[3].worst_seed.is_some());
    assert_eq!(heard.len(), 2 * 24 * Law::ALL.len());
    assert_eq!(heard[23], ("oracle".to_string(), 23));
}

#[test]
fn rerotation_reports() {
    let options = Options { seed: 1, cases: 30, max_len: 65 };
    for report in run_rerotation_laws(&options, &mut |_, _| ()) {
        assert!(report.passed && report.cases == 30, "{report}");
        assert!(report.worst_error > 0.0);
    }
}

/// The wrong sign, and T left in place, must both show.
#[test]
fn rerotation_laws_can_fail() {
    use crate::rerotate::{Decay, Pairing, Rotation};
    let x = Case { seed: 3, kind: Kind::SlowDecay, tokens: 9, key_heads: 1, ratio: 1, key_dim: 8, value_dim: 4 };
    let (x, _) = x.inputs(Rounding::F64);
    let rotation = Rotation::rope(Pairing::Halves, 8, 1e4).unwrap();
    let at = |position: i64| {
        let mut x = x.clone();
        for (t, key) in x.k.chunks_exact_mut(8).enumerate() {
            rotation.rotate(key, 8, 1, position + t as i64).unwrap();
        }
        crate::oracle::Oracle::operator(&crate::oracle::GatedDeltaRule, &x, 0..9).unwrap()
    };
    let (here, there) = (at(0), at(5));
    let error = |op: &Operator| measure::operator_errors(std::slice::from_ref(op), &there, &[1.0]).unwrap();
    let (t, s) = error(&rotation.rerotate(&here[0], Decay::Scalar, 5).unwrap());
    // Angles below 15: a few roundings.
    assert!(t < 1e-13 && s < 1e-13);
    let (t, s) = error(&rotation.rerotate(&here[0], Decay::Scalar, -5).unwrap());
    assert!(t > 1e-3 && s > 1e-3);
    let (t, _) = error(&here[0]);
    assert!(t > 1e-3);
}

#[test]
fn a_subject_that_does_nothing_does_not_pass() {
    struct Idle;
    fn no<T>() -> Result<T, SubjectError> {
        Err(SubjectError::NotApplicable { why: "idle".into() })
    }
    impl Subject for Idle {
        fn name(&self) -> String {
            "idle".into()
        }
        fn limits(&self) -> Limits {
            Limits { max_cases: 3, ..Limits::default() }
        }
        fn run(&mut self, _: &Inputs, _: &[f64]) -> Result<Run, SubjectError> {
            no()
        }
        fn operator(&mut self, _: &Inputs, _: usize) -> Result<Vec<Operator>, SubjectError> {
            no()
        }
        fn chain(&mut self, _: &Sizes, _: &[f64], _: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
            no()
        }
        fn batch(&mut self, _: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
            no()
        }
    }
    for report in run_laws(&mut Idle, &Options::default(), &mut |_, _| ()) {
        assert!(!report.passed && report.cases == 0 && report.skipped == 3, "{report}");
    }
}

/// The recurrence in f32 throughout, as a kernel computes it: shows that the hard inputs stay within f32's reach and that
/// the error measure is one that honest f32 code can meet.
struct F32;

fn run_f32(x: &Inputs, s0: &[f64]) -> Run {
    let Sizes { tokens, value_heads, key_dim, value_dim, .. } = x.sizes;
    let mut state: Vec<f32> = s0.iter().map(|&s| s as f32).collect();
    let mut o = vec![0f32; x.v.len()];
    for t in 0..tokens {
        for (hv, s) in state.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let row = t * value_heads + hv;
            let decay = (x.g[row] as f32).exp();
            for j in 0..value_dim {
                let mut read = 0f32;
                for i in 0..key_dim {
                    s[i * value_dim + j] *= decay;
                    read += s[i * value_dim + j] * x.key(t, hv)[i] as f32;
                }
                let u = x.beta[row] as f32 * (x.value(t, hv)[j] as f32 - read);
                let mut out = 0f32;
                for i in 0..key_dim {
                    s[i * value_dim + j] += x.key(t, hv)[i] as f32 * u;
                    out += x.query(t, hv)[i] as f32 * s[i * value_dim + j];
                }
                o[row * value_dim + j] = x.scale as f32 * out;
            }
        }
    }
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect();
    Run { o: wide(&o), state: wide(&state) }
}

impl Subject for F32 {
    fn name(&self) -> String {
        "f32".into()
    }

    fn limits(&self) -> Limits {
        // Measured below 1e-6; the 2e-5 of chunked kernels would be wider than a sequential recurrence needs.
        let tolerances = Tolerances { state: 2e-6, output: 2e-6, transition: 2e-6, contraction: 2e-6, batch: 0.0 };
        Limits { rounding: Rounding::F32, tolerances, ..Limits::default() }
    }

    fn run(&mut self, x: &Inputs, s0: &[f64]) -> Result<Run, SubjectError> {
        Ok(run_f32(x, s0))
    }

    fn operator(&mut self, x: &Inputs, first: usize) -> Result<Vec<Operator>, SubjectError> {
        let x = x.slice(first..x.sizes.tokens)?;
        let (k, v) = (x.sizes.key_dim, x.sizes.value_dim);
        let own = run_f32(&x, &vec![0.0; x.sizes.state_len()]).state;
        let mut columns = x.clone();
        columns.sizes.value_dim = k;
        columns.v = vec![0.0; x.sizes.tokens * x.sizes.value_heads * k];
        let mut eye = vec![0.0; columns.sizes.state_len()];
        for (row, e) in eye.chunks_exact_mut(k).enumerate() {
            e[row % k] = 1.0;
        }
        let t = run_f32(&columns, &eye).state;
        t.chunks_exact(k * k)
            .zip(own.chunks_exact(k * v))
            .map(|(t, s)| {
                let transition = Transition::Dense { matrix: t.to_vec() };
                Ok(Operator::new(k, v, transition, s.to_vec())?)
            })
            .collect()
    }

    fn chain(&mut self, _: &Sizes, s0: &[f64], steps: &[ChainStep<'_>]) -> Result<Run, SubjectError> {
        let mut all = Run { o: vec![], state: s0.to_vec() };
        for step in steps {
            match step {
                ChainStep::Run(x) => {
                    let run = run_f32(x, &all.state);
                    all.o.extend(run.o);
                    all.state = run.state;
                }
                ChainStep::Apply(operators) => {
                    all.state = crate::operator::apply_heads(operators, &all.state)?.strict()?;
                    round_to_f32(&mut all.state);
                }
            }
        }
        Ok(all)
    }

    fn batch(&mut self, xs: &[(Inputs, Vec<f64>)]) -> Result<Vec<Run>, SubjectError> {
        Ok(xs.iter().map(|(x, s0)| run_f32(x, s0)).collect())
    }
}

#[test]
fn every_law_holds_in_f32() {
    let options = Options { seed: 2, cases: 60, max_len: 300 };
    for report in run_laws(&mut F32, &options, &mut |_, _| ()) {
        assert!(report.passed, "{report}");
    }
}

#[test]
fn a_panic_of_the_subject_is_a_failure_with_its_message() {
    let options = Options { seed: 0, cases: 4, max_len: 3 };
    let strategy = cases(&CaseParams { max_tokens: 3, ..CaseParams::default() });
    let report =
        report::drive("panics", "subject", &strategy, &options, &|case| case.to_string(), &mut |_, _| (), &mut |_| {
            panic!("no kernel for this")
        });
    let failure = report.failure.unwrap();
    assert!(!report.passed && failure.contains("no kernel for this"), "{failure}");
}
