//! Tests of the sampler.

use super::*;

const ON: SamplingParams =
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 7 };

fn sampler(params: SamplingParams) -> Sampler {
    Sampler::new(params).unwrap()
}

fn greedy(logits: &[f32], history: &[u32], repetition_penalty: f32) -> u32 {
    let params = SamplingParams { repetition_penalty, ..SamplingParams::default() };
    sampler(params).sample(logits, history, 0).unwrap().token
}

/// Logits of these probabilities.
fn logs(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

/// The probabilities by which `params` draws, from its candidates.
fn kept(params: SamplingParams, logits: &[f32], history: &[u32]) -> Vec<(u32, f64)> {
    let mut sampler = sampler(params);
    sampler.sample(logits, history, 0).unwrap();
    let total: f64 = sampler.candidates.iter().map(|c| c.weight).sum();
    sampler.candidates.iter().map(|c| (c.token, c.weight / total)).collect()
}

fn assert_kept(params: SamplingParams, logits: &[f32], expected: &[(u32, f64)]) {
    let got = kept(params, logits, &[]);
    assert_eq!(got.len(), expected.len(), "{got:?} instead of {expected:?}");
    for ((token, p), (want, q)) in got.iter().zip(expected) {
        // The logits are rounded to f32: 6e-8 of values up to 5.
        assert!(token == want && (p - q).abs() < 1e-6, "{got:?} instead of {expected:?}");
    }
}

/// Pearson's statistic of `draws` draws against `expected`.
fn chi_square(params: SamplingParams, logits: &[f32], expected: &[f64], draws: u64) -> f64 {
    let mut sampler = sampler(params);
    let mut counts = vec![0u64; logits.len()];
    for step in 0..draws {
        counts[sampler.sample(logits, &[], step).unwrap().token as usize] += 1;
    }
    chi_square_of(&counts, expected)
}

fn chi_square_of(counts: &[u64], expected: &[f64]) -> f64 {
    let draws: u64 = counts.iter().sum();
    counts
        .iter()
        .zip(expected)
        .map(|(&count, &p)| {
            let want = p * draws as f64;
            if want == 0.0 {
                // A draw of an impossible token is a failure however many there are.
                return if count == 0 { 0.0 } else { f64::INFINITY };
            }
            (count as f64 - want).powi(2) / want
        })
        .sum()
}

#[test]
fn greedy_takes_the_first_of_the_highest() {
    assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0], &[], 1.0), 1);
    assert_eq!(greedy(&[f32::NEG_INFINITY, -5.0, f32::NEG_INFINITY], &[], 1.0), 1);
    assert_eq!(greedy(&[0.0], &[], 1.0), 0);
    assert_eq!(greedy(&[-0.0, 0.0], &[], 1.0), 0);
    // With temperature 0 neither filters nor seed nor step matter.
    let mut sampler = sampler(SamplingParams { temperature: 0.0, top_k: 1, top_p: 0.1, min_p: 0.9, seed: 99, ..ON });
    for step in 0..20 {
        assert_eq!(sampler.sample(&[1.0, 1.2, 1.1], &[], step).unwrap().token, 1);
    }
}

#[test]
fn the_penalty_divides_positive_and_multiplies_negative_logits_once() {
    // 3 / 2 = 1.5 < 2; a second occurrence changes nothing: 3 / 4 would be below 1.
    assert_eq!(greedy(&[1.0, 3.0, 1.4], &[1, 1, 1], 2.0), 1);
    assert_eq!(greedy(&[1.0, 3.0, 2.0], &[1], 2.0), 2);
    // −1 · 2 = −2 < −1.5.
    assert_eq!(greedy(&[-1.0, -1.5], &[0], 2.0), 1);
    // A penalty below 1 favours repeats.
    assert_eq!(greedy(&[1.0, 0.6], &[1], 0.5), 1);
    // It works before the temperature: ln(4)/2 = ln 2, so 4 : 1 becomes 2 : 1.
    let logits = [4.0f32.ln(), 0.0];
    let params = SamplingParams { repetition_penalty: 2.0, ..ON };
    let got = kept(params, &logits, &[0]);
    assert!((got[0].1 - 2.0 / 3.0).abs() < 1e-6, "{got:?}");
    let out = sampler(params).sample(&logits, &[2], 0);
    assert_eq!(out, Err(SamplingError::History { token: 2, vocab: 2 }));
}

#[test]
fn logits_that_are_no_distribution_are_refused() {
    let mut greedy = sampler(SamplingParams::default());
    let mut random = sampler(ON);
    for sampler in [&mut greedy, &mut random] {
        assert_eq!(sampler.sample(&[], &[], 0), Err(SamplingError::NoLogits));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY; 3], &[], 0), Err(SamplingError::AllExcluded(3)));
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
            let error = sampler.sample(&[1.0, bad], &[], 0).unwrap_err();
            assert!(matches!(error, SamplingError::NotFinite { token: 1, .. }), "{error}");
        }
    }
}

#[test]
fn parameters_out_of_range_are_named() {
    let bad = |params: SamplingParams| Sampler::new(params).unwrap_err().to_string();
    for temperature in [-0.1, f32::NAN, f32::INFINITY] {
        assert!(bad(SamplingParams { temperature, ..ON }).starts_with("temperature"));
    }
    for top_p in [0.0, -0.1, 1.01, f32::NAN] {
        assert!(bad(SamplingParams { top_p, ..ON }).starts_with("top_p"));
    }
    for min_p in [-0.1, 1.01, f32::NAN] {
        assert!(bad(SamplingParams { min_p, ..ON }).starts_with("min_p"));
    }
    for repetition_penalty in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let text = bad(SamplingParams { repetition_penalty, ..ON });
        assert!(text.starts_with("repetition_penalty"));
    }
    let edge = SamplingParams { top_p: 1.0, min_p: 1.0, temperature: 0.0, ..ON };
    assert_eq!(edge.validate(), Ok(()));
}

#[test]
fn temperature_alone() {
    // Probabilities 4 : 2 : 1 to the power 1/2.
    let params = SamplingParams { temperature: 2.0, ..ON };
    let sum = 2.0 + 2f64.sqrt() + 1.0;
    assert_kept(params, &logs(&[4.0, 2.0, 1.0]), &[(0, 2.0 / sum), (1, 2f64.sqrt() / sum), (2, 1.0 / sum)]);
}

#[test]
fn top_k_alone() {
    let logits = logs(&[0.1, 0.4, 0.2, 0.3]);
    let params = |top_k| SamplingParams { top_k, ..ON };
    assert_kept(params(2), &logits, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    assert_kept(params(1), &logits, &[(1, 1.0)]);
    let all = [(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)];
    for k in [0, 4, 5, u32::MAX] {
        assert_kept(params(k), &logits, &all);
    }
    // A tie with the last kept one is kept, as in transformers.
    let tied = logs(&[0.2, 0.4, 0.2, 0.2]);
    assert_kept(params(2), &tied, &[(0, 0.2), (1, 0.4), (2, 0.2), (3, 0.2)]);
}

#[test]
fn top_p_alone() {
    let logits = logs(&[0.05, 0.4, 0.25, 0.3]);
    let params = |top_p| SamplingParams { top_p, ..ON };
    assert_kept(params(0.01), &logits, &[(1, 1.0)]);
    assert_kept(params(0.39), &logits, &[(1, 1.0)]);
    assert_kept(params(0.41), &logits, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    let three = [(1, 0.4 / 0.95), (2, 0.25 / 0.95), (3, 0.3 / 0.95)];
    assert_kept(params(0.71), &logits, &three);
    assert_kept(params(0.94), &logits, &three);
    let all = [(0, 0.05), (1, 0.4), (2, 0.25), (3, 0.3)];
    assert_kept(params(0.96), &logits, &all);
    assert_kept(params(1.0), &logits, &all);
    // Of equals the smaller id stays.
    assert_kept(params(0.3), &[1.0; 4], &[(0, 0.5), (1, 0.5)]);
}

#[test]
fn top_p_sorts_in_parts_what_a_full_sort_would_give() {
    // Scattered logits over a vocabulary much larger than the first sorted part.
    let logits: Vec<f32> = (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 4e6).collect();
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let mut sorted: Vec<(u32, f64)> = (0..).zip(&logits).map(|(i, &x)| (i, f64::from(x - max).exp())).collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let total: f64 = sorted.iter().map(|x| x.1).sum();
    for top_p in [0.001f32, 0.05, 0.5, 0.9, 0.999] {
        let mut sum = 0.0;
        let mut expected: Vec<u32> = sorted
            .iter()
            .take_while(|(_, w)| {
                let keep = sum < f64::from(top_p) * total;
                sum += w;
                keep
            })
            .map(|x| x.0)
            .collect();
        expected.sort_unstable();
        let got = kept(SamplingParams { top_p, ..ON }, &logits, &[]);
        let got: Vec<u32> = got.into_iter().map(|x| x.0).collect();
        assert_eq!(got, expected, "top_p {top_p}");
    }
}

#[test]
fn min_p_alone() {
    let logits = logs(&[0.04, 0.5, 0.26, 0.2]);
    let params = |min_p| SamplingParams { min_p, ..ON };
    let three = [(1, 0.5 / 0.96), (2, 0.26 / 0.96), (3, 0.2 / 0.96)];
    assert_kept(params(0.1), &logits, &three);
    assert_kept(params(0.51), &logits, &[(1, 0.5 / 0.76), (2, 0.26 / 0.76)]);
    assert_kept(params(1.0), &logits, &[(1, 1.0)]);
    assert_kept(params(0.07), &logits, &[(0, 0.04), (1, 0.5), (2, 0.26), (3, 0.2)]);
}

#[test]
fn filters_apply_in_order_and_renormalise_between() {
    // After top-k 3 the probabilities are .5 .3 .2 (of .4 .24 .16), so top-p .75 keeps two; of all it would keep three.
    let logits = logs(&[0.4, 0.24, 0.16, 0.1, 0.1]);
    let both = SamplingParams { top_k: 3, top_p: 0.75, ..ON };
    assert_kept(both, &logits, &[(0, 0.625), (1, 0.375)]);
    assert_eq!(kept(SamplingParams { top_k: 0, ..both }, &logits, &[]).len(), 3);
    // The temperature comes first: 16 : 4 : 1 at 2 is 4 : 2 : 1, so min-p .4 keeps two instead of one.
    let params = SamplingParams { temperature: 2.0, min_p: 0.4, ..ON };
    assert_kept(params, &logs(&[16.0, 4.0, 1.0]), &[(0, 2.0 / 3.0), (1, 1.0 / 3.0)]);
}

#[test]
fn draws_follow_the_distribution() {
    let p = [0.35, 0.02, 0.2, 0.08, 0.0, 0.15, 0.19, 0.01];
    let mut logits = logs(&p);
    // A shift changes nothing; the excluded token stays excluded.
    for x in &mut logits {
        *x += 30.0;
    }
    // Seven possible tokens, 6 degrees of freedom: 22.5 is exceeded once in a thousand seeds. Seeds are fixed.
    for seed in [1, 2, 3] {
        let statistic = chi_square(SamplingParams { seed, ..ON }, &logits, &p, 20_000);
        assert!(statistic < 22.5, "seed {seed}: {statistic}");
    }
    // The test sees a temperature that is off by 5 %, and an excluded token that is drawn.
    let warm = SamplingParams { temperature: 1.05, ..ON };
    assert!(chi_square(warm, &logits, &p, 20_000) > 22.5);
    assert_eq!(chi_square(ON, &logs(&[0.5, 0.5]), &[1.0, 0.0], 100), f64::INFINITY);
    // Filtered and warmed: 4 : 2 : 1 of 16 : 4 : 1, 2 degrees of freedom, 13.8.
    let params = SamplingParams { temperature: 2.0, top_k: 3, ..ON };
    let expected = [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0];
    let statistic = chi_square(params, &logs(&[16.0, 4.0, 1.0, 0.5]), &expected, 20_000);
    assert!(statistic < 13.8, "{statistic}");
}

#[test]
fn neighbouring_seeds_draw_independently() {
    // The first draw of 20,000 consecutive seeds follows the distribution, too.
    let p = [0.5, 0.3, 0.2];
    let mut counts = [0; 3];
    for seed in 0..20_000 {
        let mut sampler = sampler(SamplingParams { seed, ..ON });
        counts[sampler.sample(&logs(&p), &[], 0).unwrap().token as usize] += 1;
    }
    // 2 degrees of freedom: 13.8 is exceeded once in a thousand.
    assert!(chi_square_of(&counts, &p) < 13.8, "{counts:?}");
}

#[test]
fn a_draw_depends_on_seed_and_step_alone() {
    let logits = vec![0.0; 1000];
    let run = |seed, steps: &[u64]| -> Vec<u32> {
        let mut sampler = sampler(SamplingParams { seed, ..ON });
        steps.iter().map(|&step| sampler.sample(&logits, &[], step).unwrap().token).collect()
    };
    let forward = run(5, &[0, 1, 2, 3, u64::MAX]);
    let mut backward = run(5, &[u64::MAX, 3, 2, 1, 0]);
    backward.reverse();
    assert_eq!(forward, backward);
    assert_eq!(run(5, &[2, 2, 2]), [forward[2]; 3]);
    assert_ne!(forward, run(6, &[0, 1, 2, 3, u64::MAX]));
    assert!(forward.windows(2).all(|w| w[0] != w[1]), "{forward:?}");
    // Pinned: a seed gives the same text in every version and on every platform.
    assert_eq!(forward[..3], PINNED);
}

const PINNED: [u32; 3] = [835, 406, 807];

#[test]
fn logprob_and_gap_are_those_of_the_unmodified_distribution() {
    let p = [0.1, 0.6, 0.3];
    let params = SamplingParams { temperature: 0.3, top_k: 1, repetition_penalty: 1.5, ..ON };
    let out = sampler(params).sample(&logs(&p), &[1], 3).unwrap();
    // 2e-7: half a unit in the last place of f32 logits up to 2.3, and of the result.
    assert!((f64::from(out.logprob) - p[out.token as usize].ln()).abs() < 2e-7);
    assert!((f64::from(out.top_gap) - 0.3).abs() < 2e-7);
    let tie = sampler(ON).sample(&[2.0, 1.0, 2.0], &[], 0).unwrap();
    assert_eq!(tie.top_gap, 0.0);
    let only = sampler(ON).sample(&[f32::NEG_INFINITY, -8.0], &[], 0).unwrap();
    assert_eq!(only, Sampled { token: 1, logprob: 0.0, top_gap: 1.0 });
}

#[test]
fn extreme_logits_and_parameters_do_not_overflow() {
    let logits = [f32::MAX, f32::MIN, 0.0, f32::MIN_POSITIVE];
    for temperature in [f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX] {
        for repetition_penalty in [f32::from_bits(1), f32::MAX] {
            let params = SamplingParams { temperature, repetition_penalty, top_p: 0.9, ..ON };
            let out = sampler(params).sample(&logits, &[0, 1, 2, 3], 1).unwrap();
            assert!(out.token < 4);
            assert!(!out.logprob.is_nan() && out.top_gap == 1.0, "{out:?}");
        }
    }
}
