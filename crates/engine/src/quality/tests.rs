use super::*;

/// Two tokens, vocabulary of three.
const FULL: [f32; 6] = [2.0, 1.0, 0.0, 0.0, 0.0, 3.0];

#[test]
fn full_against_itself_has_no_divergence_and_the_likelihood_of_the_softmax() {
    let s = Scores::of(&FULL, &FULL, &[0, 2]).unwrap();
    assert!(s.exact && s.agree);
    assert_eq!(s.kl, 0.0);
    // −ln softmax, by hand: ln(1 + e⁻¹ + e⁻²) and ln(1 + 2e⁻³).
    let by_hand = ((1.0 + (-1.0f64).exp() + (-2.0f64).exp()).ln() + (1.0 + 2.0 * (-3.0f64).exp()).ln()) / 2.0;
    assert!((s.nll - by_hand).abs() < 1e-12, "{} {by_hand}", s.nll);
}

#[test]
fn divergence_is_of_full_from_mode_and_averaged_over_tokens() {
    // The first token: uniform over two of three against 3:1; the second equal.
    let ln = |x: f64| x.ln() as f32;
    let full = [0.0, 0.0, f32::NEG_INFINITY, 1.0, 0.0, 0.0];
    let mode = [ln(0.75), ln(0.25), f32::NEG_INFINITY, 1.0, 0.0, 0.0];
    let s = Scores::of(&full, &mode, &[0, 0]).unwrap();
    let by_hand = 0.5 * ((0.5f64 / 0.75).ln() + (0.5f64 / 0.25).ln()) / 2.0;
    // The logits are f32 roundings of the logarithms.
    assert!((s.kl - by_hand).abs() < 1e-7, "{} {by_hand}", s.kl);
    let other = Scores::of(&mode, &full, &[0, 0]).unwrap();
    assert!((other.kl - by_hand).abs() > 1e-3, "the divergence is not symmetric");
}

#[test]
fn exact_needs_every_token_and_agreement_does_not_need_the_answer() {
    let s = Scores::of(&FULL, &FULL, &[0, 1]).unwrap();
    assert!(!s.exact && s.agree);
    let other = [1.0, 2.0, 0.0, 0.0, 0.0, 3.0];
    let s = Scores::of(&FULL, &other, &[1, 2]).unwrap();
    assert!(s.exact && !s.agree);
    // A tie: the first one.
    let s = Scores::of(&[1.0, 1.0], &[1.0, 1.0], &[0]).unwrap();
    assert!(s.exact);
}

#[test]
fn logits_that_do_not_fit_are_refused() {
    for (full, mode, gold) in [
        (&FULL[..], &FULL[..3], &[0, 2][..]),
        (&FULL[..], &FULL[..], &[0, 1, 2, 0][..]),
        (&FULL[..], &FULL[..], &[][..]),
        (&[][..], &[][..], &[0][..]),
        (&FULL[..], &FULL[..], &[0, 3][..]),
    ] {
        let error = Scores::of(full, mode, gold).unwrap_err();
        assert_eq!(error.tokens, gold.len());
    }
}

#[test]
fn totals_are_means_over_prompts_by_type_and_over_all() {
    let settings = Setting::grid(&[Mode::Transition, Mode::Full, Mode::Transition], &[0, 8, 8]);
    let names: Vec<String> = settings.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["full", "transition w=0", "transition w=8"]);
    let mut e = Evaluation::new(&settings);
    let scores = |exact, kl| Scores { exact, agree: exact, kl, nll: 2.0 * kl };
    for (index, kind, kl) in [(0, "a", 0.1), (1, "b", 0.2), (2, "a", 0.3)] {
        let scores = vec![scores(true, 0.0), scores(kind == "a", kl), scores(false, 1.0)];
        e.add(PromptScores { index, kind: kind.into(), tokens: 10, docs: 1, scores });
    }
    let row = e.row(Setting { mode: Mode::Transition, seam: 0 }).unwrap();
    assert_eq!((row.all.prompts, row.all.exact, row.by_type["a"].prompts, row.by_type["b"].exact), (3, 2, 2, 0));
    assert!((row.all.mean_kl() - 0.2).abs() < 1e-15 && (row.by_type["a"].mean_nll() - 0.4).abs() < 1e-15);
    assert!((row.all.exact_percent() - 200.0 / 3.0).abs() < 1e-12);
    assert_eq!(Totals::default().mean_kl(), 0.0, "no prompts: no NaN");
    assert!(e.row(Setting { mode: Mode::Addition, seam: 0 }).is_none());
}

#[test]
fn log_softmax_takes_extreme_logits() {
    let l = log_softmax(&[3e38, -3e38, 3e38]);
    assert!((l[0] + 2f64.ln()).abs() < 1e-12 && l[1] < -1e38, "{l:?}");
}
