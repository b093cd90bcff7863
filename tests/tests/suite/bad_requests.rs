//! Bad and unusual requests: a clear error or a documented degradation, never a panic or a wrong answer.

use seam_engine::sampling::SamplingParams;
use seam_engine::{EngineError, Request, Stop};
use seam_pic::Mode;
use seam_tests::{cpu, devices, engine, fixture, options, relative, request, tokens};

const MODEL: &str = "qwen3_5_dense_tied";

#[test]
fn malformed_requests_are_refused_by_name() {
    let mut engine = engine(&cpu(), &fixture(MODEL), &options());
    let mut ask = |request: &Request| engine.answer(request, &mut |_| {}).expect_err("must be refused");
    assert!(matches!(ask(&Request::new(Vec::new())), EngineError::EmptyPrompt(_)));
    assert!(matches!(ask(&Request::new(vec![vec![1, 2], Vec::new()])), EngineError::EmptyPrompt(_)));
    let error = ask(&Request::new(vec![vec![1, 2], vec![3, 320]]));
    assert!(matches!(error, EngineError::TokenOutOfRange { token: 320, at: 1, segment: 1, vocab: 320 }), "{error}");
    let error = ask(&Request { max_new: 1, ..Request::new(vec![tokens(1, 4096, 320)]) });
    assert!(matches!(error, EngineError::TooLong { prompt: 4096, answer: 1, limit: 4096 }), "{error}");
    let error = ask(&Request { max_new: usize::MAX, ..Request::new(vec![vec![1]]) });
    assert!(matches!(error, EngineError::TooLong { .. }), "{error}");
    for sampling in [
        SamplingParams { temperature: f32::NAN, ..Default::default() },
        SamplingParams { top_p: 0.0, ..Default::default() },
        SamplingParams { min_p: 1.5, ..Default::default() },
        SamplingParams { repetition_penalty: 0.0, ..Default::default() },
    ] {
        let error = ask(&Request { sampling, ..Request::new(vec![vec![1]]) });
        assert!(matches!(error, EngineError::Sampling(_)), "{error}");
    }
}

/// Documents of 0, 1, 2 and 3 tokens, and one as long as the seam: computed as they are, and reported.
#[test]
fn very_short_documents() {
    for device in devices() {
        let mut engine = engine(&device, &fixture(MODEL), &options());
        let mut request = request(&[3, 1, 2, 3, 8, 1], 320, Mode::Transition, 8, 1);
        request.segments.insert(2, Vec::new());
        let answer = engine.answer(&request, &mut |_| {}).expect("answer");
        let misses: Vec<_> = answer.segments.iter().map(|s| s.miss.unwrap_or("hit")).collect();
        let short = "too_short";
        assert_eq!(misses, ["absent", short, "empty", short, short, short, "query_never_cached"]);
        // Nothing but the head was spliced, so that it is exact; an empty document leaves no trace.
        let full = engine.score(&Request { mode: Mode::Full, ..request.clone() }, &[1]).expect("full");
        let error = relative(&engine.score(&request, &[1]).expect("score"), &full);
        assert!(error <= 1e-5, "{error:.1e}");
        request.segments.remove(2);
        let without = engine.score(&request, &[1]).expect("score");
        assert!(relative(&without, &full) <= 1e-5);
    }
}

/// Every document length around the seam and the convolution, at seams around them too.
#[test]
fn lengths_around_seam_and_convolution() {
    let mut engine = engine(&cpu(), &fixture(MODEL), &options());
    for seam in [0, 1, 2, 3, 4, 8] {
        for length in 1..=12 {
            let request = request(&[1, length, length, 2], 320, Mode::Transition, seam, 2);
            let answer = engine.answer(&request, &mut |_| {}).expect("answer");
            let stored = length.saturating_sub(seam as usize);
            assert_eq!(answer.segments[1].reused, stored, "seam {seam}, {length} tokens");
            assert_eq!(answer.work.prompt_rows as usize, 2 * (length - stored) + 2);
        }
    }
}

/// 200 documents in one request: more seams than a pass has rows, and more spans than anything else makes.
#[test]
fn two_hundred_documents() {
    let mut engine = engine(&cpu(), &fixture(MODEL), &options());
    let lengths: Vec<usize> = std::iter::once(5).chain((0..200).map(|i| 9 + i % 7)).chain([4]).collect();
    let request = request(&lengths, 320, Mode::Transition, 8, 3);
    let cold = engine.answer(&request, &mut |_| {}).expect("cold");
    assert_eq!(cold.work.prompt_rows, 200 * 8 + 4);
    let warm = engine.answer(&request, &mut |_| {}).expect("warm");
    assert_eq!((warm.work.cold_rows, &warm.tokens), (0, &cold.tokens));
    assert_eq!(warm.segments.iter().filter(|s| s.hit.is_some()).count(), 201);
}

/// The context limit counts, to the token.
#[test]
fn the_context_limit_is_exact() {
    let mut engine = engine(&cpu(), &fixture(MODEL), &options());
    let request = Request { mode: Mode::Full, max_new: 2, ..Request::new(vec![tokens(4, 4094, 320)]) };
    let answer = engine.answer(&request, &mut |_| {}).expect("just fits");
    assert_eq!((answer.tokens.len(), answer.stop), (2, Stop::Length));
}

/// Streaming sees the tokens of the answer; a stop token ends it and is not part of it.
#[test]
fn stop_tokens_and_streaming() {
    let mut engine = engine(&cpu(), &fixture(MODEL), &options());
    let request = Request { max_new: 8, ..request(&[11, 30, 9], 320, Mode::Transition, 8, 5) };
    let mut seen = Vec::new();
    let free = engine.answer(&request, &mut |t| seen.push(t)).expect("answer");
    assert_eq!((seen.len(), &seen), (8, &free.tokens));
    let at = free.tokens.iter().position(|t| *t == free.tokens[3]).expect("it is there");
    let stopped = engine.answer(&Request { stop: vec![free.tokens[3]], ..request }, &mut |_| {}).expect("answer");
    assert_eq!((stopped.tokens.as_slice(), stopped.stop), (&free.tokens[..at], Stop::Token));
}

/// A seed fixes a sampled answer; another seed gives another.
#[test]
fn sampling_is_reproducible() {
    let mut engine = engine(&cpu(), &fixture(MODEL), &options());
    let mut ask = |seed| {
        let sampling = SamplingParams { temperature: 1.5, top_k: 50, top_p: 0.95, seed, ..Default::default() };
        let request = Request { sampling, max_new: 24, ..request(&[11, 30, 9], 320, Mode::Transition, 8, 6) };
        engine.answer(&request, &mut |_| {}).expect("answer").tokens
    };
    let one = ask(1);
    assert_eq!(one, ask(1));
    assert_ne!(one, ask(2));
}
