//! Splicing against recomputing: exact where theory says exact, and different where it must differ.

use std::path::Path;
use std::sync::Arc;

use seam_device::Device;
use seam_engine::{Engine, Request};
use seam_pic::Mode;
use seam_tests::{cpu, cut_model, devices, engine, fixture, options, relative, request};

/// f32 exactness of a composed state against running the tokens (design: numbers).
const EXACT: f64 = 1e-5;
/// Far above rounding: what differs by less is not really different.
const DIFFERENT: f64 = 1e-3;

/// Largest difference of the spliced logits, over the last tokens of the query, from full recomputation.
fn difference(engine: &mut Engine, request: &Request) -> f64 {
    let given = [1, 2, 3, 4];
    let spliced = engine.score(request, &given).expect("spliced");
    let full = engine.score(&Request { mode: Mode::Full, ..request.clone() }, &given).expect("full");
    relative(&spliced, &full)
}

fn with_model(layers: &[usize], run: &mut dyn FnMut(&Arc<dyn Device>, &Path)) {
    let model = cut_model(&fixture("qwen3_5_dense_tied"), layers);
    devices().iter().for_each(|device| run(device, model.path()));
}

const LENGTHS: [usize; 5] = [11, 40, 23, 64, 9];

#[test]
fn one_linear_layer_is_exact_from_the_conv_kernel_on() {
    with_model(&[0], &mut |device, model| {
        let mut engine = engine(device, model, &options());
        for seam in [3, 5, 8, 17] {
            let error = difference(&mut engine, &request(&LENGTHS, 320, Mode::Transition, seam, 1));
            assert!(error <= EXACT, "seam {seam}: {error:.1e}");
        }
        // With a narrower seam the first cached tokens were convolved with zeros instead of their true neighbours.
        for seam in [0, 1, 2] {
            let error = difference(&mut engine, &request(&LENGTHS, 320, Mode::Transition, seam, 1));
            assert!(error > DIFFERENT, "seam {seam}: {error:.1e} should not be exact");
        }
        for mode in [Mode::Addition, Mode::LastState] {
            let error = difference(&mut engine, &request(&LENGTHS, 320, mode, 8, 1));
            assert!(error > DIFFERENT, "{mode}: {error:.1e} should not be exact");
        }
    });
}

#[test]
fn one_attention_layer_is_exact_at_any_seam() {
    with_model(&[3], &mut |device, model| {
        let mut engine = engine(device, model, &options());
        for seam in [0, 1, 8] {
            let error = difference(&mut engine, &request(&LENGTHS, 320, Mode::Transition, seam, 2));
            assert!(error <= EXACT, "seam {seam}: {error:.1e}");
        }
    });
}

#[test]
fn a_seam_as_wide_as_the_segments_is_exact() {
    for device in devices() {
        let mut engine = engine(&device, &fixture("qwen3_5_dense_tied"), &options());
        let error = difference(&mut engine, &request(&LENGTHS, 320, Mode::Transition, 64, 3));
        assert!(error <= EXACT, "{error:.1e}");
        // The same stack with a narrow seam drifts: its deeper layers saw other inputs when the entry was made.
        let error = difference(&mut engine, &request(&LENGTHS, 320, Mode::Transition, 8, 3));
        assert!(error > DIFFERENT, "{error:.1e} should drift");
    }
}

#[test]
fn a_lone_head_and_a_lone_query_are_exact() {
    for device in devices() {
        let mut engine = engine(&device, &fixture("qwen3_5_dense_tied"), &options());
        for mode in [Mode::Transition, Mode::Addition, Mode::LastState] {
            let error = difference(&mut engine, &request(&[50, 9], 320, mode, 8, 4));
            assert!(error <= EXACT, "{mode}, head and query: {error:.1e}");
            let error = difference(&mut engine, &request(&[33], 320, mode, 8, 4));
            assert!(error <= EXACT, "{mode}, query alone: {error:.1e}");
        }
    }
}

/// Two linear layers: the first is exact, the second drifts, and the drift report says so.
#[test]
fn drift_starts_where_inputs_differ() {
    with_model(&[0, 1], &mut |device, model| {
        let mut engine = engine(device, model, &options());
        let request = request(&LENGTHS, 320, Mode::Transition, 8, 5);
        let answer = engine.answer(&request, &mut |_| {}).expect("answer");
        let drift = engine.verify(&request, &answer.tokens).expect("verify");
        let states: Vec<f64> = drift.layers.iter().filter_map(|l| l.state).collect();
        assert_eq!(states.len(), 2);
        assert!(states[0] <= EXACT, "layer 0 is exact: {:.1e}", states[0]);
        assert!(states[1] > DIFFERENT, "layer 1 drifts: {:.1e}", states[1]);
    });
}

/// The order of documents matters to the answer, but not to what is reused.
#[test]
fn documents_are_reused_in_any_order() {
    let device = cpu();
    let mut engine = engine(&device, &fixture("qwen3_5_dense_tied"), &options());
    let first = request(&LENGTHS, 320, Mode::Transition, 8, 6);
    engine.answer(&first, &mut |_| {}).expect("first");
    let mut second = first.clone();
    second.segments[1..4].reverse();
    let answer = engine.answer(&second, &mut |_| {}).expect("second");
    assert_eq!(answer.work.cold_rows, 0);
    assert!(answer.segments[..4].iter().all(|s| s.hit.is_some()));
    let one = engine.score(&first, &[1]).expect("score");
    let other = engine.score(&second, &[1]).expect("score");
    assert!(relative(&one, &other) > DIFFERENT, "a swapped order must change the state");
}

/// One entry at two places of a prompt is exact in a one-layer stack, at each with its own origin.
#[test]
fn the_same_document_twice() {
    for layers in [[0], [3]] {
        with_model(&layers, &mut |device, model| {
            let mut engine = engine(device, model, &options());
            let mut request = request(&LENGTHS, 320, Mode::Transition, 8, 7);
            request.segments[3] = request.segments[1].clone();
            let error = difference(&mut engine, &request);
            assert!(error <= EXACT, "layer {layers:?}: {error:.1e}");
            assert_eq!(engine.cache().device_tier().stats().entries, 3, "head and two different documents");
        });
    }
}

/// Interiors of one and two tokens: the query's convolution reaches past them into the fresh seam.
#[test]
fn interiors_shorter_than_the_convolution() {
    with_model(&[0], &mut |device, model| {
        let mut engine = engine(device, model, &options());
        for lengths in [[11, 9, 10, 9, 9], [11, 10, 9, 11, 9], [11, 12, 9, 9, 9]] {
            let error = difference(&mut engine, &request(&lengths, 320, Mode::Transition, 8, 8));
            assert!(error <= EXACT, "{lengths:?}: {error:.1e}");
        }
    });
}
