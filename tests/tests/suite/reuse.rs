//! What reuse costs, and that nothing depends on what ran before or beside.

use std::sync::Arc;

use seam_device::Device;
use seam_engine::{Engine, EngineOptions, Request, RunnerOptions};
use seam_pic::{Item, Mode, Sequence, Tier};
use seam_tests::{cpu, devices, engine, fixture, options, own_devices, request, tokens};

const MODEL: &str = "qwen3_5_dense_tied";
const LENGTHS: [usize; 5] = [11, 40, 23, 64, 9];

fn load(device: &Arc<dyn Device>) -> Engine {
    engine(device, &fixture(MODEL), &options())
}

/// A second request over the same documents uploads no entry bytes, copies nothing within the device but the logits,
/// and computes no token but seams and query, in one submission a pass.
#[test]
fn a_second_request_computes_only_seams_and_query() {
    for device in own_devices() {
        let mut engine = load(&device);
        let first = Request { max_new: 1, ..request(&LENGTHS, 320, Mode::Transition, 8, 1) };
        let cold = engine.answer(&first, &mut |_| {}).expect("cold");
        assert_eq!(cold.work.cold_rows, 11 + 40 + 23 + 64, "every document is computed once, alone");
        assert!(cold.segments[..4].iter().all(|s| s.miss == Some("absent")));
        let mut second = first.clone();
        second.segments[1..4].rotate_left(1);
        second.segments[4] = tokens(77, 12, 320);
        let before = device.stats();
        let warm = engine.answer(&second, &mut |_| {}).expect("warm");
        let after = device.stats();
        assert_eq!(warm.work.cold_rows, 0);
        assert_eq!(warm.work.prompt_rows, 3 * 8 + 12, "three seams and the query");
        assert_eq!(warm.work.uploaded_bytes, 0);
        assert_eq!(warm.work.reused_tokens, 11 + 40 + 23 + 64 - 3 * 8);
        assert!(warm.segments[..4].iter().all(|s| s.hit == Some(Tier::Device)));
        assert_eq!(warm.work.passes, 1);
        assert_eq!(after.submissions - before.submissions, 1, "one submission a pass");
        let params = after.written - before.written - warm.work.table_bytes;
        assert!(params <= 64 << 10, "only tables and launch parameters were written, not {params} bytes more");
        assert_eq!(after.copied - before.copied, 8, "no KV is copied: only a token and its log-probability");
        assert_eq!(after.read - before.read, 8);
    }
}

/// Launches do not grow with the number of segments.
#[test]
fn no_launch_per_segment() {
    let device = own_devices().remove(0);
    let mut engine = load(&device);
    let mut launches = Vec::new();
    for documents in [2, 20] {
        let lengths: Vec<usize> = std::iter::once(11).chain(std::iter::repeat_n(20, documents)).chain([9]).collect();
        let request = Request { max_new: 1, ..request(&lengths, 320, Mode::Transition, 8, 2) };
        engine.answer(&request, &mut |_| {}).expect("cold");
        let before = device.stats().dispatches;
        engine.answer(&request, &mut |_| {}).expect("warm");
        launches.push(device.stats().dispatches - before);
    }
    assert_eq!(launches[0], launches[1], "2 and 20 documents");
}

/// An entry is a function of its tokens: what ran before, who came first and which tier had it change no bit.
#[test]
fn results_do_not_depend_on_history() {
    for device in devices() {
        let a = request(&LENGTHS, 320, Mode::Transition, 8, 3);
        let mut b = request(&[11, 30, 64], 320, Mode::Transition, 8, 4);
        b.segments[1] = a.segments[2].clone();
        let fresh = load(&device).score(&b, &[5, 6]).expect("fresh");
        let mut engine = load(&device);
        engine.score(&a, &[1]).expect("other request first");
        assert_eq!(engine.score(&b, &[5, 6]).expect("after another"), fresh, "cold and warm entries mixed");
        assert_eq!(engine.score(&b, &[5, 6]).expect("again"), fresh, "all warm");
        engine.forget_device_entries();
        assert_eq!(engine.score(&b, &[5, 6]).expect("recomputed"), fresh, "on reused memory");
    }
}

/// Slots and KV rows that held another request's data are as good as new: no word of it shows.
#[test]
fn nothing_leaks_between_requests() {
    let device = cpu();
    let secret = request(&[200], 320, Mode::Full, 8, 5);
    let public = request(&[60], 320, Mode::Full, 8, 6);
    let alone = load(&device).answer(&public, &mut |_| {}).expect("alone");
    let mut engine = load(&device);
    for _ in 0..3 {
        engine.answer(&secret, &mut |_| {}).expect("secret");
        let after = engine.answer(&public, &mut |_| {}).expect("after");
        assert_eq!((&after.tokens, &after.logprobs), (&alone.tokens, &alone.logprobs));
    }
}

/// Tenants never share an entry, even for equal tokens.
#[test]
fn tenants_share_nothing() {
    let device = cpu();
    let mut engine = load(&device);
    let mine = Request { tenant: "mine".to_owned(), ..request(&LENGTHS, 320, Mode::Transition, 8, 7) };
    engine.answer(&mine, &mut |_| {}).expect("mine");
    let yours = Request { tenant: "yours".to_owned(), ..mine.clone() };
    let answer = engine.answer(&yours, &mut |_| {}).expect("yours");
    assert!(answer.segments[..4].iter().all(|s| s.miss == Some("absent")), "{:?}", answer.segments);
    assert_eq!(answer.work.cold_rows, 11 + 40 + 23 + 64);
}

/// A ragged batch gives every sequence the bits it has alone, and so does any cut into passes. On a device whose
/// products depend on the number of rows the logits agree within rounding.
#[test]
fn batches_and_cuts_change_nothing() {
    for device in devices() {
        let exact = device.caps().gemm.batch_invariant;
        let lengths = [1, 2, 3, 7, 17, 64, 70];
        let alone: Vec<Vec<f32>> = lengths.iter().map(|&n| run(&device, None, &[n])[0].clone()).collect();
        let sizes: &[Option<u32>] =
            if exact { &[None, Some(1), Some(2), Some(7), Some(33)] } else { &[None, Some(33)] };
        for &max_rows in sizes {
            let batch = run(&device, max_rows, &lengths);
            for ((n, batch), alone) in lengths.iter().zip(&batch).zip(&alone) {
                let what = format!("{n} tokens in a batch, passes of {max_rows:?} rows");
                if exact {
                    assert_eq!(batch, alone, "{what}");
                } else {
                    let error = seam_tests::relative(batch, alone);
                    assert!(error <= 1e-5, "{what}: {error:.1e}");
                }
            }
        }
    }
}

/// All logits of prompts of the given lengths, run together.
fn run(device: &Arc<dyn Device>, max_rows: Option<u32>, lengths: &[usize]) -> Vec<Vec<f32>> {
    let runner = RunnerOptions { max_rows, max_logits: 512, ..RunnerOptions::default() };
    let mut engine = engine(device, &fixture(MODEL), &EngineOptions { runner, ..options() });
    let runner = engine.runner_mut();
    let spec = runner.spec().clone();
    let mut sequences: Vec<Sequence> = lengths
        .iter()
        .map(|&n| {
            let items = vec![Item::Rows { tokens: tokens(n as u64, n, 320), origin: 0, logits_from: 0 }];
            Sequence::new(&mut runner.memory, &spec, items, 0, false).expect("sequence")
        })
        .collect();
    let mut all: Vec<&mut Sequence> = sequences.iter_mut().collect();
    runner.advance(&mut all).expect("advance")
}

/// Every split of a 70-token prompt into prefill and decode gives the same continuation.
#[test]
fn every_cut_into_prefill_and_decode() {
    let device = cpu();
    let mut engine = load(&device);
    let runner = engine.runner_mut();
    let spec = runner.spec().clone();
    let prompt = tokens(9, 70, 320);
    let mut last: Option<Vec<f32>> = None;
    for cut in 1..=70 {
        let items = vec![Item::Rows { tokens: prompt[..cut].to_vec(), origin: 0, logits_from: cut - 1 }];
        let mut sequence = Sequence::new(&mut runner.memory, &spec, items, 70, false).expect("sequence");
        let mut logits = runner.advance(&mut [&mut sequence]).expect("prefill").remove(0);
        for &token in &prompt[cut..] {
            sequence.push(token);
            logits = runner.advance(&mut [&mut sequence]).expect("decode").remove(0);
        }
        sequence.release(&mut runner.memory);
        assert_eq!(*last.get_or_insert_with(|| logits.clone()), logits, "cut at {cut}");
    }
}

/// Memory is given back: after many requests nothing private is in use.
#[test]
fn private_memory_returns() {
    let device = cpu();
    let mut engine = load(&device);
    for seed in 0..5 {
        engine.answer(&request(&LENGTHS, 320, Mode::Transition, 8, seed), &mut |_| {}).expect("answer");
        engine.answer(&request(&[9], 320, Mode::Full, 8, seed), &mut |_| {}).expect("answer");
    }
    let memory = &engine.runner().memory;
    assert_eq!((memory.kv_private.used(), memory.states.used()), (0, 0));
    assert!(memory.kv_shared.used() > 0 && memory.operators.used() > 0);
    assert_eq!(engine.cache().device_tier().stats().pinned, 0, "nothing stays pinned");
    engine.forget_device_entries();
    let memory = &engine.runner().memory;
    assert_eq!((memory.kv_shared.used(), memory.operators.used()), (0, 0));
}
