//! Quality of splicing against an independent f32 simulator, prompt by prompt.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use flate2::read::GzDecoder;
use seam_device::Device;
use seam_engine::Request;
use seam_model::text::{SegmentFormat, Tokenizer};
use seam_pic::Mode;
use seam_tests::{cpu, engine, fixture, options, wgpu};
use serde_json::Value;

/// Workers that wrote the reference table: prompt i was done by worker `i % WORKERS`, and their rows follow each other.
const WORKERS: usize = 12;

const VARIANTS: [(&str, Mode, u32); 5] = [
    ("full", Mode::Full, 0),
    ("transition w=0", Mode::Transition, 0),
    ("transition w=8", Mode::Transition, 8),
    ("transition w=32", Mode::Transition, 32),
    ("addition w=0", Mode::Addition, 0),
];

struct Set {
    /// Each prompt with its reference rows.
    prompts: Vec<(Value, Value)>,
}

fn set(model: &Path, admitted: &dyn Fn(u64) -> bool) -> Set {
    let mut text = String::new();
    let file = File::open(fixture("tiny_qwen35/eval_set.jsonl.gz")).expect("evaluation set");
    GzDecoder::new(file).read_to_string(&mut text).expect("evaluation set");
    let prompts: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("prompt"))
        .filter(|p: &Value| admitted(p["tokens"].as_u64().expect("tokens")))
        .collect();
    let table = std::fs::read_to_string(model.join("pic_table.json")).expect("reference table");
    let table: Value = serde_json::from_str(&table).expect("reference table");
    let mut rows = table["prompts"].as_array().expect("rows").iter();
    let mut reference = vec![Value::Null; prompts.len()];
    for worker in 0..WORKERS {
        for slot in reference.iter_mut().skip(worker).step_by(WORKERS) {
            *slot = rows.next().expect("a row for each prompt").clone();
        }
    }
    assert!(rows.next().is_none(), "as many rows as prompts");
    for (prompt, row) in prompts.iter().zip(&reference) {
        assert_eq!((&prompt["tokens"], &prompt["type"]), (&row["tokens"], &row["type"]));
    }
    Set { prompts: prompts.into_iter().zip(reference).collect() }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    logits.iter().map(|l| f64::from(l - max) - sum.ln()).collect()
}

fn best(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Runs `limit` prompts of at most `longest` tokens; per variant: matches and agreements that differ from the reference,
/// and the largest differences of KL and NLL.
fn compare(device: &Arc<dyn Device>, model: &Path, set: &Set, limit: usize, longest: u64) {
    let mut engine = engine(device, model, &options());
    let tokenizer = Tokenizer::from_dir(model).expect("tokenizer");
    let format = SegmentFormat::detect(&tokenizer);
    let end = tokenizer.special_id("<|end|>").expect("end token");
    let vocab = engine.runner().spec().vocab as usize;
    let short = set.prompts.iter().filter(|(p, _)| p["tokens"].as_u64().is_some_and(|t| t <= longest));
    let mut count = 0;
    for (prompt, reference) in short.take(limit) {
        count += 1;
        let text = |key: &str| prompt[key].as_str().expect("text");
        let documents: Vec<&str> =
            prompt["docs"].as_array().expect("docs").iter().map(|d| d.as_str().expect("text")).collect();
        let segments = format.build(&tokenizer, text("system"), &documents, text("question")).expect("segments");
        let mut answer = tokenizer.encode(text("answer"), false).expect("answer");
        answer.push(end);
        let mut full: Vec<Vec<f64>> = Vec::new();
        for (name, mode, seam) in VARIANTS {
            let request = Request { mode, seam, ..Request::new(segments.clone()) };
            let logits = engine.score(&request, &answer).expect("score");
            let rows: Vec<Vec<f64>> = logits.chunks(vocab).map(log_softmax).collect();
            assert_eq!(rows.len(), answer.len());
            if mode == Mode::Full {
                full.clone_from(&rows);
            }
            let exact = rows.iter().zip(&answer).all(|(row, gold)| best(row) == *gold as usize);
            let same = rows.iter().zip(&full).all(|(row, full)| best(row) == best(full));
            let kl: f64 = rows
                .iter()
                .zip(&full)
                .map(|(row, full)| full.iter().zip(row).map(|(f, r)| f.exp() * (f - r)).sum::<f64>())
                .sum::<f64>()
                / rows.len() as f64;
            let nll = -rows.iter().zip(&answer).map(|(row, gold)| row[*gold as usize]).sum::<f64>() / rows.len() as f64;
            let expected = |i: usize| reference[name][i].as_f64().expect("reference");
            let what = format!("{} {name} on {}", reference["tokens"], device.caps().kind);
            assert_eq!((f64::from(u8::from(exact)), f64::from(u8::from(same))), (expected(0), expected(1)), "{what}");
            // The table is rounded to 1e-5; two f32 engines differ by about 1e-5 in a logit, and KL and NLL by no more
            // than a few times that relative to their size.
            let bound = |value: f64| 2e-5 + 2e-3 * value;
            assert!((kl - expected(2)).abs() <= bound(expected(2)), "{what}: KL {kl:.6}, reference {}", expected(2));
            assert!((nll - expected(3)).abs() <= bound(expected(3)), "{what}: NLL {nll:.6}, reference {}", expected(3));
        }
        engine.forget_device_entries();
    }
    assert_eq!(count, limit, "enough prompts of at most {longest} tokens");
}

#[test]
fn twenty_prompts_on_cpu() {
    let model = fixture("tiny_qwen35");
    compare(&cpu(), &model, &set(&model, &|_| true), 20, 500);
}

#[test]
fn three_prompts_on_wgpu() {
    if let Some(device) = wgpu() {
        let model = fixture("tiny_qwen35");
        compare(&device, &model, &set(&model, &|_| true), 3, 400);
    }
}

/// The model whose answers come from the recurrent state, where it is at hand.
#[test]
fn the_state_model_on_cpu() {
    let model = fixture("large/tiny_qwen35_state");
    if model.is_dir() {
        compare(&cpu(), &model, &set(&model, &|tokens| tokens <= 1300), 6, 400);
    } else {
        println!("SKIPPED: fixtures/large/tiny_qwen35_state is not there");
    }
}
