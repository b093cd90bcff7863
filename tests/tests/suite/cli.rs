//! The binary `seam` as scripts see it: JSON on standard output, exit codes, messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;
use seam_tests::fixture;
use serde_json::Value;
use tempfile::TempDir;

/// The binary beside the test executable.
///
/// # Panics
/// If it has not been built: testing this package does not build it.
fn binary() -> PathBuf {
    let name = format!("seam{}", std::env::consts::EXE_SUFFIX);
    let exe = std::env::current_exe().expect("the test executable has a path");
    exe.ancestors().skip(1).map(|dir| dir.join(&name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("{name} is not in a folder above {}: run `cargo build --release --workspace` first", exe.display())
    })
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The document on standard output, which holds nothing else.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}\n{}", self.out, self.err))
    }
}

/// Runs the binary; no run may panic.
pub(crate) fn seam(args: &[&str]) -> Ran {
    let output = Command::new(binary()).args(args).stdin(Stdio::null()).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let ran = Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
    ran
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn tiny() -> String {
    text(&fixture("tiny_qwen35")).to_owned()
}

/// The first prompt of the evaluation set, its documents as files.
fn documents(dir: &TempDir) -> (Value, Vec<String>) {
    let file = std::fs::File::open(fixture("tiny_qwen35/eval_set.jsonl.gz")).expect("evaluation set");
    let set = std::io::read_to_string(GzDecoder::new(file)).expect("evaluation set");
    let prompt: Value = serde_json::from_str(set.lines().next().expect("a prompt")).expect("a prompt");
    let write = |(i, doc): (usize, &Value)| {
        let path = dir.path().join(format!("document{i}.txt"));
        std::fs::write(&path, doc.as_str().expect("text")).expect("written");
        text(&path).to_owned()
    };
    let files = prompt["docs"].as_array().expect("documents").iter().enumerate().map(write).collect();
    (prompt, files)
}

#[test]
fn ask_reuses_entries_of_an_earlier_run_in_another_order() {
    let dir = TempDir::new().expect("folder");
    let (prompt, files) = documents(&dir);
    let cache = dir.path().join("cache");
    let ask = |files: &[String], more: &[&str]| {
        let (model, question) = (tiny(), prompt["question"].as_str().expect("text"));
        let mut args = vec!["ask", "--device", "cpu", "--json", "--model", &model, "--question", question];
        args.extend(["--system", prompt["system"].as_str().expect("text"), "--cache", text(&cache)]);
        args.extend(std::iter::once("--doc").chain(files.iter().map(String::as_str)));
        args.extend(more);
        let ran = seam(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.err.contains("device: cpu"), "the device is said: {}", ran.err);
        ran.json()
    };
    let cold = ask(&files, &[]);
    assert_eq!(cold["answer"], prompt["answer"]);
    let segments = cold["segments"].as_array().expect("segments");
    assert_eq!(segments.len(), files.len() + 2);
    assert!(segments[..=files.len()].iter().all(|s| s["miss"] == "absent"), "{segments:#?}");
    assert_eq!(
        (&segments[1]["what"], &segments[files.len() + 1]["what"]),
        (&files[0].clone().into(), &"question".into())
    );
    assert_eq!(cold["prompt_tokens"], prompt["tokens"]);

    let reversed: Vec<String> = files.iter().rev().cloned().collect();
    let warm = ask(&reversed, &["--verify"]);
    let segments = warm["segments"].as_array().expect("segments");
    assert!(segments[..=files.len()].iter().all(|s| s["hit"] == "disk"), "{segments:#?}");
    assert_eq!(warm["answer"], prompt["answer"]);
    assert_eq!(warm["work"]["cold_rows"], 0);
    assert!(warm["work"]["reused_tokens"].as_u64() > warm["work"]["prompt_rows"].as_u64());
    let layers = warm["verify"]["layers"].as_array().expect("layers");
    assert_eq!(layers.len(), 12);
    // Splicing drifts, but not out of recognition.
    let drift = layers.iter().filter_map(|l| l["hidden"].as_f64()).fold(0.0, f64::max);
    assert!(drift > 0.0 && drift < 0.5, "{drift}");
    assert_eq!(warm["verify"]["full_answer"], prompt["answer"]);

    // Another tenant finds nothing, and another seam is another entry.
    for (args, miss) in [(["--tenant", "other"], "absent"), (["--seam", "9"], "absent")] {
        let other = ask(&files, &args);
        assert_eq!(other["segments"][1]["miss"], miss, "{args:?}");
    }
}

#[test]
fn markers_in_a_document_are_text() {
    let dir = TempDir::new().expect("folder");
    let write = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("written");
        text(&path).to_owned()
    };
    let plain = write("plain.txt", "The colour of Rixtron is green. Nobody could say more about it.");
    let marked =
        write("marked.txt", "The colour of Rixtron is green.<|seg|><|end|><|bos|> Nobody could say more about it.");
    let ask = |file: &str| {
        let model = tiny();
        let args = ["ask", "--device", "cpu", "--json", "--model", &model, "--doc", file, "--question", "What?"];
        let ran = seam(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran.json()
    };
    let (plain, marked) = (ask(&plain), ask(&marked));
    assert_eq!(marked["segments"].as_array().map(Vec::len), Some(3), "no marker cuts the prompt");
    let tokens = |json: &Value| json["segments"][1]["tokens"].as_u64().expect("tokens");
    // As markers they would be three tokens; spelled out they are more.
    assert!(tokens(&marked) > tokens(&plain) + 6, "{} {}", tokens(&marked), tokens(&plain));
}

#[test]
fn ask_streams_the_answer_before_the_table() {
    let dir = TempDir::new().expect("folder");
    let (prompt, files) = documents(&dir);
    let (model, question) = (tiny(), prompt["question"].as_str().expect("text"));
    let mut args = vec!["ask", "--device", "cpu", "--model", &model, "--question", question, "--doc"];
    args.extend(files.iter().map(String::as_str));
    let ran = seam(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (answer, table) = ran.out.split_once("\n\n").expect("answer and table");
    assert_eq!(answer, prompt["answer"].as_str().expect("text"));
    for wanted in ["document0.txt", "query_never_cached", "first token after", "tokens reused"] {
        assert!(table.contains(wanted), "{wanted} in\n{table}");
    }
    assert!(!ran.out.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn eval_agrees_with_the_reference_and_writes_its_files() {
    let dir = TempDir::new().expect("folder");
    let (model, set) = (tiny(), fixture("tiny_qwen35/eval_set.jsonl.gz"));
    let table = fixture("tiny_qwen35/pic_table.json");
    let mut args = vec!["eval", "--device", "cpu", "--json", "--model", &model, "--set", text(&set), "--limit", "3"];
    args.extend(["--max-tokens", "700", "--modes", "transition,addition", "--seams", "0,8"]);
    args.extend(["--out", text(dir.path()), "--reference", text(&table)]);
    let ran = seam(&args);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
    let json = ran.json();
    let rows = json["rows"].as_array().expect("rows");
    let settings: Vec<_> = rows.iter().map(|r| (r["mode"].as_str().unwrap_or_default(), r["seam"].as_u64())).collect();
    let expected =
        ["full", "transition", "transition", "addition", "addition"].into_iter().zip([0, 0, 8, 0, 8].map(Some));
    assert_eq!(settings, expected.collect::<Vec<_>>());
    assert_eq!(rows[0]["all"]["agree"], json["prompts"]);
    assert_eq!(rows[0]["all"]["kl"], 0.0);
    assert!(rows[1]["all"]["kl"].as_f64() > Some(0.0));
    assert_eq!(json["reference"]["differences"].as_array().map(Vec::len), Some(5));
    let svg = std::fs::read_to_string(dir.path().join("quality.svg")).expect("plot");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    let full = std::fs::read_to_string(dir.path().join("quality.json")).expect("quality.json");
    let full: Value = serde_json::from_str(&full).expect("JSON");
    assert_eq!(full["prompt_scores"].as_array().map(Vec::len), json["prompts"].as_u64().map(|n| n as usize));

    // A reference with a wrong number is a failure, not an error.
    let mut wrong: Value = serde_json::from_str(&std::fs::read_to_string(&table).expect("table")).expect("JSON");
    for prompt in wrong["prompts"].as_array_mut().expect("prompts") {
        prompt["transition w=8"][2] = 9.0.into();
    }
    let path = dir.path().join("wrong.json");
    std::fs::write(&path, wrong.to_string()).expect("written");
    *args.last_mut().expect("the reference") = text(&path);
    let ran = seam(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let failed = ran.json()["reference"]["differences"][2].clone();
    assert!(failed["misses"][0].as_str().is_some_and(|m| m.contains("KL")), "{failed}");
}

#[test]
fn the_demo_counts_what_it_saves() {
    let ran = seam(&["demo", "--device", "cpu", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json = ran.json();
    let questions = json["questions"].as_array().expect("questions");
    let summary = &json["summary"];
    assert!(questions.len() >= 5 && json["documents"].as_array().is_some_and(|d| d.len() >= 3));
    assert_eq!(questions[0]["reused"], 0, "the first question computes the documents");
    assert!(questions[1..].iter().all(|q| q["reused"].as_u64() > Some(0)));
    let agree = questions.iter().filter(|q| q["agree"] == true).count();
    assert_eq!(summary["agree"].as_u64(), Some(agree as u64));
    // Chosen so that nearly all do; a mistake in splicing would break more than the one or two that hang on a tie.
    assert!(
        agree + 2 >= questions.len() && summary["full_correct"].as_u64() >= Some(questions.len() as u64 - 2),
        "{summary}"
    );
    let (spliced, full) = (summary["computed_spliced"].as_u64(), summary["computed_full"].as_u64());
    assert!(spliced.map(|s| 2 * s) < full, "{summary}");
}

#[test]
fn check_and_laws_report_every_item() {
    let ran = seam(&["check", text(&fixture("qwen3_5_dense")), "--device", "cpu", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["passed"], &json["fixtures"][0]["status"]), (&true.into(), &"passed".into()));
    let checks = json["fixtures"][0]["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|c| c["error"].as_f64() <= c["bound"].as_f64()) && checks.len() > 10);

    let ran = seam(&["laws", "--family", "kda", "--cases", "1", "--max-len", "9", "--seed", "5", "--device", "cpu"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out.contains("seed 5")
            && ran.out.lines().any(|line| line.starts_with("kda") && line.contains(" rerotation ")),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("re-rotation impossible, because the decays of a rotation pair differ"), "{}", ran.out);
}

/// Families on their oracles and on the device, in one document and one picture. Cases are divided: those asked for are all
/// there are, or one a law where that is more.
#[test]
fn laws_of_families_are_one_document_and_one_picture() {
    let dir = TempDir::new().expect("folder");
    let svg = dir.path().join("laws.svg");
    let families = "retnet,gated_delta_rule,kda";
    let line = ["laws", "--family", families, "--cases", "300", "--max-len", "70", "--device", "cpu", "--json"];
    let ran = seam(&[&line[..], &["--svg", text(&svg)]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["passed"], &json["cases"], &json["form"]), (&true.into(), &300.into(), &"all".into()));
    assert_eq!(json["device"]["kind"], "cpu");
    let summaries = json["families"].as_array().expect("families");
    let oracles: Vec<_> = summaries
        .iter()
        .filter(|f| f["subject"].as_str().is_some_and(|s| s.starts_with("oracle/")))
        .map(|f| (f["family"].as_str(), f["says"].as_str()))
        .collect();
    let conv = "exact with conv warm-up of 3 tokens";
    let expected = [("retnet", "exact with re-rotation"), ("gated_delta_rule", conv), ("kda", conv)];
    assert_eq!(oracles, expected.map(|(family, says)| (Some(family), Some(says))));
    for impossible in summaries.iter().filter(|f| f["family"] == "kda" && f["passed"] == true) {
        let because = &impossible["rerotation"]["impossible"]["because"];
        assert!(because.as_str().is_some_and(|why| why.contains("recompute")), "{impossible:#}");
    }
    // Every subject that ran has its laws and its sweep.
    let ran = summaries.iter().filter(|f| f["passed"] == true).count();
    assert!(ran > 3, "the gated delta rule has a kernel on the processor: {summaries:#?}");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), ran * 14);
    for row in rows {
        let report = &row["report"];
        assert!(report["worst_error"].as_f64() <= report["tolerance"].as_f64(), "{row:#}");
        let silent = row["verdict"]["silent"].is_object();
        assert!(if silent { report["cases"] == 0 } else { report["cases"].as_u64() > Some(0) }, "{row:#}");
        let convolution = row["family"] == "retnet" && report["law"] == "convolution";
        assert_eq!(silent, convolution, "only the convolution says nothing, and only about retnet: {row:#}");
    }
    let sweeps = json["sweeps"].as_array().expect("sweeps");
    assert_eq!(sweeps.len(), ran);
    for sweep in sweeps {
        let points = sweep["points"].as_array().expect("points");
        assert_eq!(points.len(), if sweep["family"] == "retnet" { 7 } else { 3 * 7 });
        assert!(points.iter().all(|p| p["error"].as_f64() <= p["tolerance"].as_f64()), "{sweep:#}");
        assert_eq!((&points[6]["segments"], &sweep["passed"]), (&64.into(), &true.into()));
    }
    let picture = std::fs::read_to_string(&svg).expect("the picture");
    assert!(picture.starts_with("<svg") && picture.contains("segments") && picture.contains("rerotation"));
    for name in families.split(',').chain(["float64 oracle", "cpu/recurrent", "slow decay", "fixed decay"]) {
        assert!(picture.contains(&format!("\n{name}\n")), "{name}");
    }
    assert_eq!(seam(&["laws", "--family", "list", "--json"]).json()[1]["name"], "retnet");
}

#[test]
fn doctor_finds_the_processor() {
    let ran = seam(&["doctor", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["devices"][0]["device"], &json["devices"][0]["works"]), (&"cpu".into(), &true.into()));
}

#[test]
fn bad_input_is_named() {
    let dir = TempDir::new().expect("folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        text(&path).to_owned()
    };
    let good = write("good.txt", b"The colour of Rixtron is green.");
    let empty = write("empty.txt", b" \n");
    let latin = write("latin.txt", b"caf\xe9");
    let long = write("long.txt", "many words ".repeat(20_000).as_bytes());
    let absent = text(&dir.path().join("absent.txt")).to_owned();
    let folder = text(dir.path()).to_owned();
    let other_set = write("set.jsonl", br#"{"type":"single","system":"s","docs":["a"],"question":"q","answer":" x"}"#);
    let table = fixture("tiny_qwen35/pic_table.json");
    let model = tiny();
    let ask = |model: &str, doc: &str, more: &[&str]| {
        let args = ["ask", "--device", "cpu", "--model", model, "--doc", doc, "--question", "What?"];
        args.iter().chain(more).map(|s| (*s).to_owned()).collect::<Vec<_>>()
    };
    let own = |args: &[&str]| args.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let cases = [
        (ask("no/such/model", &good, &[]), 1, "no/such/model"),
        (ask(&folder, &good, &[]), 1, "config.json"),
        (ask(&model, &absent, &[]), 1, "absent.txt"),
        (ask(&model, &folder, &[]), 1, "is a folder"),
        (ask(&model, &empty, &[]), 1, "empty.txt is empty"),
        (ask(&model, &latin, &[]), 1, "latin.txt is not UTF-8"),
        (ask(&model, &long, &[]), 1, "long.txt"),
        (ask(&model, &good, &["--max-new", "9000"]), 1, "context"),
        (ask(&model, &good, &["--top-p", "2"]), 1, "top_p"),
        (ask(&model, &good, &["--temperature", "NaN"]), 1, "temperature"),
        (ask(&model, &good, &["--cache", &good]), 1, "good.txt"),
        (ask(&model, &good, &["--mode", "replay"]), 2, "replay"),
        (ask(&model, &good, &["--max-new", "0"]), 2, "--max-new"),
        (own(&["ask", "--model", &model, "--question", " "]), 2, "the question is empty"),
        (own(&["ask", "--model", &model, "--question", "q", "--device", "tpu"]), 2, "tpu"),
        (own(&["laws", "--device", "wgpu:no such adapter"]), 1, "no such adapter"),
        (own(&["laws", "--form", "blocks"]), 2, "unknown form \"blocks\": expected recurrent, chunk or all"),
        (own(&["laws", "--family", "kda,lstm"]), 2, "unknown family \"lstm\": expected all, list, or some of"),
        (own(&["eval", "--model", &model, "--set", &absent]), 1, "absent.txt"),
        (own(&["eval", "--model", &model, "--set", &good]), 1, "line 1"),
        (own(&["eval", "--model", &model, "--set", &other_set, "--seams", "x"]), 2, "--seams"),
        (
            own(&["eval", "--device", "cpu", "--model", &model, "--set", &other_set, "--reference", text(&table)]),
            1,
            "other prompts",
        ),
        (own(&["check", &good]), 1, "good.txt"),
        (own(&["check"]), 2, "PATH"),
        (own(&["demo", "--model", &absent]), 1, "absent.txt"),
        (own(&["frobnicate"]), 2, "frobnicate"),
    ];
    for (args, code, message) in cases {
        let ran = seam(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(message) && ran.err.contains("error: "), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);
    }
}

#[test]
fn version_and_help_go_to_standard_output() {
    let ran = seam(&["--version"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), concat!("seam ", env!("CARGO_PKG_VERSION"))));
    let ran = seam(&["help"]);
    assert_eq!(ran.code, Some(0));
    for command in ["demo", "ask", "eval", "check", "laws", "doctor"] {
        assert!(ran.out.contains(command), "{}", ran.out);
    }
}
