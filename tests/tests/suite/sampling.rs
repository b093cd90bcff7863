//! Tokens chosen on devices: as the host chooses them, and without a logit on its way to the host.

use std::sync::Arc;

use seam_device::{BufferUse, Device, Lane};
use seam_engine::sampling::{Sampler, SamplingParams};
use seam_engine::{Engine, EngineError, EngineOptions, Runner, RunnerOptions};
use seam_ops::{BAD_LOGITS, Choice, OpError, Operation, PassBuilder, RunSpec, Sample, Tensor};
use seam_pic::{Item, Mode, Sequence};
use seam_tests::{cpu, devices, fixture, own_devices, request};

/// Tokens and log-probabilities that a device chooses from rows of `vocab` logits. Memory behind the rows is kept.
fn choose(device: &Arc<dyn Device>, logits: &[f32], vocab: usize, choices: &[Choice]) -> Vec<(u32, f32)> {
    let rows = choices.len();
    let mut pass = PassBuilder::new(0, 0, 1.0);
    pass.run(&RunSpec { tokens: &vec![0; rows], pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] }).unwrap();
    (0..rows as u32).for_each(|row| {
        pass.logit(row);
    });
    let pass = pass.finish().unwrap();
    let buffer = |bytes: &[u8]| {
        let buffer = device.alloc("test", bytes.len() as u64, BufferUse::Storage).unwrap();
        device.write(&buffer.all(), bytes).unwrap();
        buffer.all()
    };
    let capacity = pass.shape.logits as usize;
    let tables = buffer(bytemuck::cast_slice(&pass.words));
    let mut padded = logits.to_vec();
    padded.resize(capacity * vocab, f32::NAN);
    let mut all = choices.to_vec();
    all.resize(capacity, Choice::GREEDY);
    let logits = Tensor::constant(&**device, "logits", capacity as u32, vocab as u32, &padded).unwrap();
    let choices = buffer(bytemuck::cast_slice(&all));
    let out = Tensor::new(&**device, "tokens", capacity as u32, 2).unwrap();
    device.write(&out.range(), bytemuck::cast_slice(&vec![7u32; 2 * capacity])).unwrap();
    let mut recorder = device.recorder();
    Sample { tables: &tables, logits: &logits, choices: &choices, out: &out }
        .record(&mut *recorder, device.caps())
        .unwrap();
    let ticket = device.submit(&recorder.finish().unwrap(), Lane::Compute, &[]).unwrap();
    let bytes = device.read(&out.range(), &[ticket]).unwrap().wait().unwrap();
    let words: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert!(words[2 * rows..].iter().all(|&word| word == 7), "rows behind the pass are kept");
    words.chunks_exact(2).take(rows).map(|pair| (pair[0], f32::from_bits(pair[1]))).collect()
}

/// Numbers in [0, 1) of a fixed sequence.
fn uniforms(mut seed: u64, n: usize) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| next()).collect()
}

fn params(temperature: f32, top_k: u32, top_p: f32, min_p: f32) -> SamplingParams {
    SamplingParams { temperature, top_k, top_p, min_p, seed: 11, ..SamplingParams::default() }
}

/// Bit for bit, with many ties, at sizes around the borders of lanes and at the largest vocabulary.
#[test]
fn greedy_is_the_hosts_on_every_device() {
    for device in devices() {
        for (vocab, rows) in [(1, 2), (255, 3), (256, 3), (257, 5), (1000, 9), (248_320, 2)] {
            // Steps of 1/4, so that the highest comes more than once, and a row of zeros of both signs.
            let mut logits: Vec<f32> =
                uniforms(vocab as u64, rows * vocab).iter().map(|u| ((u * 80.0).floor() - 40.0) / 4.0).collect();
            logits[..vocab].iter_mut().enumerate().for_each(|(i, x)| *x = if i % 2 == 0 { -0.0 } else { 0.0 });
            let mut sampler = Sampler::new(SamplingParams::default()).unwrap();
            let found = choose(&device, &logits, vocab, &vec![Choice::GREEDY; rows]);
            for (r, ((token, logprob), row)) in found.iter().zip(logits.chunks_exact(vocab)).enumerate() {
                let want = sampler.sample(row, &[], 0).unwrap();
                assert_eq!(*token, want.token, "{}: row {r} of {vocab}", device.caps().kind);
                let bound = 5e-6 + 3e-7 * want.logprob.abs();
                assert!((logprob - want.logprob).abs() <= bound, "{logprob}, not {}", want.logprob);
            }
        }
    }
}

/// With the host's random numbers: the draws are fixed, and none of them lies within a rounding of the border between two
/// tokens, so that every device chooses what the host does.
#[test]
fn draws_are_the_hosts_on_every_device() {
    let all = [
        params(1.0, 0, 1.0, 0.0),
        params(0.7, 1, 1.0, 0.0),
        params(0.7, 20, 1.0, 0.0),
        params(1.3, 0, 0.9, 0.0),
        params(1.0, 0, 1e-4, 0.0),
        params(1.0, 0, 0.9999, 0.0),
        params(2.0, 0, 1.0, 0.2),
        params(1.1, 40, 0.8, 0.05),
        params(1e-35, 0, 1.0, 0.0),
        params(50.0, 5000, 0.5, 0.0),
    ];
    for device in devices() {
        for (vocab, step) in [(3, 0.0), (300, 0.0), (1500, 0.125), (20_000, 0.0)] {
            let spread: Vec<f32> = uniforms(3 + vocab as u64, all.len() * vocab);
            // With a step there are ties at every border of top-k and top-p.
            let value = |u: &f32| if step > 0.0 { (u * 12.0 / step).floor() * step } else { u * 12.0 };
            let logits: Vec<f32> = spread.iter().map(value).collect();
            for draw in 0..6 {
                let choices: Vec<Choice> = all.iter().map(|p| p.choice(draw).unwrap()).collect();
                let found = choose(&device, &logits, vocab, &choices);
                for ((found, p), row) in found.iter().zip(&all).zip(logits.chunks_exact(vocab)) {
                    let want = Sampler::new(*p).unwrap().sample(row, &[], draw).unwrap();
                    assert_eq!(found.0, want.token, "{} of {vocab}, draw {draw}: {p:?}", device.caps().kind);
                    assert!((found.1 - want.logprob).abs() <= 1e-5 + 3e-7 * want.logprob.abs(), "{found:?} {want:?}");
                }
            }
        }
    }
}

/// Pearson's statistic of draws under every filter against the probabilities by hand. Seeds are fixed: the bound is the
/// 99.9 % quantile of its distribution.
#[test]
fn draws_have_the_right_distribution() {
    let probabilities = [0.05f64, 0.3, 0.1, 0.25, 0.2, 0.1];
    let row: Vec<f32> = probabilities.iter().map(|p| p.ln() as f32).collect();
    let cases: [(SamplingParams, [f64; 6], f64); 4] = [
        (params(1.0, 0, 1.0, 0.0), probabilities, 20.5),
        (params(1.0, 3, 1.0, 0.0), [0.0, 0.4, 0.0, 1.0 / 3.0, 0.8 / 3.0, 0.0], 13.8),
        // Those before a token sum up to less than 0.8: 0.3, 0.25, 0.2, and the first of the two with 0.1.
        (params(1.0, 0, 0.8, 0.0), [0.0, 0.3 / 0.85, 0.1 / 0.85, 0.25 / 0.85, 0.2 / 0.85, 0.0], 16.3),
        (params(1.0, 0, 1.0, 0.5), [0.0, 0.4, 0.0, 1.0 / 3.0, 0.8 / 3.0, 0.0], 13.8),
    ];
    let draws = 20_000u64;
    let logits = row.repeat(draws as usize);
    for (p, expected, bound) in cases {
        let choices: Vec<Choice> = (0..draws).map(|step| p.choice(step).unwrap()).collect();
        let mut counts = [0u64; 6];
        choose(&cpu(), &logits, 6, &choices).iter().for_each(|(token, _)| counts[*token as usize] += 1);
        let statistic: f64 = counts
            .iter()
            .zip(expected)
            .map(|(&count, p)| {
                let want = p * draws as f64;
                match (want == 0.0, count) {
                    (true, 0) => 0.0,
                    (true, _) => f64::INFINITY,
                    (false, count) => (count as f64 - want).powi(2) / want,
                }
            })
            .sum();
        assert!(statistic < bound, "{p:?}: {statistic} of {bound}, {counts:?}");
    }
}

#[test]
fn bad_logits_and_sizes_are_named() {
    for device in devices() {
        let mut logits = vec![1.0f32; 3 * 600];
        (logits[600 + 599], logits[600 + 300]) = (f32::NAN, f32::INFINITY);
        logits[1200] = f32::NEG_INFINITY;
        let draw = params(1.0, 5, 0.9, 0.1).choice(0).unwrap();
        for choice in [Choice::GREEDY, draw] {
            let found = choose(&device, &logits, 600, &[choice; 3]);
            assert!(found[0].0 < 600);
            assert_eq!([found[1].0, found[1].1.to_bits()], [BAD_LOGITS, 300]);
            assert_eq!([found[2].0, found[2].1.to_bits()], [BAD_LOGITS, 0]);
        }
    }
    let device = cpu();
    let tensor = |rows, cols| Tensor::new(&*device, "t", rows, cols).unwrap();
    let (logits, three, two) = (tensor(4, 10), tensor(4, 3), tensor(3, 2));
    let buffer = device.alloc("choices", 4 * 32, BufferUse::Storage).unwrap();
    let few = buffer.range(0, 3 * 32).unwrap();
    let refused = |choices, out| Sample { tables: &buffer.all(), logits: &logits, choices, out }.check();
    for result in [refused(&buffer.all(), &three), refused(&buffer.all(), &two), refused(&few, &tensor(4, 2))] {
        assert!(matches!(result, Err(OpError::Shape { op: "sample", .. })), "{result:?}");
    }
}

/// What crosses to the host is a token and its log-probability; with a repetition penalty, which only the host knows, the
/// logits. The answers are those of the host's sampler.
#[test]
fn only_tokens_are_read() {
    for device in own_devices() {
        let options = EngineOptions::default();
        let mut engine = Engine::load(Arc::clone(&device), &fixture("tiny_qwen35"), options).expect("model");
        let vocab = u64::from(engine.runner().spec().vocab);
        let mut request = request(&[11, 20, 9], vocab as u32, Mode::Transition, 8, 4);
        request.max_new = 6;
        engine.answer(&request, &mut |_| {}).expect("cold");
        let mut penalised = request.clone();
        penalised.sampling.repetition_penalty = 1.0 + f32::EPSILON;
        for (sampling, each) in
            [(SamplingParams::default(), 8), (params(0.8, 10, 0.95, 0.01), 8), (penalised.sampling, 4 * vocab)]
        {
            request.sampling = sampling;
            let before = device.stats().read;
            let answer = engine.answer(&request, &mut |_| {}).expect("warm");
            assert_eq!((answer.tokens.len(), answer.work.cold_rows), (6, 0));
            assert_eq!(device.stats().read - before, 6 * each, "{sampling:?} on {}", device.caps().kind);
            // The same logits, sampled by the host.
            let logits = engine.score(&request, &answer.tokens).expect("score");
            let mut sampler = Sampler::new(sampling).expect("legal");
            let mut history = request.segments.concat();
            for (step, row) in logits.chunks_exact(vocab as usize).enumerate() {
                let want = sampler.sample(row, &history, step as u64).expect("sampled");
                assert_eq!(answer.tokens[step], want.token, "step {step} of {sampling:?}");
                assert!((answer.logprobs[step] - want.logprob).abs() < 1e-4);
                history.push(want.token);
            }
        }
    }
}

/// A sequence whose rows ask for several tokens gets one of each; a runner in checked mode leaves them to the host.
#[test]
fn every_wanted_row_has_a_token() {
    let mut runner = Runner::load(cpu(), &fixture("tiny_qwen35"), RunnerOptions::default()).expect("model");
    assert!(runner.chooses());
    let spec = runner.spec().clone();
    let rows = || vec![Item::Rows { tokens: (3..15).collect(), logits_from: 8, origin: 0 }];
    let mut run = |choose: bool| -> Result<(Vec<u32>, Vec<f32>), EngineError> {
        let mut sequence = Sequence::new(&mut runner.memory, &spec, rows(), 0, false).expect("room");
        let out = if choose {
            let chosen = runner.choose(&mut [&mut sequence], &[])?.remove(0);
            (chosen.iter().map(|c| c.token).collect(), chosen.iter().map(|c| c.logprob).collect())
        } else {
            (Vec::new(), runner.advance(&mut [&mut sequence])?.remove(0))
        };
        sequence.release(&mut runner.memory);
        Ok(out)
    };
    let ((tokens, _), (_, logits)) = (run(true).expect("tokens"), run(false).expect("logits"));
    let mut sampler = Sampler::new(SamplingParams::default()).expect("legal");
    let wanted: Vec<u32> = logits
        .chunks_exact(spec.vocab as usize)
        .map(|row| sampler.sample(row, &[], 0).expect("sampled").token)
        .collect();
    assert_eq!((tokens.len(), tokens), (4, wanted));
    let options = RunnerOptions { checked: true, ..RunnerOptions::default() };
    assert!(!Runner::load(cpu(), &fixture("tiny_qwen35"), options).expect("model").chooses());
}
