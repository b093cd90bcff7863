//! What comes back, how many bytes it took, and what is refused.

use super::super::round::F32_NORMAL;
use super::super::{Cells, Form, Shape, StorageError, TransitionForm};
use super::chains::bits;
use super::heads::tie;
use crate::absence::Absence;
use crate::error::AlgebraError;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::transition::Transition;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

fn dense(k: usize, v: usize, t: Vec<f64>, s: Vec<f64>) -> Operator {
    Operator::new(k, v, Transition::Dense { matrix: t }, s).unwrap()
}

fn plain(cells: Cells) -> Form {
    Form::Split { transition: TransitionForm::Dense(cells), state: cells }
}

fn all_forms() -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    for cells in Cells::ALL {
        forms.extend([
            plain(cells),
            Form::Split { transition: TransitionForm::Residual { log_gamma: -0.1, cells }, state: cells },
            Form::Split { transition: TransitionForm::Absent { head_norm: 1.0, bound: 1e9 }, state: cells },
            Form::Split { transition: TransitionForm::LogScalar, state: cells },
            Form::Split { transition: TransitionForm::LogDiagonal, state: cells },
            Form::Pair { cells },
        ]);
    }
    forms
}

#[test]
fn every_decoded_number_is_zero_or_a_normal_f32() {
    let mut rng = Rng::new(4);
    for cells in Cells::ALL {
        for low in [-60.0, -45.0, -39.0, -6.0, 30.0] {
            // Wide spreads within one matrix, down to what no f32 holds.
            let m: Vec<f64> = (0..40).map(|_| rng.normal() * rng.power(low, low + 7.0)).collect();
            let mut bytes = vec![];
            cells.encode(&m, 5, &mut bytes).unwrap();
            assert_eq!(bytes.len(), cells.bytes(8, 5));
            let back = cells.decode(&bytes, 5);
            assert_eq!(back.len(), 40);
            for x in back {
                assert!(x == 0.0 || ((x as f32).is_normal() && f64::from(x as f32) == x), "{cells:?} {x:e}");
            }
        }
    }
}

#[test]
fn every_value_is_rounded_once() {
    // A little above a tie that goes down: rounding through another format first would make it the tie itself.
    for cells in [Cells::F32, Cells::F24, Cells::F16, Cells::Bf16] {
        for size in [1.0, 2f64.powi(-60), 2f64.powi(90)] {
            let x = tie(size, bits(cells), false);
            let mut bytes = vec![];
            cells.encode(&[x * (1.0 + 2.0 * f64::EPSILON), x], 2, &mut bytes).unwrap();
            let back = cells.decode(&bytes, 2);
            assert!(back[0] > x && back[1] < x, "{cells:?} {x:e}: {back:?}");
        }
    }
}

#[test]
fn numbers_of_a_format_come_back_unchanged() {
    // Small multiples of one power of two, and with 32767 for int16's grid to be that power.
    let integers: Vec<f64> = (0..12).map(|i| f64::from(i * i) - 40.0).collect();
    for scale in [1.0, 2f64.powi(-90), 2f64.powi(100)] {
        for cells in [Cells::F32, Cells::F24, Cells::F16, Cells::Bf16] {
            let m: Vec<f64> = integers.iter().map(|x| x * scale).collect();
            let stored = plain(cells).encode(&dense(3, 4, vec![0.0; 9], m.clone())).unwrap();
            assert_eq!(stored.decode().unwrap().state(), m, "{cells:?}");
        }
        let mut m: Vec<f64> = integers.iter().map(|x| x * scale).collect();
        m[..4].fill(32767.0 * scale);
        let stored = plain(Cells::Int16).encode(&dense(3, 4, vec![0.0; 9], m.clone())).unwrap();
        assert_eq!(stored.decode().unwrap().state(), m);
    }
    // Zeros take no scale along, and negative zero is a zero.
    for cells in Cells::ALL {
        let stored = plain(cells).encode(&dense(2, 1, vec![0.0, -0.0, 0.0, 0.0], vec![0.0; 2])).unwrap();
        let back = stored.decode().unwrap();
        assert!(back.state().iter().all(|&x| x == 0.0));
        let error = stored.bound().error(1.0);
        assert!(error < 1e-37, "{cells:?} {error:e}");
    }
}

#[test]
fn log_sums_and_records_come_back() {
    let s = vec![1.0, 2.0];
    let scalar = Operator::new(2, 1, Transition::Scalar { log: -1.5 }, s.clone()).unwrap();
    let form = |transition| Form::Split { transition, state: Cells::F32 };
    assert_eq!(form(TransitionForm::LogScalar).encode(&scalar).unwrap().decode().unwrap(), scalar);
    let far = Operator::new(2, 1, Transition::Diagonal { log: vec![f64::MIN, -0.25] }, s.clone()).unwrap();
    let back = form(TransitionForm::LogDiagonal).encode(&far).unwrap().decode().unwrap();
    assert_eq!(back.transition(), &Transition::Diagonal { log: vec![f64::from(f32::MIN), -0.25] });
    let absence = Absence::new(1e-7, 2.0, 1e-3).unwrap();
    let absent = Operator::new(2, 1, Transition::Absent(absence), s.clone()).unwrap();
    let drop = form(TransitionForm::Absent { head_norm: 5.0, bound: 0.0 });
    assert_eq!(drop.encode(&absent).unwrap().decode().unwrap(), absent);
    assert!(drop.encode(&absent).unwrap().bound().error(3.0) >= 3e-7);
}

#[test]
fn bytes_are_those_documented() {
    let shape = Shape { key_dim: 128, value_dim: 128, tokens: 16 };
    let one = 128 * 128;
    for (cells, each, pair) in [
        (Cells::F32, 4 * one, 4 + 4 * 16 * 384),
        (Cells::F24, 3 * one, 4 + 3 * 16 * 384),
        (Cells::F16, 2 * one + 4, 4 + 2 * 16 * 384 + 12),
        (Cells::Bf16, 2 * one, 4 + 2 * 16 * 384),
        (Cells::Int16, 2 * one + 512, 4 + 2 * 16 * 384 + 3 * 512),
    ] {
        let of = |transition| Form::Split { transition, state: cells }.bytes(shape);
        assert_eq!(of(TransitionForm::Dense(cells)), 2 * each);
        assert_eq!(of(TransitionForm::Residual { log_gamma: -1.0, cells }), 2 * each + 4);
        assert_eq!(of(TransitionForm::Absent { head_norm: 1.0, bound: 1.0 }), each + 24);
        assert_eq!(of(TransitionForm::LogScalar), each + 4);
        assert_eq!(of(TransitionForm::LogDiagonal), each + 512);
        assert_eq!(Form::Pair { cells }.bytes(shape), pair);
    }
    let huge = Shape { key_dim: usize::MAX, value_dim: usize::MAX, tokens: usize::MAX };
    assert!(all_forms().iter().all(|f| f.bytes(huge) == usize::MAX));
}

#[test]
fn what_does_not_fit_is_a_typed_error() {
    for cells in Cells::ALL {
        for big in [3.5e38, -1e39, 1e300, f64::MAX] {
            let error = plain(cells).encode(&dense(2, 1, vec![0.0; 4], vec![0.5, big])).unwrap_err();
            assert!(matches!(error, StorageError::OutOfRange { .. }), "{cells:?} {big:e}: {error}");
            let error = plain(cells).encode(&dense(2, 1, vec![0.0, big, 0.0, 0.0], vec![0.5; 2])).unwrap_err();
            assert!(matches!(error, StorageError::OutOfRange { .. }), "{cells:?} {big:e}: {error}");
        }
        // The top of the range still fits.
        assert!(plain(cells).encode(&dense(2, 1, vec![0.0; 4], vec![0.5, 3.3e38])).is_ok());
    }
}

#[test]
fn a_form_that_cannot_hold_a_transition_says_so() {
    let s = vec![1.0, 2.0];
    let form = |transition| Form::Split { transition, state: Cells::F32 };
    let of = |t| Operator::new(2, 1, t, s.clone()).unwrap();
    let scalar = of(Transition::Scalar { log: -1.0 });
    let full = of(Transition::Dense { matrix: vec![0.5, 0.0, 0.0, 0.5] });
    let absent = of(Transition::Absent(Absence::new(0.1, 1.0, 1.0).unwrap()));
    let wrong = |form: Form, op: &Operator| matches!(form.encode(op), Err(StorageError::WrongForm { .. }));
    assert!(wrong(form(TransitionForm::LogScalar), &full));
    assert!(wrong(form(TransitionForm::LogDiagonal), &scalar));
    assert!(wrong(plain(Cells::F16), &absent));
    assert!(wrong(form(TransitionForm::Residual { log_gamma: -1.0, cells: Cells::F16 }), &absent));
    assert!(wrong(Form::Pair { cells: Cells::F32 }, &full));
    // A scalar may be written out.
    assert!(plain(Cells::F16).encode(&scalar).is_ok());
    let drop = form(TransitionForm::Absent { head_norm: 1.0, bound: 0.1 });
    assert!(matches!(drop.encode(&full), Err(StorageError::MayNotDrop { .. })));
    for log_gamma in [0.1, f64::NAN, f64::NEG_INFINITY] {
        let error = form(TransitionForm::Residual { log_gamma, cells: Cells::F16 }).encode(&full).unwrap_err();
        assert!(matches!(error, StorageError::Algebra(_)), "{error}");
    }
}

#[test]
fn damaged_bytes_are_typed_errors() {
    let op = dense(2, 3, vec![0.5; 4], vec![0.25; 6]);
    for cells in Cells::ALL {
        let stored = plain(cells).encode(&op).unwrap();
        let decode = |bytes: &[u8]| stored.form().decode(stored.shape(), bytes);
        assert!(decode(stored.bytes()).is_ok());
        let short = decode(&stored.bytes()[1..]);
        assert!(matches!(short, Err(StorageError::Bytes { .. })));
        // All ones: a NaN, or a NaN of a scale. Integers and their scales cannot both be NaN.
        let damaged = decode(&vec![0xff; stored.bytes().len()]);
        assert!(matches!(damaged, Err(StorageError::Algebra(AlgebraError::NonFinite { .. }))), "{cells:?}");
    }
    for (key_dim, value_dim) in [(0, 3), (2, 0), (0, usize::MAX), (usize::MAX, 2), (1 << 40, 1 << 40)] {
        for form in all_forms() {
            for tokens in [0, 3, usize::MAX] {
                let shape = Shape { key_dim, value_dim, tokens };
                assert!(form.decode(shape, &[]).is_err(), "{form:?} {shape:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn no_bytes_make_it_panic(
        seed in any::<u64>().no_shrink(),
        form in select(all_forms()),
        (key_dim, value_dim, tokens) in (1usize..4, 1usize..4, 0usize..4),
        off in -1isize..=1,
    ) {
        let mut rng = Rng::new(seed);
        let shape = Shape { key_dim, value_dim, tokens };
        let len = form.bytes(shape).saturating_add_signed(off);
        let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        match form.decode(shape, &bytes) {
            Ok(op) => prop_assert!(off == 0 && op.state().iter().all(|x| x.is_finite())),
            Err(StorageError::Bytes { .. }) => prop_assert!(off != 0),
            Err(error) => prop_assert!(matches!(error, StorageError::Algebra(_))),
        }
    }

    #[test]
    fn small_numbers_never_lose_more_than_the_least_step(exponent in -320.0f64..-36.0, digits in 1.0f64..10.0) {
        let x = digits * 10f64.powf(exponent);
        for cells in Cells::ALL {
            let mut bytes = vec![];
            cells.encode(&[x], 1, &mut bytes).unwrap();
            let error = (cells.decode(&bytes, 1)[0] - x).abs();
            let bound = cells.error(&[x], 1).frobenius(x);
            prop_assert!(error <= bound, "{cells:?} {x:e}: {error:e} {bound:e}");
            prop_assert!(bound <= F32_NORMAL + x / 200.0);
        }
    }
}

/// The running maximum of a log-scaled operator must not be rounded: no form takes one, and none claims a bound for it.
#[test]
fn a_log_scaled_operator_is_refused() {
    let op = Operator::new(1, 2, Transition::Scalar { log: -1.0 }, vec![0.5, 3.0]).expect("operator").log_scaled();
    for form in [
        Form::Split { transition: TransitionForm::LogScalar, state: Cells::F32 },
        Form::Split { transition: TransitionForm::Dense(Cells::F32), state: Cells::F16 },
    ] {
        assert!(matches!(form.encode(&op), Err(StorageError::WrongForm { .. })), "{form:?}");
        assert!(matches!(form.bound(&op), Err(StorageError::WrongForm { .. })), "{form:?}");
    }
}
