use seam_engine::quality::{PromptScores, Scores};
use seam_pic::Mode;

use super::*;

const TRANSITION: Setting = Setting { mode: Mode::Transition, seam: 8 };

fn prompt(i: usize) -> EvalPrompt {
    EvalPrompt {
        kind: if i.is_multiple_of(2) { "a" } else { "b" }.into(),
        system: String::new(),
        docs: vec![String::new(); 1 + i % 3],
        question: "q".into(),
        answer: "a".into(),
        tokens: 100 + 7 * i,
    }
}

fn scores(i: usize) -> Scores {
    Scores { exact: i.is_multiple_of(3), agree: true, kl: 0.01 * i as f64, nll: 0.5 }
}

/// A table of `n` prompts written by `stride` processes.
fn table(n: usize, stride: usize) -> Reference {
    let order = (0..stride).flat_map(|s| (s..n).step_by(stride));
    let line = |i: usize| {
        let s = scores(i);
        let values = [f64::from(u8::from(s.exact)), 1.0, s.kl, s.nll];
        let settings = BTreeMap::from([("full".into(), [1.0, 1.0, 0.0, 0.1]), (TRANSITION.to_string(), values)]);
        let p = prompt(i);
        Prompt { kind: p.kind, tokens: p.tokens, docs: p.docs.len(), settings }
    };
    let kl: f64 = (0..n).map(|i| scores(i).kl).sum();
    let exact = (0..n).filter(|&i| scores(i).exact).count() as f64;
    let n64 = n as f64;
    let all = |row: [f64; 5]| BTreeMap::from([("all".to_owned(), row)]);
    let totals = BTreeMap::from([
        ("full".to_owned(), all([n64, n64, n64, 0.0, 0.1 * n64])),
        (TRANSITION.to_string(), all([n64, exact, n64, kl, 0.5 * n64])),
    ]);
    Reference { columns: COLUMNS.map(Into::into).to_vec(), totals, prompts: order.map(line).collect() }
}

fn evaluation(indices: impl Iterator<Item = usize>, change: &dyn Fn(usize, &mut Scores)) -> Evaluation {
    let last = Setting { mode: Mode::LastState, seam: 8 };
    let mut out = Evaluation::new(&[Setting::FULL, TRANSITION, last]);
    for index in indices {
        let full = Scores { exact: true, agree: true, kl: 0.0, nll: 0.1 };
        let mut mode = scores(index);
        change(index, &mut mode);
        let p = prompt(index);
        let (tokens, docs) = (p.tokens, p.docs.len());
        out.add(PromptScores { index, kind: p.kind, tokens, docs, scores: vec![full, mode, full] });
    }
    out
}

#[test]
fn the_same_numbers_pass_whatever_the_order_of_the_table_and_the_prompts_that_ran() {
    let set: Vec<EvalPrompt> = (0..40).map(prompt).collect();
    for stride in [1, 4, 12] {
        let reference = table(40, stride);
        for indices in [(0..40).collect::<Vec<_>>(), (0..7).collect(), vec![3, 11, 39]] {
            let c = reference.compare(&set, &evaluation(indices.into_iter(), &|_, _| {})).unwrap();
            assert!(c.passed, "stride {stride}: {c:?}");
            assert_eq!((c.differences.len(), &c.without_reference[..]), (2, &["last-state w=8".to_owned()][..]));
            assert!((c.differences[1].kl[0] - c.differences[1].kl[1]).abs() < 1e-12);
        }
    }
}

#[test]
fn each_bound_can_fail() {
    let set: Vec<EvalPrompt> = (0..40).map(prompt).collect();
    let reference = table(40, 12);
    let misses = |change: &dyn Fn(usize, &mut Scores)| {
        let c = reference.compare(&set, &evaluation(0..40, change)).unwrap();
        assert_eq!(c.passed, c.differences[1].misses.is_empty());
        c.differences[1].misses.join("; ")
    };
    // One prompt of 40 is 2.5 points: accepted. Two are not.
    assert_eq!(misses(&|i, s| s.exact |= i == 1), "");
    assert!(misses(&|i, s| s.exact |= i == 1 || i == 2).contains("exact match"));
    assert!(misses(&|i, s| s.agree = i > 1).contains("agreement"));
    assert_eq!(misses(&|_, s| s.kl *= 1.14), "");
    assert!(misses(&|_, s| s.kl *= 1.16).contains("KL"));
    assert!(misses(&|_, s| s.kl = f64::NAN).contains("KL"));
}

#[test]
fn other_prompts_are_refused() {
    let reference = table(40, 4);
    let mut set: Vec<EvalPrompt> = (0..40).map(prompt).collect();
    assert!(reference.compare(&set[..39], &evaluation(0..1, &|_, _| {})).is_err(), "the set is shorter");
    set[17].tokens += 1;
    let error = reference.compare(&set, &evaluation(0..1, &|_, _| {})).unwrap_err();
    assert!(error.to_string().contains("other prompts"), "{error}");
    set[17].tokens -= 1;
    let mut found = evaluation(0..2, &|_, _| {});
    found.prompts[1].tokens += 1;
    let error = reference.compare(&set, &found).unwrap_err();
    assert!(error.to_string().contains("another tokenizer"), "{error}");
}
